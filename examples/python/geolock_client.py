"""A lease and its locks, with nothing but the .proto: a model for clients in other languages.

What every client has to do, and where it is done here:

- match answers to calls by their tags, and make a call again that got no answer (`_resend`);
- renew the lease every third of its time to live, and count from before the renewal was *sent* (`_talk`);
- stop counting on its locks when that time is over, whatever the network does (`_watch`);
- leave a server that is silent, and go on at the next endpoint with the same lease (`_live`, `_talk`);
- tell a restarted server what is held (`_reclaim`);
- hear that a lock is lost although the lease lives (`lock_lost`), and tell whoever works under it (`Held.lost`).

Endpoints have to be of ONE datacenter: a lease means nothing in another.
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

PROTO = pathlib.Path(__file__).resolve().parents[2] / "proto"


def stubs():
    """The generated modules: messages, and services."""
    folder = tempfile.mkdtemp(prefix="geolock-stubs-")
    arguments = ["protoc", f"-I{PROTO}", f"--python_out={folder}", f"--grpc_python_out={folder}"]
    if protoc.main([*arguments, "geolock/v1/geolock.proto"]) != 0:
        sys.exit("protoc failed")
    sys.path.insert(0, folder)
    return (importlib.import_module(f"geolock.v1.geolock_{part}") for part in ("pb2", "pb2_grpc"))


pb, services = stubs()

# After these the server knows nothing of the lease any more.
LEASE_IS_OVER = (pb.REASON_UNKNOWN_LEASE, pb.REASON_LEASE_ENDED, pb.REASON_FOREIGN_LEASE, pb.REASON_WRONG_SECRET)
# These say that this server opens no lease at the moment: another one may, or the same one later.
PASSING = (pb.REASON_DRAINING, pb.REASON_RESOURCE_EXHAUSTED, pb.REASON_DISK_FULL, pb.REASON_UNAVAILABLE)


def now():
    """Seconds that also pass while the machine sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class Refused(Exception):
    """The server said no; `error.reason` says why."""

    def __init__(self, error):
        super().__init__(f"{pb.Reason.Name(error.reason)}: {error.message}")
        self.error = error


class Lost(Exception):
    """What was held is lost."""


class Over(Exception):
    """The lease is over, and whatever was asked for under it is not had (of a transaction it is not known)."""


class Unreachable(Exception):
    """No endpoint answered in time."""


class Held:
    """Locks that are held until `lost` is set; then `why` says what happened, and nobody may count on them."""

    def __init__(self, lease, acquire, granted):
        self.lease, self.key, self.locks, self.label = lease, acquire.key, acquire.locks, acquire.label
        self.request, self.token = granted.request, granted.token
        self.lost, self.why = threading.Event(), None

    def _lose(self, why):
        self.why = why
        self.lost.set()

    def release(self):
        """Waits until the server has released. Raises `Lost` if they were lost before."""
        self.lease._release(self)


class Call:
    def __init__(self, message, until=None):
        self.message, self.until, self.answer = message, until, queue.SimpleQueue()

    def place(self):
        """Among calls that are made again: what begins something in the order of keys, the rest before."""
        kind = self.message.WhichOneof("call")
        return getattr(self.message, kind).key if kind in ("acquire", "begin") else 0


class Lease:
    """A lease that lives on over broken connections and restarts of its server. `close` ends it."""

    def __init__(self, endpoints, credentials, ttl=10.0, name="python"):
        self.endpoints, self.credentials, self.ttl, self.name = endpoints, credentials, ttl, name
        # Guards all that follows.
        self.lock = threading.RLock()
        self.id, self.secret = 0, b""
        # When the last renewal that was answered was sent.
        self.renewed = None
        self.over, self.why = threading.Event(), None
        # Calls without an answer, by tag: in the order in which they were made.
        self.calls, self.held = {}, {}
        self.last_tag, self.last_key = 10, 0
        # Of the stream on which calls can be made now.
        self.outgoing = None
        # A reclaim was sent and is not answered.
        self.in_doubt = False
        self.opened, self.error = threading.Event(), None
        for work in (self._live, self._watch):
            threading.Thread(target=work, daemon=True).start()
        if not self.opened.wait(ttl):
            self._end("it was never opened")
        if not self.id:
            raise self.error if isinstance(self.error, Refused) else Unreachable(str(self.error))

    # What callers do

    def key(self):
        """For a new acquire or transaction: they have to rise."""
        with self.lock:
            self.last_key += 1
            return self.last_key

    def call(self, timeout=None, **call):
        """Makes a call, again on every new stream until it is answered. Raises `Refused`, `Unreachable`, `Over`."""
        return self._answer(self._make(None, call), timeout)

    def acquire(self, name, mode=pb.MODE_EXCLUSIVE, wait=20.0, label=""):
        """Waits for a lock. Raises `Refused` (such as REASON_TIMED_OUT, with who was in the way), `Unreachable`, `Over`, or `Lost`
        if it was had, and lost at once."""
        locks = [pb.LockMode(name=name.encode(), mode=mode)]
        # Key and place in the order of calls belong together.
        with self.lock:
            acquire = pb.AcquireRequest(
                lease=self.id, locks=locks, wait_ms=int(wait * 1000), key=self.key(), label=label
            )
            call = self._make(now() + wait, {"acquire": acquire})
        try:
            held = self._answer(call, wait + self.ttl)
        except Unreachable:
            # It may have been granted unseen: given back as soon as somebody hears of it.
            self._make(None, {"cancel": pb.CancelRequest(lease=self.id, key=call.message.acquire.key)})
            raise
        if held.lost.is_set():
            raise Lost(held.why)
        return held

    def _release(self, held):
        with self.lock:
            if held.lost.is_set():
                raise Lost(held.why)
            # From now on it is not reclaimed.
            del self.held[held.request.n]
        try:
            self.call(self.ttl, release=pb.ReleaseRequest(lease=self.id, key=held.key))
        except Over as over:
            raise Lost(str(over)) from over
        except Refused as refused:
            # A restarted server never had it back. Forced out while the release was on its way is lost.
            if refused.error.reason == pb.REASON_FORCED_OUT:
                raise Lost(str(refused)) from refused
            if refused.error.reason != pb.REASON_NOT_HELD:
                raise

    def close(self):
        """Gives back everything. If nobody hears it, it goes when the time to live is over."""
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
            # It came just now.
            answer = call.answer.get()
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Held):
            return answer
        if answer.WhichOneof("answer") == "error":
            raise Refused(answer.error)
        return getattr(answer, answer.WhichOneof("answer"))

    # Streams come and go

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
            # Never all clients at once.
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
        """One stream, until it is broken or another one is better. Tags up to 10 are those of calls about the lease."""
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
                # There is time for another stream before the lease is over.
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
                # The server says each time for how long.
                with self.lock:
                    self.renewed, self.ttl = asked, getattr(message, kind).ttl_ms / 1000
                asked = None
            if kind == "lease_opened" or kind == "lease_attached" and not message.lease_attached.reclaim:
                if self.in_doubt:
                    # A reclaim got no answer: what became of it is not known, so nothing is held any more.
                    self._end("nobody knows what the restarted server gave back")
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
        """What a restarted server has to know: all that is held."""
        with self.lock:
            return pb.ReclaimRequest(lease=self.id, held=[
                pb.HeldLocks(request=it.request, key=it.key, locks=it.locks, token=it.token, label=it.label)
                for it in self.held.values()
            ])

    def _reclaimed(self, reclaimed, outgoing):
        with self.lock:
            for request in reclaimed.lost:
                self._lose(request, "the restarted server could not give it back")
            for call in self.calls.values():
                # It has forgotten what waited, and has seen higher keys.
                if call.message.HasField("acquire"):
                    call.message.acquire.key = self.key()
            self._resend(outgoing)

    def _resend(self, outgoing):
        """Calls can be made: again those without an answer, under their old keys, so that nothing happens twice. What has a new
        key after a restart comes after what has an older one: keys have to rise."""
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
                forced = message.lock_lost.forced
                why = f"taken away by {forced.by}: {forced.reason}" if forced.by else "it is somebody else's"
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
        """However long this process did not run: after a time to live without a renewal nothing is held any more. A tenth
        of it is for whoever works under the locks, to stop."""
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
