//! Who waits for a snapshot that is not durable here yet.

use std::collections::BTreeMap;

use slab::Slab;

use super::TxnId;
use crate::crdt::VersionVector;
use crate::deadlines::Deadlines;
use crate::names::DcId;
use crate::replica::call::CallId;
use crate::replica::store_call::{Look, reads_weight};
use crate::time::Instant;

/// Somebody who waits.
#[derive(Debug)]
pub(super) enum Waiter {
    Txn(TxnId),
    Look(CallId, Look),
}

/// Waiters by the first entry that they lack: looked at only when it has come.
#[derive(Debug, Default)]
pub(super) struct SnapshotWaits {
    rows: Slab<(Waiter, Instant, (DcId, u64))>,
    by_entry: BTreeMap<(DcId, u64), Vec<usize>>,
    deadlines: Deadlines<usize>,
    bytes: usize,
}

impl Waiter {
    /// About how many bytes it keeps. Transactions are counted where they are.
    fn bytes(&self) -> usize {
        match self {
            Waiter::Txn(_) => 0,
            Waiter::Look(_, look) => reads_weight(&look.reads),
        }
    }
}

impl SnapshotWaits {
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// About how many bytes are kept for all of them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline]
    pub fn next_deadline(&self) -> Instant {
        self.deadlines.next_or_never()
    }

    pub fn insert(&mut self, waiter: Waiter, entry: (DcId, u64), until: Instant) {
        self.bytes += waiter.bytes();
        let row = self.rows.insert((waiter, until, entry));
        self.by_entry.entry(entry).or_default().push(row);
        self.deadlines.insert(until, row);
    }

    /// Somebody whose entry has come, with its deadline.
    pub fn next_ready(&mut self, durable: &VersionVector) -> Option<(Waiter, Instant)> {
        let came = |(dc, seq): &(DcId, u64)| durable.get(*dc) >= *seq;
        // One look per datacenter: at the smallest entry waited for of each.
        let mut from = self.by_entry.first_key_value().map(|(entry, _)| *entry);
        while let Some(entry) = from {
            if came(&entry) {
                let row = *self.by_entry.get(&entry).and_then(|rows| rows.last()).expect("no list is empty");
                return Some(self.remove(row));
            }
            let next = (std::ops::Bound::Excluded((entry.0, u64::MAX)), std::ops::Bound::Unbounded);
            from = self.by_entry.range(next).next().map(|(entry, _)| *entry);
        }
        None
    }

    /// Somebody whose time is over.
    pub fn next_expired(&mut self, now: Instant) -> Option<Waiter> {
        let row = self.deadlines.pop_expired(now)?;
        // It is removed once more below, which changes nothing.
        Some(self.remove(row).0)
    }

    fn remove(&mut self, row: usize) -> (Waiter, Instant) {
        let (waiter, until, entry) = self.rows.remove(row);
        self.bytes -= waiter.bytes();
        self.deadlines.remove(until, row);
        let rows = self.by_entry.get_mut(&entry).expect("every waiter is listed");
        rows.retain(|other| *other != row);
        if rows.is_empty() {
            self.by_entry.remove(&entry);
        }
        (waiter, until)
    }
}

/// The first entry that `wanted` has and `durable` lacks.
pub(super) fn first_missing(wanted: &VersionVector, durable: &VersionVector) -> Option<(DcId, u64)> {
    wanted.iter().find(|(dc, seq)| durable.get(*dc) < *seq)
}
