//! The entries from which watches can resume: the last ones that change keys or move parts, followed or not.

use std::collections::VecDeque;
use std::sync::Arc;

use crdts::CvRDT;
use serde::{Deserialize, Serialize};

use crate::causal_log::{Entry, Op};
use crate::crdt::VersionVector;

/// Bound of the weight of remembered entries. Far below the bytes that a session may have outstanding, so a
/// watch that catches up is not taken for one that does not read.
pub(super) const HISTORY_BYTES: usize = 4 << 20;
/// Approximate bound of their memory: many small entries take several times their weight, and stay after the
/// activity that made them.
const HISTORY_MEMORY: usize = 8 << 20;

/// Durable entries with changes for watches, in the order of application.
#[derive(Default)]
pub(in crate::replica) struct History {
    entries: VecDeque<Arc<Entry>>,
    weight: usize,
    memory: usize,
    /// The entries that are no longer remembered.
    forgotten: VersionVector,
    /// The total weight of all entries ever remembered.
    passed: u64,
}

/// The part of the history that a checkpoint keeps beside the log. Disk type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    /// Watches cannot resume before this vector.
    pub forgotten: VersionVector,
    /// Later entries that are truncated from the log, in the order of application. They precede the log.
    pub entries: Vec<Arc<Entry>>,
}

impl Past {
    /// Returns all entries from which watches can resume, in the order of application; `log` follows after
    /// these.
    pub fn and<'a>(&'a self, log: &'a [Arc<Entry>]) -> impl Iterator<Item = &'a Arc<Entry>> {
        let told = |entry: &&Arc<Entry>| is_news(entry) && entry.seq > self.forgotten.get(entry.dc);
        self.entries.iter().chain(log).filter(told)
    }
}

/// Returns true if an entry can concern a watch.
fn is_news(entry: &Entry) -> bool {
    entry.ops.iter().any(|op| matches!(op, Op::Commit(_) | Op::Transfer { .. }))
}

impl History {
    pub fn forgotten(&self) -> &VersionVector {
        &self.forgotten
    }

    pub fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries.iter()
    }

    /// Grows with every entry, by its weight.
    pub fn passed(&self) -> u64 {
        self.passed
    }

    /// An entry became durable: remembers it if it can concern a watch.
    pub fn remember(&mut self, entry: &Arc<Entry>) {
        // After a state was installed, older entries of the log can become durable.
        if !is_news(entry) || entry.seq <= self.forgotten.get(entry.dc) {
            return;
        }
        let weight = entry.weight();
        self.weight += weight;
        self.memory += entry.memory();
        self.passed += weight as u64;
        self.entries.push_back(entry.clone());
        while self.weight > HISTORY_BYTES || self.memory > HISTORY_MEMORY {
            let oldest = self.entries.pop_front().expect("what weighs is there");
            self.weight -= oldest.weight();
            self.memory -= oldest.memory();
            self.forgotten.raise(oldest.dc, oldest.seq);
        }
        debug_assert!(self.weight > 0 || self.entries.is_empty(), "remembered entries have a weight");
    }

    /// Asserts that all remembered entries are counted, and are later than the forgotten ones.
    pub fn check(&self) {
        let weight: usize = self.entries.iter().map(|entry| entry.weight()).sum();
        let memory: usize = self.entries.iter().map(|entry| entry.memory()).sum();
        assert_eq!((self.weight, self.memory), (weight, memory), "the bytes of the remembered entries");
        assert!(weight <= HISTORY_BYTES, "{weight} bytes are remembered");
        let mut last = self.forgotten.clone();
        for entry in &self.entries {
            let (dc, seq, before) = (entry.dc, entry.seq, last.get(entry.dc));
            assert!(seq > before, "{dc}:{seq} is remembered after {before}");
            last.raise(dc, seq);
        }
    }

    /// Returns the part that a checkpoint needs beside the log. `truncated`: the entries that are not in the
    /// log.
    pub fn past(&self, truncated: &VersionVector) -> Past {
        let gone = |entry: &&Arc<Entry>| entry.seq <= truncated.get(entry.dc);
        Past {
            forgotten: self.forgotten.clone(),
            entries: self.entries.iter().filter(gone).cloned().collect(),
        }
    }

    /// A state of another datacenter was installed: the entries that led to it are not known here.
    pub fn forget_up_to(&mut self, applied: &VersionVector) {
        self.entries.clear();
        (self.weight, self.memory) = (0, 0);
        self.forgotten.merge(applied.clone());
    }

    /// Restores the history from a checkpoint: the result of [`History::past`], and the log after it.
    pub fn restore(&mut self, past: Past, log: &[Arc<Entry>]) {
        self.forgotten.merge(past.forgotten);
        past.entries.iter().chain(log).for_each(|entry| self.remember(entry));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::Timestamp;
    use crate::causal_log::LockParts;
    use geolock_api::names::{ClusterId, DcId, LockName};

    #[test]
    fn many_small_moves_take_no_more_memory_than_a_few_large_ones() {
        let mut history = History::default();
        let dc = DcId::new(0).expect("0 is an id");
        for seq in 1..=60_000_u64 {
            let lock = LockName::new(&seq.to_be_bytes()).expect("eight bytes");
            let ops = vec![Op::Transfer { to: dc, parts: vec![LockParts { lock, parts: vec![(dc, 1)] }] }];
            let (cluster, at) = (ClusterId::of("test"), Timestamp::from_millis(seq));
            let deps = VersionVector::default();
            let entry = Entry { cluster, epoch: 0, dc, seq, at, deps, ops, prev: 0, lead_ms: 0 };
            history.remember(&Arc::new(entry));
        }
        let memory: usize = history.entries().map(|entry| entry.memory()).sum();
        assert!(memory == history.memory && memory <= HISTORY_MEMORY, "{memory} bytes are kept");
        let weight: usize = history.entries().map(|entry| entry.weight()).sum();
        assert_eq!((weight, history.weight), (history.weight, weight));
        let kept = history.entries().count() as u64;
        assert_eq!(history.forgotten().get(dc), 60_000 - kept);
        assert!(kept > 10_000, "{kept} moves are kept");
    }
}
