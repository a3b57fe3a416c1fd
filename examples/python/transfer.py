"""Moves an amount from one account to another, in a transaction under a lock: with nothing but the .proto.

    python transfer.py [--connect HOST:PORT] --tls FOLDER FROM TO AMOUNT

Accounts are counters; an account that does not exist has 0, and may go down to -100.
"""

from geolock_client import pb
from lock import arguments, leased, run


def account(name):
    return pb.Key(bucket=b"accounts", name=name.encode())


def add(name, amount):
    return pb.Change(key=account(name), update=pb.Update(counter=amount))


def transfer(lease, source, target, amount):
    """Returns the new balances of the two accounts, and the commit; None if the source has too little.

    If the answer to a step is lost, `call` repeats the same step on another stream, with the lease attached to it. The
    server then continues the transaction, or says whether it was committed.
    """
    key = lease.key()
    lock = pb.LockMode(name=b"accounts", mode=pb.MODE_EXCLUSIVE)
    opened = lease.call(begin=pb.BeginRequest(
        lease=lease.id,
        idempotency_key=key,
        locks=pb.BeginLocks(locks=[lock], wait_ms=20_000, label="python"),
        # All earlier transactions were answered: the server may discard their outcomes.
        acknowledged_through=key - 1,
        step=pb.Step(reads=[account(source)], then=pb.THEN_CONTINUE),
    ))
    enough = opened.values[0].counter - amount >= -100
    done = lease.call(step=pb.StepRequest(
        lease=lease.id,
        idempotency_key=key,
        applied_changes=0,
        step=pb.Step(
            changes=[add(source, -amount), add(target, amount)] if enough else [],
            reads=[account(source), account(target)],
            then=pb.THEN_COMMIT if enough else pb.THEN_ABORT,
        ),
    ))
    if done.state != pb.TRANSACTION_STATE_COMMITTED:
        return None
    return [value.counter for value in done.values], done.commit


def main():
    parser = arguments(__doc__)
    parser.add_argument("source", metavar="FROM")
    parser.add_argument("target", metavar="TO")
    parser.add_argument("amount", type=int)
    options = parser.parse_args()

    with leased(options) as lease:
        moved = transfer(lease, options.source, options.target, options.amount)
        if moved is None:
            print(f"{options.source} has too little: nothing was done")
        else:
            (left, has), commit = moved
            print(f"{options.source} has {left}, {options.target} has {has}, in every snapshot from {list(commit.seqs)} on")


if __name__ == "__main__":
    run(main)
