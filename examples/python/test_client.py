"""Tests of event orders that are hard to produce with a real server. `cargo test --test clients python::` runs these, too."""

import queue
import threading
import unittest

from geolock_client import Lease, Lost, Refused, now, pb


class Alone(Lease):
    """An open lease without a server: the test supplies the server's messages."""

    def __init__(self):
        super().__init__(["nowhere"], None)

    def _live(self):
        self.id, self.renewed = 7, now()
        self.opened.set()

    def _watch(self):
        pass


def result(work):
    """Runs `work` in a thread. Returns a queue that gets its result or exception."""
    results = queue.SimpleQueue()

    def run():
        try:
            results.put(work())
        except Exception as error:
            results.put(error)

    threading.Thread(target=run, daemon=True).start()
    return results


class Model(unittest.TestCase):
    def test_a_lock_that_is_lost_right_after_its_grant_is_lost(self):
        lease = Alone()
        acquired = result(lambda: lease.acquire("x"))
        while not lease.calls:
            pass
        request = pb.RequestId(dc=0, n=1)
        with lease.lock:
            lease._on(pb.ServerMessage(tag=lease.last_tag, acquired=pb.AcquireResponse(request=request)), "acquired")
            lease._lose(request, "taken away")
        acquired = acquired.get(timeout=60)
        self.assertTrue(isinstance(acquired, Lost) or acquired.lost.is_set(), repr(acquired))

    def test_the_time_to_live_is_what_the_server_said_last(self):
        for tag, kind, answer in [
            (2, "lease_attached", pb.AttachLeaseResponse(ttl_ms=3000)),
            (3, "kept_alive", pb.KeepAliveResponse(ttl_ms=4000)),
        ]:
            lease, incoming = Alone(), queue.SimpleQueue()
            incoming.put(pb.ServerMessage(tag=tag, **{kind: answer}))
            incoming.put(ConnectionError("the end"))
            with self.assertRaises(ConnectionError):
                lease._talk(queue.SimpleQueue(), incoming)
            self.assertEqual(lease.ttl, answer.ttl_ms / 1000)

    def test_keys_rise_also_after_a_restart(self):
        lease, outgoing = Alone(), queue.SimpleQueue()
        lease._make(now() + 60, {"acquire": pb.AcquireRequest(idempotency_key=lease.key())})
        lease._make(None, {"begin": pb.BeginRequest(idempotency_key=lease.key())})
        lease._reclaimed(pb.ReclaimResponse(), outgoing)
        begin, acquire = outgoing.get(), outgoing.get()
        self.assertEqual((begin.begin.idempotency_key, acquire.acquire.idempotency_key), (2, 3))

    def test_where_one_server_opens_no_lease_the_next_one_may(self):
        class Two(Alone):
            def __init__(self):
                Lease.__init__(self, ["stops", "serves"], None)

            def _visit(self, endpoint):
                if endpoint == "stops":
                    raise Refused(pb.Error(reason=pb.REASON_DRAINING))
                Alone._live(self)
                self.over.wait()

            _live = Lease._live

        lease = Two()
        self.assertEqual(lease.id, 7)
        lease._end("the test is over")


if __name__ == "__main__":
    unittest.main()
