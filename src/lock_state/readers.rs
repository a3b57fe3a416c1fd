//! The ownership map and the request table, read some rows at a time: for a checkpoint, and for a member that is far behind.
//!
//! A reader sees both as they were when it was opened. A row that changes, or leaves, before the reader has come to it is copied for
//! the reader first (copy on write); a row that came later is skipped.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::locks::Locks;
use super::request::RequestRow;
use crate::causal_log::Wants;
use crate::crdt::{OwnedRows, ReaderId, VersionVector};
use crate::names::RequestId;

/// What comes next.
pub(crate) enum Piece {
    /// Who owns the parts of some locks.
    Owned(OwnedRows),
    /// Some rows of the request table, by id, and how many were looked at for them.
    Requests {
        rows: Vec<RequestRow>,
        looked_at: usize,
    },
    End,
}

/// What a reader has still to read of the request table: the rows after `last`.
pub(super) struct Reader {
    id: ReaderId,
    owned: bool,
    last: Bound<RequestId>,
    /// What was applied when the reader was opened: rows of later entries are not for it.
    at: VersionVector,
    /// Rows that have left the table since, as they were. So there are never more of them than the table had then.
    before: BTreeMap<RequestId, RequestRow>,
}

impl Reader {
    fn is_later(&self, row: &RequestRow) -> bool {
        row.seq > self.at.get(row.id.dc)
    }
}

impl Locks {
    /// From here on [`Locks::read`] reads who owns what and who asks, as it is now, until [`Locks::close_reader`].
    /// `applied`: the entries that made up all of it.
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

    /// How many are open.
    pub fn readers(&self) -> usize {
        assert!(self.ownership.readers() == self.readers.len(), "they read both");
        self.readers.len()
    }

    /// Another map replaces the one that they read.
    pub(super) fn close_readers(&mut self) {
        self.readers.clear();
    }

    /// The next `most` rows, or as many as there are.
    ///
    /// # Panics
    /// When it was closed.
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

    /// A row of the request table.
    fn row_of_table(&self, id: RequestId) -> Option<RequestRow> {
        let Some((request, seq)) = self.published.get(&id) else { return self.orphans.get(&id).cloned() };
        let wants = self.wants(*request).map(|(name, mode)| (name.clone(), mode)).collect();
        // A published request keeps the time it was published with.
        Some(RequestRow { id, at: self.get(*request).at, wants: Wants::All(wants), seq: *seq })
    }

    /// The request table, by id.
    pub fn request_table(&self) -> Vec<RequestRow> {
        let ids = self.published.keys().chain(self.orphans.keys());
        let mut rows: Vec<RequestRow> = ids.filter_map(|id| self.row_of_table(*id)).collect();
        rows.sort_unstable_by_key(|row| row.id);
        rows
    }

    /// How many rows the request table has.
    pub fn asked(&self) -> usize {
        self.published.len() + self.orphans.len()
    }

    /// This row of the request table, if it is there, is about to go or to change.
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

    /// Each asks for a lock of its own if it does not yet, else it asks no longer. Entries are numbered after `seq`, which rises.
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
        /// Own requests that nobody waits for, and those of others.
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
