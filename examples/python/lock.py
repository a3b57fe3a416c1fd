"""Takes a lock, shows its fencing token, releases it: with nothing but the .proto.

    python lock.py [--connect HOST:PORT] [--tls FOLDER] [--hold SECONDS] NAME

The stubs are generated from proto/geolock/v1/geolock.proto into a temporary folder.
"""

import argparse
import contextlib
import importlib
import pathlib
import queue
import sys
import tempfile
import threading

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


class Refused(Exception):
    """The server said no; `error.reason` says why."""

    def __init__(self, error):
        super().__init__(f"{pb.Reason.Name(error.reason)}: {error.message}")
        self.error = error


class Session:
    """One stream. Calls may be made from any thread; each waits for the answer with its own tag."""

    def __init__(self, channel, name):
        self.outgoing = queue.SimpleQueue()
        self.waiting = {}
        self.lock = threading.Lock()
        self.last_tag = 0
        self.answers = services.LocksStub(channel).Session(iter(self.outgoing.get, None))
        threading.Thread(target=self.read, daemon=True).start()
        self.call(hello=pb.Hello(revision=1, client=name))

    def read(self):
        end = None
        try:
            for answer in self.answers:
                if answer.tag:
                    self.waiting.pop(answer.tag).put(answer)
                else:
                    print("the server says:", answer.WhichOneof("answer"), file=sys.stderr)
        except grpc.RpcError as error:
            end = error
        for waiting in self.waiting.values():
            waiting.put(end)

    def call(self, timeout=None, **call):
        answer = queue.SimpleQueue()
        with self.lock:
            self.last_tag += 1
            tag = self.last_tag
        self.waiting[tag] = answer
        self.outgoing.put(pb.ClientMessage(tag=tag, **call))
        answer = answer.get(timeout=timeout)
        if not isinstance(answer, pb.ServerMessage):
            raise answer or ConnectionError("the server closed the stream")
        if answer.WhichOneof("answer") == "error":
            raise Refused(answer.error)
        return getattr(answer, answer.WhichOneof("answer"))

    def close(self):
        self.outgoing.put(None)


def keep_alive(session, lease, stop, lost):
    """Renews every third of the time to live. Sets `lost` when the lease is gone, or could soon be."""
    third = lease.ttl_ms / 3000
    while not stop.wait(third):
        try:
            session.call(timeout=third, keep_alive=pb.KeepAliveRequest(lease=lease.lease))
        except (Refused, grpc.RpcError, ConnectionError, queue.Empty):
            lost.set()
            return


@contextlib.contextmanager
def leased(options):
    """A session, its lease, and an event that is set when the lease is gone, or could soon be. Closes both in the end;
    after an error the lease is left to its time to live."""
    ca, cert, key = ((options.tls / file).read_bytes() for file in ("ca.pem", "cert.pem", "key.pem"))
    credentials = grpc.ssl_channel_credentials(ca, key, cert)
    with grpc.secure_channel(options.connect, credentials) as channel:
        session = Session(channel, "python example")
        lease = session.call(open_lease=pb.OpenLeaseRequest(ttl_ms=10_000))
        stop, lost = threading.Event(), threading.Event()
        threading.Thread(target=keep_alive, args=(session, lease, stop, lost), daemon=True).start()
        yield session, lease, lost
        stop.set()
        session.call(close_lease=pb.CloseLeaseRequest(lease=lease.lease))
        session.close()


def arguments(description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--connect", default="127.0.0.1:7400")
    parser.add_argument("--tls", type=pathlib.Path, required=True, help="folder with ca.pem, cert.pem, key.pem")
    return parser


def main():
    parser = arguments(__doc__)
    parser.add_argument("--hold", type=float, default=1.0, help="seconds")
    parser.add_argument("name")
    options = parser.parse_args()

    with leased(options) as (session, lease, lost):
        wanted = pb.LockMode(name=options.name.encode(), mode=pb.MODE_EXCLUSIVE)
        acquire = pb.AcquireRequest(lease=lease.lease, locks=[wanted], wait_ms=20_000, key=1, label="python")
        granted = session.call(acquire=acquire)
        print(f"holding {options.name} with fencing token {granted.token}", flush=True)
        if lost.wait(options.hold):
            sys.exit("the lease was lost: stop working")
        session.call(release=pb.ReleaseRequest(lease=lease.lease, key=1))
        print("released")


if __name__ == "__main__":
    main()
