//! Compaction: drops everything that only commits could need that have not seen the stable vector, some of it
//! in each step (`docs/algorithm/log.md#31-stability`).

use super::{RecordIndex, Store};
use crate::base::tables::RowIndex as _;
use crate::crdt::VersionVector;
use crate::crdt::value::Dot;

impl Store {
    /// Sets the stable vector: every commit that is applied here from now on has seen `stable`.
    pub fn note_stable(&mut self, stable: &VersionVector) {
        if self.stable != *stable {
            debug_assert!(stable.covers(&self.stable), "what is stable stays stable");
            self.stable = stable.clone();
            self.stables += 1;
            self.to_compact = self.uncompacted.len();
        }
    }

    /// Compacts at most `most` keys and tombstones. Returns true if there are more.
    #[inline]
    pub fn compact(&mut self, most: usize) -> bool {
        (self.to_compact > 0 || self.restored.is_some()) && compact_some(self, most)
    }
}

fn compact_some(store: &mut Store, most: usize) -> bool {
    let mut tombstones = most;
    for _ in 0..most.min(store.to_compact) {
        let first = store.uncompacted.front().copied();
        match first.filter(|(dot, _)| dot.seq <= store.stable.get(dot.dc)) {
            Some((dot, row)) => {
                if compact_one(store, dot, row, &mut tombstones) {
                    store.uncompacted.pop_front();
                    store.to_compact -= 1;
                }
            }
            None => store.to_compact = 0,
        }
        if store.to_compact == 0 || tombstones == 0 {
            break;
        }
    }
    debug_assert!(store.to_compact <= store.uncompacted.len(), "a round examines each tombstone once");
    compact_restored(store, most);
    store.to_compact > 0
}

/// Compacts the key of a change. Returns true if it is done or deferred; false if the budget of
/// tombstones is used up or the vector advanced meanwhile.
fn compact_one(store: &mut Store, dot: Dot, row: RecordIndex, tombstones: &mut usize) -> bool {
    let record = &mut store.records[row];
    if record.has_effects() {
        // These effects were applied before the vector became stable, and may have seen less.
        store.some_waited = true;
        store.uncompacted.push_back((dot, row));
        return true;
    }
    // Once for all changes of a key that are stable together, because compaction walks all tombstones of
    // the value.
    if record.compacted_at != store.stables {
        let (at, after) = match record.compacting.take() {
            Some(begun) => (begun.0, Some(begun.1)),
            None => (store.stables, None),
        };
        if let Some(last) = record.content.compact_some(&store.stable, after, tombstones) {
            record.compacting = Some(Box::new((at, last)));
            return false;
        }
        if at != store.stables {
            // More has become stable meanwhile, also for the elements that were compacted first.
            return false;
        }
        record.compacted_at = store.stables;
        #[cfg(test)]
        {
            store.compacted += 1;
        }
    }
    assert!(record.uncompacted > 0, "a tombstone of {} waits to be compacted once", record.key);
    record.uncompacted -= 1;
    store.forget_if_over(row);
    true
}

fn compact_restored(store: &mut Store, most: usize) {
    let Some((applied, next)) = store.restored.take_if(|(applied, _)| store.stable.covers(applied)) else {
        return;
    };
    let end = (next + most).min(store.records.end());
    for row in (next..end).map(RecordIndex::from_row) {
        let Some(record) = store.records.get_mut(row) else { continue };
        if record.has_effects() {
            // Deferred. The dot that stands for it is always stable.
            record.uncompacted += 1;
            store.some_waited = true;
            store.uncompacted.push_back((Dot { dc: store.me, seq: 0 }, row));
        } else {
            record.content.compact(&store.stable);
            store.forget_if_over(row);
        }
    }
    if end < store.records.end() {
        store.restored = Some((applied, end));
    }
}
