"""A lease and its locks, with nothing but the .proto: a model for clients in other languages.

Every client has these tasks; the names in parentheses show where this client does them:

- match answers to calls by their tags, and repeat a call that got no answer (`_resend`);
- renew the lease every third of its time to live, and count from before the renewal was *sent* (`_talk`);
- treat its locks as lost when that time is over, whatever the network does (`_watch`);
- leave a silent server, and continue at the next endpoint with the same lease (`_live`, `_talk`);
- tell a restarted server which locks are held (`_reclaim`);
- notice that a lock is lost although the lease lives (`lock_lost`), and tell the code that uses the lock (`Held.lost`).

All endpoints must be in ONE datacenter: a lease is valid only there.
"""

import importlib
import itertools
import pathlib
import queue
import random
import sys
import tempfile
import threading
import time

import grpc
from grpc_tools import protoc

PROTO = pathlib.Path(__file__).resolve().parents[2] / "api" / "proto"


def stubs():
    """Returns the generated modules: messages, and services."""
    folder = tempfile.mkdtemp(prefix="geolock-stubs-")
    arguments = ["protoc", f"-I{PROTO}", f"--python_out={folder}", f"--grpc_python_out={folder}"]
    if protoc.main([*arguments, "geolock/v1/geolock.proto"]) != 0:
        sys.exit("protoc failed")
    sys.path.insert(0, folder)
    return (importlib.import_module(f"geolock.v1.geolock_{part}") for part in ("pb2", "pb2_grpc"))


pb, services = stubs()

# After these reasons the lease does not exist any more.
LEASE_IS_OVER = (pb.REASON_UNKNOWN_LEASE, pb.REASON_LEASE_ENDED, pb.REASON_FOREIGN_LEASE, pb.REASON_WRONG_SECRET)
# With these reasons the server opens no lease at the moment: another server may, or the same one later.
PASSING = (pb.REASON_DRAINING, pb.REASON_RESOURCE_EXHAUSTED, pb.REASON_DISK_FULL, pb.REASON_UNAVAILABLE)


def now():
    """Returns the time in seconds, by a clock that also runs while the machine sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class Refused(Exception):
    """The server refused the call; `error.reason` says why."""

    def __init__(self, error):
        super().__init__(f"{pb.Reason.Name(error.reason)}: {error.message}")
        self.error = error


class Lost(Exception):
    """The locks that were held are lost."""


class Over(Exception):
    """The lease has ended. Requests under it were not granted; the outcome of a transaction is unknown."""


class Unreachable(Exception):
    """No endpoint answered in time."""


class Held:
    """Locks that are held until `lost` is set. Then `why` has the reason, and the locks must not be used any more."""

    def __init__(self, lease, acquire, granted):
        self.lease, self.key, self.locks, self.label = lease, acquire.idempotency_key, acquire.locks, acquire.label
        self.request, self.token = granted.request, granted.token
        self.lost, self.why = threading.Event(), None

    def _lose(self, why):
        self.why = why
        self.lost.set()

    def release(self):
        """Waits until the server has released the locks. Raises `Lost` if they were lost before."""
        self.lease._release(self)


class Call:
    def __init__(self, message, until=None):
        self.message, self.until, self.answer = message, until, queue.SimpleQueue()

    def place(self):
        """Returns the sort key for repeating: new requests by their idempotency key, all other calls before them."""
        kind = self.message.WhichOneof("call")
        return getattr(self.message, kind).idempotency_key if kind in ("acquire", "begin") else 0


class Lease:
    """A lease that survives broken connections and restarts of its server. `close` ends it."""

    def __init__(self, endpoints, credentials, ttl=10.0, name="python"):
        self.endpoints, self.credentials, self.ttl, self.name = endpoints, credentials, ttl, name
        # Guards all fields below.
        self.lock = threading.RLock()
        self.id, self.secret = 0, b""
        # The time at which the last answered renewal was sent.
        self.renewed = None
        self.over, self.why = threading.Event(), None
        # Calls without an answer, by tag, in the order in which they were made; and the held locks.
        self.calls, self.held = {}, {}
        self.last_tag, self.last_key = 10, 0
        # The queue of the stream on which calls can be made now, if any.
        self.outgoing = None
        # True while a sent reclaim is not answered.
        self.in_doubt = False
        self.opened, self.error = threading.Event(), None
        for work in (self._live, self._watch):
            threading.Thread(target=work, daemon=True).start()
        if not self.opened.wait(ttl):
            self._end("it was never opened")
        if not self.id:
            raise self.error if isinstance(self.error, Refused) else Unreachable(str(self.error))

    # Called by users

    def key(self):
        """Returns the idempotency key for a new acquire or transaction. Keys must increase."""
        with self.lock:
            self.last_key += 1
            return self.last_key

    def call(self, timeout=None, **call):
        """Makes a call, and repeats it on new streams until it is answered. Raises `Refused`, `Unreachable`, `Over`."""
        return self._answer(self._make(None, call), timeout)

    def acquire(self, name, mode=pb.MODE_EXCLUSIVE, wait=20.0, label="", home=None):
        """Waits for a lock. `home`: the number of its home datacenter, if its name has one. Raises `Refused` (such as REASON_TIMED_OUT, with the holders in the way), `Unreachable`,
        `Over`, or `Lost` if the lock was granted and lost at once."""
        locks = [pb.LockMode(name=name.encode(), mode=mode, home=home)]
        # Calls must be sent in the order of their keys, so both are assigned under one lock.
        with self.lock:
            acquire = pb.AcquireRequest(
                lease=self.id, locks=locks, wait_ms=int(wait * 1000), idempotency_key=self.key(), label=label
            )
            call = self._make(now() + wait, {"acquire": acquire})
        try:
            held = self._answer(call, wait + self.ttl)
        except Unreachable:
            # The lock may have been granted without our knowledge: cancel it as soon as a server answers.
            key = call.message.acquire.idempotency_key
            self._make(None, {"cancel": pb.CancelRequest(lease=self.id, idempotency_key=key)})
            raise
        if held.lost.is_set():
            raise Lost(held.why)
        return held

    def _release(self, held):
        with self.lock:
            if held.lost.is_set():
                raise Lost(held.why)
            # From now on the lock is not reclaimed.
            del self.held[held.request.n]
        try:
            self.call(self.ttl, release=pb.ReleaseRequest(lease=self.id, idempotency_key=held.key))
        except Over as over:
            raise Lost(str(over)) from over
        except Refused as refused:
            # NOT_HELD: a restarted server never got the lock back. FORCE_RELEASED: an operator took it before the
            # release arrived, so it was lost.
            if refused.error.reason == pb.REASON_FORCE_RELEASED:
                raise Lost(str(refused)) from refused
            if refused.error.reason != pb.REASON_NOT_HELD:
                raise

    def close(self):
        """Ends the lease and releases its locks. If no server answers, they are free after the time to live."""
        try:
            self.call(self.ttl / 4, close_lease=pb.CloseLeaseRequest(lease=self.id))
        except (Refused, Unreachable, Over):
            pass
        self._end("it was closed")

    def _make(self, until, call):
        with self.lock:
            if self.over.is_set():
                raise Over(self.why)
            self.last_tag += 1
            made = Call(pb.ClientMessage(tag=self.last_tag, **call), until)
            self.calls[self.last_tag] = made
            if self.outgoing:
                self.outgoing.put(made.message)
            return made

    def _answer(self, call, timeout):
        try:
            answer = call.answer.get(timeout=timeout)
        except queue.Empty:
            with self.lock:
                if self.calls.pop(call.message.tag, None):
                    raise Unreachable(f"no answer in {timeout:.0f} s: {self.error}") from None
            # The answer has just arrived.
            answer = call.answer.get()
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Held):
            return answer
        if answer.WhichOneof("answer") == "error":
            raise Refused(answer.error)
        return getattr(answer, answer.WhichOneof("answer"))

    # Streams

    def _live(self):
        pause = 0.05
        for endpoint in itertools.cycle(self.endpoints):
            try:
                self._visit(endpoint)
                pause = 0.05
            except (grpc.RpcError, ConnectionError) as error:
                self.error = error
                pause = min(2 * pause, 1.0)
            except Refused as refused:
                self.error = refused
                if self.id or refused.error.reason not in PASSING:
                    self._end(str(refused))
                pause = min(2 * pause, 1.0)
            with self.lock:
                self.outgoing = None
            # A random pause, so that not all clients reconnect at once.
            if self.over.wait(random.uniform(pause / 2, pause)):
                return

    def _visit(self, endpoint):
        with grpc.secure_channel(endpoint, self.credentials) as channel:
            try:
                grpc.channel_ready_future(channel).result(timeout=self.ttl / 4)
            except grpc.FutureTimeoutError:
                raise ConnectionError(f"{endpoint} does not answer, or not in TLS as it should") from None
            outgoing, incoming = queue.SimpleQueue(), queue.SimpleQueue()
            answers = services.LocksStub(channel).Session(iter(outgoing.get, None))

            def read():
                try:
                    for answer in answers:
                        incoming.put(answer)
                    incoming.put(ConnectionError("the server closed the stream"))
                except grpc.RpcError as error:
                    incoming.put(error)

            threading.Thread(target=read, daemon=True).start()
            try:
                self._talk(outgoing, incoming)
            finally:
                answers.cancel()
                outgoing.put(None)

    def _talk(self, outgoing, incoming):
        """Uses one stream until it breaks or another one is better. Tags up to 10 are for calls about the lease."""
        outgoing.put(pb.ClientMessage(tag=1, hello=pb.Hello(revision=1, client=self.name)))
        asked = now()
        if self.id:
            attach = pb.AttachLeaseRequest(lease=self.id, secret=self.secret)
            outgoing.put(pb.ClientMessage(tag=2, attach_lease=attach))
        else:
            outgoing.put(pb.ClientMessage(tag=2, open_lease=pb.OpenLeaseRequest(ttl_ms=int(self.ttl * 1000))))
        while not self.over.is_set():
            if asked is None and now() >= self.renewed + self.ttl / 3:
                asked = now()
                outgoing.put(pb.ClientMessage(tag=3, keep_alive=pb.KeepAliveRequest(lease=self.id)))
            try:
                message = incoming.get(timeout=self.ttl / 20)
            except queue.Empty:
                # Leave early enough to try another stream before the lease ends.
                if asked is not None and now() >= asked + self.ttl / 4:
                    raise ConnectionError("the server is silent") from None
                continue
            if isinstance(message, Exception):
                raise message
            kind = message.WhichOneof("answer")
            if message.tag in (2, 3, 4) and kind == "error":
                if message.error.reason not in LEASE_IS_OVER and self.id:
                    raise ConnectionError(message.error.message)
                raise Refused(message.error)
            if kind == "lease_opened":
                self.id, self.secret = message.lease_opened.lease, message.lease_opened.secret
            if kind in ("lease_opened", "lease_attached", "kept_alive"):
                # Each answer contains the time to live.
                with self.lock:
                    self.renewed, self.ttl = asked, getattr(message, kind).ttl_ms / 1000
                asked = None
            if kind == "lease_opened" or kind == "lease_attached" and not message.lease_attached.reclaim:
                if self.in_doubt:
                    # A reclaim got no answer. Its result is unknown, so treat all locks as lost.
                    self._end("the restarted server did not confirm the locks")
                    return
                self._resend(outgoing)
            elif kind == "lease_attached":
                self.in_doubt = True
                outgoing.put(pb.ClientMessage(tag=4, reclaim=self._reclaim()))
            elif kind == "reclaimed":
                self.in_doubt = False
                self._reclaimed(message.reclaimed, outgoing)
            else:
                self._on(message, kind)

    def _reclaim(self):
        """Returns the message that tells a restarted server all held locks."""
        with self.lock:
            return pb.ReclaimRequest(lease=self.id, held=[
                pb.HeldLocks(
                    request=it.request, idempotency_key=it.key, locks=it.locks, token=it.token, label=it.label
                )
                for it in self.held.values()
            ])

    def _reclaimed(self, reclaimed, outgoing):
        with self.lock:
            for request in reclaimed.lost:
                self._lose(request, "the restarted server could not give it back")
            for call in self.calls.values():
                # The restarted server does not know the waiting requests, and has seen higher keys.
                if call.message.HasField("acquire"):
                    call.message.acquire.idempotency_key = self.key()
            self._resend(outgoing)

    def _resend(self, outgoing):
        """Enables calls on this stream, and repeats those without an answer under their old keys, so that nothing
        happens twice. After a restart, requests with a new key come after those with an older one: keys must
        increase."""
        with self.lock:
            for call in sorted(self.calls.values(), key=Call.place):
                if call.until is not None:
                    call.message.acquire.wait_ms = max(0, int((call.until - now()) * 1000))
                outgoing.put(call.message)
            self.outgoing = outgoing
        self.opened.set()

    def _on(self, message, kind):
        with self.lock:
            if kind == "lease_ended" and message.lease_ended.lease == self.id:
                self._end("the server ended the lease")
            elif kind == "lock_lost":
                forced = message.lock_lost.force_released
                taken = f"taken away by {forced.operator}: {forced.reason}"
                why = taken if forced.operator else "another client holds it"
                self._lose(message.lock_lost.request, why)
            elif kind == "draining" and len(self.endpoints) > 1:
                raise ConnectionError("the server shuts down")
            call = self.calls.pop(message.tag, None)
            if call is None:
                return
            answer = message
            if kind == "acquired":
                answer = Held(self, call.message.acquire, message.acquired)
                self.held[answer.request.n] = answer
            call.answer.put(answer)

    # The end

    def _lose(self, request, why):
        held = self.held.pop(request.n, None)
        if held:
            held._lose(why)

    def _watch(self):
        """Ends the lease when it was not renewed for a time to live, even if this process did not run meanwhile. Does
        so a tenth earlier, which leaves time for the code that uses the locks to stop."""
        while not self.over.wait(self.ttl / 40):
            with self.lock:
                ends = None if self.renewed is None else self.renewed + 0.9 * self.ttl
            if ends is not None and now() >= ends:
                self._end(f"the lease could not be renewed in time ({self.error or 'the server is silent'})")

    def _end(self, why):
        with self.lock:
            if self.over.is_set():
                return
            self.why = why
            self.over.set()
            self.opened.set()
            for held in self.held.values():
                held._lose(why)
            for call in self.calls.values():
                call.answer.put(Over(why))
            self.held.clear()
            self.calls.clear()
