//! The invariants of transactions.

use super::{Transactions, Txn};
use crate::base::time::Instant;
use crate::causal_log::{MAX_CHANGES, MAX_COMMIT_BYTES};
use crate::lock_state::Locks;

impl Transactions {
    /// Asserts them. Walks all transactions: for tests and the simulator.
    pub fn check(&self, locks: &Locks) {
        self.rows.check();
        self.waits.check();
        self.majority.check();
        self.outcomes.check();
        let mut open_ones = 0;
        for (id, txn) in self.rows.iter() {
            assert!(!self.dead.knows(id), "{id:?} lives and is dead");
            let request = match txn {
                Txn::Waiting(waiting) => {
                    let waits_for_locks = waiting.request.is_some() && waiting.token.is_none();
                    let waits_for_snapshot = self.waits.knows(id);
                    assert!(waits_for_locks != waits_for_snapshot, "{id:?} waits for one thing");
                    waiting.request
                }
                Txn::Open(open) => {
                    open_ones += 1;
                    assert!(!self.waits.knows(id), "{id:?} is open and waits for its snapshot");
                    assert!(open.changes.len() <= MAX_CHANGES, "{id:?} is committed in one entry");
                    assert!(open.bytes <= MAX_COMMIT_BYTES, "{id:?} has {} bytes", open.bytes);
                    let next = self.deadlines.next_or_never();
                    assert!(open.expires >= next, "{id:?} ends at {:?}, before {next:?}", open.expires);
                    assert!(open.expires < Instant::FAR_FUTURE, "{id:?} does not stay open for ever");
                    let is_held = |request| {
                        locks.requests().find(request).is_some_and(|row| locks.requests()[row].is_held())
                    };
                    assert!(open.request.is_none_or(is_held), "{id:?} is open and holds its locks");
                    open.request
                }
            };
            assert!(
                request.is_none_or(|request| locks.requests().find(request).is_some()),
                "{id:?} wants {request:?}"
            );
        }
        assert_eq!(self.deadlines.len(), open_ones, "each open transaction has one deadline");
    }

    /// Returns the number of transactions that want or hold locks.
    pub fn with_locks(&self) -> usize {
        let requests = self.rows.iter().filter_map(|(_, txn)| match txn {
            Txn::Waiting(waiting) => waiting.request,
            Txn::Open(open) => open.request,
        });
        requests.count()
    }
}
