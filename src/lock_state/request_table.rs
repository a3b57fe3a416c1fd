//! The request table: all requests that are published and not withdrawn, as known here.
//!
//! It is part of checkpoints and state transfers, like the ownership map, and is read some rows at a time. A
//! reader sees both as they were when it was opened. A row that changes or leaves before the reader reaches
//! it is first copied for the reader (copy on write). A row that was inserted later is skipped.
//!
//! The rows of requests that wait here are made from the lock table and the rows of requests, which know
//! their names and their time; the callers pass a function that does that.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::request::{RequestIndex, RequestRow};
use super::tables::Tables;
use crate::base::time::Timestamp;
use crate::causal_log::Wants;
use crate::crdt::{OwnedRows, ReaderId, VersionVector};
use geolock_api::names::RequestId;

/// The published requests of all datacenters, by id.
#[derive(Default)]
pub(super) struct RequestTable {
    /// Each with the sequence number of the entry that published it. Own ones that no client waits for any
    /// more are in `abandoned` instead.
    published: BTreeMap<RequestId, (RequestIndex, u64)>,
    /// Own published requests that have ended here and are not withdrawn yet: they were published before a
    /// restart, or ended while no entry could be made. They are in no queue, block nothing and get nothing,
    /// until an entry withdraws them (`docs/algorithm/log.md#11-entries`).
    abandoned: BTreeMap<RequestId, RequestRow>,
    readers: Vec<Reader>,
}

/// The progress of a reader: it still has to read the ownership map if `owned`, and the request rows after
/// `last`.
struct Reader {
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

impl RequestTable {
    /// Adds a request that waits here, or in another datacenter.
    pub fn insert(&mut self, id: RequestId, request: RequestIndex, seq: u64) {
        let before = self.published.insert(id, (request, seq));
        assert!(before.is_none(), "request {id} is published once");
        debug_assert!(seq > 0, "an entry published request {id}");
    }

    /// Removes a request that waits here, or in another datacenter, after [`RequestTable::note_before`].
    pub fn remove(&mut self, id: RequestId) {
        self.published.remove(&id);
    }

    pub fn insert_abandoned(&mut self, row: RequestRow) {
        let id = row.id;
        debug_assert!(!self.published.contains_key(&id), "nobody waits for the abandoned request {id}");
        let before = self.abandoned.insert(id, row);
        assert!(before.is_none(), "request {id} is abandoned once");
    }

    /// Removes an abandoned request, if there is one with this id, after [`RequestTable::note_before`].
    pub fn remove_abandoned(&mut self, id: RequestId) {
        self.abandoned.remove(&id);
    }

    pub fn has_any_abandoned(&self) -> bool {
        !self.abandoned.is_empty()
    }

    /// Returns true if there is an abandoned request with this id.
    pub fn has_abandoned(&self, id: RequestId) -> bool {
        self.abandoned.contains_key(&id)
    }

    pub fn first_abandoned(&self) -> Option<RequestId> {
        self.abandoned.first_key_value().map(|(id, _)| *id)
    }

    /// Keeps some of the abandoned requests. There are no readers.
    pub fn retain_abandoned(&mut self, keep: impl Fn(&RequestRow) -> bool) {
        assert!(self.readers.is_empty(), "rows leave without copies");
        self.abandoned.retain(|_, row| keep(row));
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.published.len() + self.abandoned.len()
    }

    /// Returns each request that waits here or in another datacenter, with the entry that published it.
    pub fn published(&self) -> &BTreeMap<RequestId, (RequestIndex, u64)> {
        &self.published
    }

    /// Returns all rows, by id.
    pub fn rows(&self, as_published: impl Fn(RequestIndex) -> (Timestamp, Wants)) -> Vec<RequestRow> {
        let ids = self.published.keys().chain(self.abandoned.keys());
        let mut rows: Vec<RequestRow> = ids.filter_map(|id| self.row(*id, &as_published)).collect();
        rows.sort_unstable_by_key(|row| row.id);
        rows
    }

    fn row(
        &self,
        id: RequestId,
        as_published: impl Fn(RequestIndex) -> (Timestamp, Wants),
    ) -> Option<RequestRow> {
        let Some((request, seq)) = self.published.get(&id) else { return self.abandoned.get(&id).cloned() };
        let (at, wants) = as_published(*request);
        Some(RequestRow { id, at, wants, seq: *seq })
    }

    /// Copies a row for open readers. Called before the row changes or leaves.
    #[inline]
    pub fn note_before(&mut self, id: RequestId, as_published: impl Fn(RequestIndex) -> (Timestamp, Wants)) {
        if !self.readers.is_empty() {
            self.keep_before(id, as_published);
        }
    }

    #[cold]
    fn keep_before(&mut self, id: RequestId, as_published: impl Fn(RequestIndex) -> (Timestamp, Wants)) {
        let Some(row) = self.row(id, as_published) else { return };
        for reader in &mut self.readers {
            let is_read = matches!(reader.last, Bound::Excluded(last) if id <= last);
            if !is_read && !reader.is_later(&row) {
                reader.before.entry(id).or_insert_with(|| row.clone());
            }
        }
    }

    /// Returns the number of open readers.
    pub fn readers(&self) -> usize {
        self.readers.len()
    }

    /// Closes all readers, because another map replaces the one that they read.
    pub fn close_readers(&mut self) {
        self.readers.clear();
    }

    /// Returns the next `most` rows of a reader, or as many as there are.
    fn read(
        &mut self,
        place: usize,
        most: usize,
        as_published: impl Fn(RequestIndex) -> (Timestamp, Wants),
    ) -> Piece {
        let Reader { last, before, .. } = &self.readers[place];
        let after = (*last, Bound::Unbounded);
        let mut ids: Vec<RequestId> = self.published.range(after).map(|(id, _)| *id).take(most).collect();
        ids.extend(self.abandoned.range(after).map(|(id, _)| *id).take(most));
        ids.extend(before.range(after).map(|(id, _)| *id).take(most));
        ids.sort_unstable();
        ids.dedup();
        ids.truncate(most);
        let Some(last) = ids.last() else { return Piece::End };
        debug_assert!(
            !matches!(self.readers[place].last, Bound::Excluded(before) if before >= *last),
            "a reader goes forward"
        );
        self.readers[place].last = Bound::Excluded(*last);
        let (mut rows, looked_at) = (Vec::with_capacity(ids.len()), ids.len());
        for id in ids {
            let before = self.readers[place].before.remove(&id);
            let now = || self.row(id, &as_published).filter(|row| !self.readers[place].is_later(row));
            rows.extend(before.or_else(now));
        }
        debug_assert!(rows.is_sorted_by(|a, b| a.id < b.id), "a reader reads in order");
        Piece::Requests { rows, looked_at }
    }
}

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

/// Reads the ownership map and the request table, some rows at a time.
pub(crate) struct Reading<'a> {
    pub(super) tables: &'a mut Tables,
    /// The log contains all changes of both.
    pub(super) is_in_log: bool,
}

impl Reading<'_> {
    /// Opens a reader of both as they are now; [`Reading::read`] reads from it until [`Reading::close`].
    /// `applied`: the vector of entries that both contain.
    pub fn open(self, applied: &VersionVector) -> ReaderId {
        assert!(self.is_in_log, "what moves in a step is in the log before anybody reads it");
        let id = self.tables.owners.open_reader();
        debug_assert_eq!(
            self.tables.owners.map().table().readers(),
            self.tables.request_table.readers.len() + 1,
            "a reader reads owners and requests"
        );
        self.tables.request_table.readers.push(Reader {
            id,
            owned: true,
            last: Bound::Unbounded,
            at: applied.clone(),
            before: BTreeMap::new(),
        });
        id
    }

    pub fn close(self, reader: ReaderId) {
        self.tables.owners.close_reader(reader);
        self.tables.request_table.readers.retain(|other| other.id != reader);
    }

    /// Returns the next `most` rows, or as many as there are.
    ///
    /// # Panics
    /// If the reader was closed.
    pub fn read(self, reader: ReaderId, most: usize) -> Piece {
        let Tables { owners, locks, requests, request_table, enough, .. } = self.tables;
        let readers = &mut request_table.readers;
        let place = readers.iter().position(|other| other.id == reader).expect("a reader that is open");
        if readers[place].owned {
            let piece = owners.read(reader, most);
            readers[place].owned = piece.len() == most;
            return Piece::Owned(piece);
        }
        request_table.read(place, most, |request| requests[request].as_published(locks, enough.get(request)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::super::{Locks, Published};
    use super::*;
    use crate::base::time::{Instant, Timestamp};
    use geolock_api::names::{DcId, DcSet, LockName, Mode};

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
                locks.log_operations().apply_withdraw(id, Instant::ZERO);
                continue;
            }
            asking.insert(id);
            let lock = LockName::new(&[*of, *n as u8]).expect("two bytes");
            let wants = Wants::All(vec![(lock, Mode::Exclusive)]);
            locks.log_operations().apply_request(&Published {
                id,
                at: Timestamp::from_millis(seq),
                wants: &wants,
                seq,
            });
        }
    }

    proptest! {
        /// Abandoned requests of this datacenter, and requests of others.
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
            let (expected, reader) = (locks.inspect().request_table(), locks.reading().open(&applied));
            prop_assert_eq!(expected.len(), asking.len());
            let (mut read, mut after) = (Vec::new(), after.chunks(2));
            loop {
                match locks.reading().read(reader, most) {
                    Piece::Owned(rows) => prop_assert!(rows.is_empty()),
                    Piece::Requests { rows, .. } => read.extend(rows),
                    Piece::End => break,
                }
                change(&mut locks, &mut asking, &mut seq, after.next().unwrap_or_default());
                let kept = locks.tables.request_table.readers[0].before.len();
                prop_assert!(read.len() + kept <= expected.len(), "{} rows are kept, {} were there", kept, expected.len());
            }
            prop_assert_eq!(read, expected);
            locks.reading().close(reader);
            prop_assert_eq!(locks.inspect().readers(), 0);
        }
    }
}
