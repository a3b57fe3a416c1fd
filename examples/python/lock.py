"""Takes a lock, shows its fencing token, holds it for a while, releases it: with nothing but the .proto.

    python lock.py [--connect HOST:PORT,..] --tls FOLDER [--ttl SECONDS] [--wait SECONDS] [--hold SECONDS] [--home DC] NAME

Continues over broken connections and restarts of the server. Exit codes: 0, or 74: the lock was lost while it was held,
75: not granted in time, 69: no server answers, or the lease ended before the lock was granted, 64: there are no
certificates in the folder, 1: refused. The resource that the lock protects should refuse tokens below the highest it
has seen.
"""

import argparse
import contextlib
import pathlib
import sys

import grpc

from geolock_client import Lease, Lost, Over, Refused, Unreachable, pb


@contextlib.contextmanager
def leased(options):
    """Opens a lease, and closes it at the end."""
    try:
        ca, cert, key = ((options.tls / file).read_bytes() for file in ("ca.pem", "cert.pem", "key.pem"))
    except OSError as error:
        sys.stderr.write(f"no certificates of a client in {options.tls}: {error}\n")
        sys.exit(64)
    credentials = grpc.ssl_channel_credentials(ca, key, cert)
    lease = Lease(options.connect.split(","), credentials, options.ttl, "python example")
    try:
        yield lease
    finally:
        lease.close()


def arguments(description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--connect", default="127.0.0.1:7400", help="endpoints of one datacenter")
    parser.add_argument("--tls", type=pathlib.Path, required=True, help="folder with ca.pem, cert.pem, key.pem")
    parser.add_argument("--ttl", type=float, default=10.0, help="how long the lease lives unrenewed, in seconds")
    return parser


def run(main):
    """Runs `main`, and exits with the codes of `geolock lock`."""
    try:
        main()
    except Lost as lost:
        sys.stderr.write(f"lost, stop working: {lost}\n")
        sys.exit(74)
    except (Over, Unreachable) as error:
        sys.stderr.write(f"no server answers, or none that knows the lease: {error}\n")
        sys.exit(69)
    except Refused as refused:
        sys.stderr.write(f"{refused}\n")
        sys.exit(75 if refused.error.reason == pb.REASON_TIMED_OUT else 1)


def main():
    parser = arguments(__doc__)
    parser.add_argument("--wait", type=float, default=20.0, help="for the lock, in seconds")
    parser.add_argument("--hold", type=float, default=1.0, help="seconds")
    parser.add_argument("--home", type=int, help="number of the lock's home datacenter (default: it has none)")
    parser.add_argument("name")
    options = parser.parse_args()

    with leased(options) as lease:
        held = lease.acquire(options.name, wait=options.wait, label="python", home=options.home)
        print(f"holding {options.name} with fencing token {held.token}", flush=True)
        # Real work checks `lost` between its steps, or another thread waits for `lost` and stops the work.
        if held.lost.wait(options.hold):
            raise Lost(held.why)
        held.release()
        print("released")


if __name__ == "__main__":
    run(main)
