//! Commits under locks: of transactions with locks of their own, and under requests that their clients hold.

use std::fmt;

use crate::causal_log::Wants;
use crate::crdt::VersionVector;
use crate::crdt::value::Dot;
use crate::sim::failure::FailureKind;
use crate::sim::oracle::Broken;
use crate::sim::oracle::promises::Promises;
use crate::sim::oracle::transactions::{Intent, Transactions, TxnKey, broken};
use geolock_api::names::{LockName, Mode, RequestId};

/// A commit under a lock.
#[derive(Debug)]
pub(super) struct Locked {
    pub dot: Dot,
    pub mode: Mode,
    pub txn: TxnKey,
    /// The request that held the lock, if it was not the transaction itself.
    guard: Option<RequestId>,
}

/// A held request, and a transaction is to run under it.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    pub request: RequestId,
    pub wants: Wants,
}

impl Transactions {
    /// Returns the requests under which a transaction is to run.
    pub fn guards_of(&self, txn: TxnKey) -> impl Iterator<Item = RequestId> {
        self.intents.get(&txn).into_iter().flat_map(|intent| &intent.under).map(|guard| guard.request)
    }

    /// A commit was made: later holders of its locks must see it.
    pub(super) fn note_locked(&mut self, dot: Dot, txn: TxnKey, intent: &Intent) {
        for (guard, wants) in holds(intent) {
            for (lock, mode) in wants.locks() {
                let locked = Locked { dot, mode: *mode, txn, guard };
                self.locks.entry(lock.clone()).or_default().push(locked);
            }
        }
    }

    /// Checks the snapshot of a commit.
    pub(super) fn check_serial_commit(
        &self,
        txn: TxnKey,
        seen: &VersionVector,
        intent: &Intent,
    ) -> Result<(), Broken> {
        holds(intent).try_for_each(|(guard, wants)| {
            self.check_serial_beside(&format_args!("{txn:?}"), seen, wants.locks(), guard)
        })
    }

    /// Checks that the snapshot of a holder of these locks has everything that was committed under them.
    pub fn check_serial(
        &self,
        holder: &dyn fmt::Display,
        snapshot: &VersionVector,
        wants: &[(LockName, Mode)],
    ) -> Result<(), Broken> {
        self.check_serial_beside(holder, snapshot, wants, None)
    }

    /// The same, apart from other commits under the same guard: its transactions need not see each other.
    fn check_serial_beside(
        &self,
        holder: &dyn fmt::Display,
        snapshot: &VersionVector,
        wants: &[(LockName, Mode)],
        guard: Option<RequestId>,
    ) -> Result<(), Broken> {
        for (lock, mode) in wants {
            let before = self.locks.get(lock).map_or(&[][..], Vec::as_slice);
            let missed = |other: &&Locked| {
                let is_same = guard.is_some() && other.guard == guard;
                !is_same && other.mode.conflicts_with(*mode) && snapshot.get(other.dot.dc) < other.dot.seq
            };
            if let Some(other) = before.iter().find(missed) {
                let what = format!(
                    "{holder} holds {lock} {mode} with snapshot {snapshot}, which lacks {:?} of {:?}",
                    other.dot, other.txn
                );
                return broken(FailureKind::NotSerialised, what);
            }
        }
        Ok(())
    }
}

impl Promises {
    /// Returns true if a request is held, as far as the server can know.
    pub fn holds(&self, request: RequestId) -> bool {
        self.held.contains(request)
    }
}

/// Returns the locks that a transaction holds, and those of its guards.
fn holds(intent: &Intent) -> impl Iterator<Item = (Option<RequestId>, &Wants)> {
    let guards = intent.under.iter().map(|guard| (Some(guard.request), &guard.wants));
    intent.wants.iter().map(|wants| (None, wants)).chain(guards)
}
