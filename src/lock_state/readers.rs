//! The ownership map and the request table, read some rows at a time: for a checkpoint, and for a state
//! transfer.
//!
//! A reader sees both as they were when it was opened. A row that changes or leaves before the reader reaches
//! it is first copied for the reader (copy on write). A row that was inserted later is skipped.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::locks::Locks;
use super::request::RequestRow;
use crate::causal_log::Wants;
use crate::crdt::{OwnedRows, ReaderId, VersionVector};
use crate::names::RequestId;

/// The next part of the reading.
pub(crate) enum Piece {
    /// The owners of the parts of some locks.
    Owned(OwnedRows),
    /// Some rows of the request table, by id, and the number of rows examined for them.
    Requests {
        rows: Vec<RequestRow>,
        looked_at: usize,
    },
    End,
}

/// The progress of a reader: it still has to read the ownership map if `owned`, and the request rows after
/// `last`.
pub(super) struct Reader {
    id: ReaderId,
    owned: bool,
    last: Bound<RequestId>,
    /// The vector that was applied when the reader was opened: rows of later entries are not visible to it.
    at: VersionVector,
    /// Rows that have left the table since, as they were. So there are never more of them than the table had
    /// then.
    before: BTreeMap<RequestId, RequestRow>,
}

impl Reader {
    fn is_later(&self, row: &RequestRow) -> bool {
        row.seq > self.at.get(row.id.dc)
    }
}

impl Locks {
    /// Opens a reader of the ownership map and the request table as they are now; [`Locks::read`] reads from
    /// it until [`Locks::close_reader`]. `applied`: the vector of entries that both contain.
    pub fn open_reader(&mut self, applied: &VersionVector) -> ReaderId {
        assert!(self.is_in_log(), "what moves in a step is in the log before anybody reads it");
        let id = self.ownership.open_reader();
        self.readers.push(Reader {
            id,
            owned: true,
            last: Bound::Unbounded,
            at: applied.clone(),
            before: BTreeMap::new(),
        });
        id
    }

    pub fn close_reader(&mut self, reader: ReaderId) {
        self.ownership.close_reader(reader);
        self.readers.retain(|other| other.id != reader);
    }

    /// Returns the number of open readers.
    pub fn readers(&self) -> usize {
        assert!(self.ownership.readers() == self.readers.len(), "they read both");
        self.readers.len()
    }

    /// Closes all readers, because another map replaces the one that they read.
    pub(super) fn close_readers(&mut self) {
        self.readers.clear();
    }

    /// Returns the next `most` rows, or as many as there are.
    ///
    /// # Panics
    /// If the reader was closed.
    pub fn read(&mut self, reader: ReaderId, most: usize) -> Piece {
        let place = self.readers.iter().position(|other| other.id == reader).expect("a reader that is open");
        if self.readers[place].owned {
            let piece = self.ownership.read(reader, most);
            self.readers[place].owned = piece.len() == most;
            return Piece::Owned(piece);
        }
        let Reader { last, before, .. } = &self.readers[place];
        let after = (*last, Bound::Unbounded);
        let mut ids: Vec<RequestId> = self.published.range(after).map(|(id, _)| *id).take(most).collect();
        ids.extend(self.orphans.range(after).map(|(id, _)| *id).take(most));
        ids.extend(before.range(after).map(|(id, _)| *id).take(most));
        ids.sort_unstable();
        ids.dedup();
        ids.truncate(most);
        let Some(last) = ids.last() else { return Piece::End };
        self.readers[place].last = Bound::Excluded(*last);
        let (mut rows, looked_at) = (Vec::with_capacity(ids.len()), ids.len());
        for id in ids {
            let before = self.readers[place].before.remove(&id);
            let now = || self.row_of_table(id).filter(|row| !self.readers[place].is_later(row));
            rows.extend(before.or_else(now));
        }
        Piece::Requests { rows, looked_at }
    }

    /// Returns a row of the request table.
    fn row_of_table(&self, id: RequestId) -> Option<RequestRow> {
        let Some((request, seq)) = self.published.get(&id) else { return self.orphans.get(&id).cloned() };
        let wants = self.wants(*request).map(|(name, mode)| (name.clone(), mode)).collect();
        // A published request keeps the time it was published with.
        Some(RequestRow { id, at: self.get(*request).at, wants: Wants::All(wants), seq: *seq })
    }

    /// Returns the request table, by id.
    pub fn request_table(&self) -> Vec<RequestRow> {
        let ids = self.published.keys().chain(self.orphans.keys());
        let mut rows: Vec<RequestRow> = ids.filter_map(|id| self.row_of_table(*id)).collect();
        rows.sort_unstable_by_key(|row| row.id);
        rows
    }

    /// Returns the number of rows of the request table.
    pub fn asked(&self) -> usize {
        self.published.len() + self.orphans.len()
    }

    /// Copies this row of the request table for open readers. Called before the row changes or leaves.
    #[inline]
    pub(super) fn note_before(&mut self, id: RequestId) {
        if !self.readers.is_empty() {
            self.keep_before(id);
        }
    }

    #[cold]
    fn keep_before(&mut self, id: RequestId) {
        let Some(row) = self.row_of_table(id) else { return };
        for reader in &mut self.readers {
            let is_read = matches!(reader.last, Bound::Excluded(last) if id <= last);
            if !is_read && !reader.is_later(&row) {
                reader.before.entry(id).or_insert_with(|| row.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::super::Published;
    use super::*;
    use crate::names::{DcId, DcSet, LockName, Mode};
    use crate::time::{Instant, Timestamp};

    fn dc(id: u8) -> DcId {
        DcId::new(id).expect("a small id")
    }

    /// Publishes each request that is not in the table, and withdraws each that is. Each change has its own
    /// sequence number after `seq`, which increases.
    fn change(locks: &mut Locks, asking: &mut BTreeSet<RequestId>, seq: &mut u64, changes: &[(u8, u64)]) {
        for (of, n) in changes {
            *seq += 1;
            let seq = *seq;
            let id = RequestId { dc: dc(*of), n: *n };
            if asking.remove(&id) {
                locks.apply_withdraw(id, Instant::ZERO);
                continue;
            }
            asking.insert(id);
            let lock = LockName::new(&[*of, *n as u8]).expect("two bytes");
            let wants = Wants::All(vec![(lock, Mode::Exclusive)]);
            locks.apply_request(&Published { id, at: Timestamp::from_millis(seq), wants: &wants, seq });
        }
    }

    proptest! {
        /// Orphans of this datacenter, and requests of others.
        #[test]
        fn a_reader_finds_the_table_as_it_was(
            before in proptest::collection::vec((0_u8..3, 0_u64..4), 0..12),
            after in proptest::collection::vec((0_u8..3, 0_u64..4), 0..12),
            most in 1_usize..4,
        ) {
            let mut locks = Locks::new(dc(0), DcSet::from_iter([dc(0), dc(1), dc(2)]), Vec::new(), 0);
            let (mut asking, mut seq) = (BTreeSet::new(), 0);
            change(&mut locks, &mut asking, &mut seq, &before);
            let applied = (0..3).map(|id| (dc(id), seq)).collect();
            let (expected, reader) = (locks.request_table(), locks.open_reader(&applied));
            prop_assert_eq!(expected.len(), asking.len());
            let (mut read, mut after) = (Vec::new(), after.chunks(2));
            loop {
                match locks.read(reader, most) {
                    Piece::Owned(rows) => prop_assert!(rows.is_empty()),
                    Piece::Requests { rows, .. } => read.extend(rows),
                    Piece::End => break,
                }
                change(&mut locks, &mut asking, &mut seq, after.next().unwrap_or_default());
                let kept = locks.readers[0].before.len();
                prop_assert!(read.len() + kept <= expected.len(), "{} rows are kept, {} were there", kept, expected.len());
            }
            prop_assert_eq!(read, expected);
            locks.close_reader(reader);
            prop_assert_eq!(locks.readers(), 0);
        }
    }
}
