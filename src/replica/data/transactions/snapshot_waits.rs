//! Transactions and reads that wait for a snapshot that is not durable here yet.

use std::collections::{BTreeMap, BTreeSet};

use super::TxnId;
use crate::base::deadlines::Deadlines;
use crate::base::tables::{Rows, row_index};
use crate::base::time::Instant;
use crate::crdt::VersionVector;
use crate::replica::call::CallId;
use crate::replica::call::store::{Read, reads_weight};
use geolock_api::names::DcId;

/// A transaction or a read that waits.
#[derive(Debug)]
pub(super) enum Waiter {
    Txn(TxnId),
    Read(CallId, Read),
}

/// Index of a waiter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct WaiterIndex(u32);

row_index!(WaiterIndex);

/// Waiters by the first entry that they lack: examined only when that entry is durable.
#[derive(Debug, Default)]
pub(super) struct SnapshotWaits {
    rows: Rows<(Waiter, Instant, (DcId, u64)), WaiterIndex>,
    by_entry: BTreeSet<(DcId, u64, WaiterIndex)>,
    by_txn: BTreeMap<TxnId, WaiterIndex>,
    deadlines: Deadlines<WaiterIndex>,
    bytes: usize,
}

impl Waiter {
    /// Returns the approximate number of bytes that it keeps. Transactions are counted elsewhere.
    fn bytes(&self) -> usize {
        match self {
            Waiter::Txn(_) => 0,
            Waiter::Read(_, read) => reads_weight(&read.reads),
        }
    }
}

impl SnapshotWaits {
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the approximate number of bytes kept for all of them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline]
    pub fn next_deadline(&self) -> Instant {
        self.deadlines.next_or_never()
    }

    /// Returns true if this transaction waits.
    pub fn knows(&self, id: &TxnId) -> bool {
        self.by_txn.contains_key(id)
    }

    /// Asserts that each waiter is found by its entry and by its deadline.
    pub fn check(&self) {
        let count = self.rows.len();
        assert_eq!(self.by_entry.len(), count, "every waiter lacks one entry");
        assert_eq!(self.deadlines.len(), count, "every wait has one end");
        let bytes: usize = self.rows.iter().map(|(_, (waiter, ..))| waiter.bytes()).sum();
        assert_eq!(self.bytes, bytes, "the bytes of all waiters");
        for (id, row) in &self.by_txn {
            let waiter = &self.rows[*row].0;
            assert!(matches!(waiter, Waiter::Txn(other) if other == id), "{id:?} is found as {waiter:?}");
        }
        let txns = self.rows.iter().filter(|(_, (waiter, ..))| matches!(waiter, Waiter::Txn(_)));
        assert_eq!(self.by_txn.len(), txns.count(), "every transaction that waits is found by its id");
    }

    pub fn insert(&mut self, waiter: Waiter, entry: (DcId, u64), until: Instant) {
        self.bytes += waiter.bytes();
        let txn = if let Waiter::Txn(id) = waiter { Some(id) } else { None };
        txn.into_iter().for_each(|id| self.forget_txn(id));
        let row = self.rows.insert((waiter, until, entry));
        self.by_entry.insert((entry.0, entry.1, row));
        self.deadlines.insert(until, row);
        self.by_txn.extend(txn.map(|id| (id, row)));
    }

    /// A transaction ended: removes its wait, if there is one.
    pub fn forget_txn(&mut self, id: TxnId) {
        if let Some(row) = self.by_txn.get(&id) {
            self.remove(*row);
        }
    }

    /// Returns true if one waits for this entry.
    pub fn is_awaited(&self, (dc, seq): (DcId, u64)) -> bool {
        let waiters = (dc, seq, WaiterIndex(0))..=(dc, seq, WaiterIndex(u32::MAX));
        self.by_entry.range(waiters).next().is_some()
    }

    /// Removes and returns a waiter whose entry is durable, with its deadline.
    pub fn next_ready(&mut self, durable: &VersionVector) -> Option<(Waiter, Instant)> {
        let came = |(dc, seq): &(DcId, u64)| durable.get(*dc) >= *seq;
        // One look-up per datacenter, at the smallest awaited entry of each.
        let mut from = self.by_entry.first().copied();
        while let Some((dc, seq, row)) = from {
            if came(&(dc, seq)) {
                return Some(self.remove(row));
            }
            let last = (dc, u64::MAX, WaiterIndex(u32::MAX));
            let next = (std::ops::Bound::Excluded(last), std::ops::Bound::Unbounded);
            from = self.by_entry.range(next).next().copied();
        }
        None
    }

    /// Removes and returns a waiter whose time is over.
    pub fn next_expired(&mut self, now: Instant) -> Option<Waiter> {
        let row = self.deadlines.pop_expired(now)?;
        // Its deadline is removed once more below, which changes nothing.
        Some(self.remove(row).0)
    }

    fn remove(&mut self, row: WaiterIndex) -> (Waiter, Instant) {
        let (waiter, until, (dc, seq)) = self.rows.remove(row);
        self.bytes -= waiter.bytes();
        self.deadlines.remove(until, row);
        let was_found = self.by_entry.remove(&(dc, seq, row));
        assert!(was_found, "{waiter:?} is found by the entry {dc}:{seq} that it waits for");
        if let Waiter::Txn(id) = &waiter {
            let found = self.by_txn.remove(id);
            assert_eq!(found, Some(row), "{id:?} is found by its id while it waits");
        }
        (waiter, until)
    }
}

/// Returns the first entry that `wanted` has and `durable` lacks.
pub(super) fn first_missing(wanted: &VersionVector, durable: &VersionVector) -> Option<(DcId, u64)> {
    wanted.iter().find(|(dc, seq)| durable.get(*dc) < *seq)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use geolock_api::names::LeaseId;

    #[test]
    fn a_transaction_that_is_over_waits_for_nothing() {
        let (dc, until) = (DcId::new(1).expect("a small id"), Instant::ZERO + Duration::from_secs(1));
        let txn = |key| TxnId { lease: LeaseId::new(dc, 1), key };
        let mut waits = SnapshotWaits::default();
        (0..3).for_each(|key| waits.insert(Waiter::Txn(txn(key)), (dc, 7), until));
        waits.forget_txn(txn(1));
        waits.forget_txn(txn(9));
        assert_eq!(waits.len(), 2);
        // The same transaction may wait again.
        waits.insert(Waiter::Txn(txn(1)), (dc, 8), until);
        let durable = VersionVector::from_iter([(dc, 7)]);
        let ready: Vec<_> = std::iter::from_fn(|| waits.next_ready(&durable)).collect();
        assert_eq!(ready.len(), 2);
        assert!(matches!(waits.next_expired(until), Some(Waiter::Txn(id)) if id == txn(1)));
        assert_eq!((waits.len(), waits.next_deadline()), (0, Instant::FAR_FUTURE));
    }
}
