//! Readers of the ownership map: each reads it in pieces, as it was when the reader was opened.
//!
//! A row that changes is copied before, for the readers that have not reached it. So a reader costs nothing
//! for rows that do not change, and a step that writes copies the rows that it writes.

use std::collections::BTreeMap;

use super::row::{LockRow, OwnedRows};
use crate::base::tables::List;

/// Id of a reader, see [`RegisterTable::open_reader`](super::RegisterTable::open_reader).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReaderId(u64);

/// A reader of the map as it was. It still has to read the rows from `next` to `end`; `before` has those that
/// have changed since.
#[derive(Clone)]
struct Reader {
    id: ReaderId,
    next: usize,
    end: usize,
    before: BTreeMap<usize, LockRow>,
}

/// The open readers of one table.
#[derive(Clone, Default)]
pub(super) struct Readers {
    open: Vec<Reader>,
    last: u64,
}

impl Readers {
    /// Opens a reader of a table that has this number of rows.
    pub fn open(&mut self, rows: usize) -> ReaderId {
        self.last += 1;
        let id = ReaderId(self.last);
        debug_assert!(self.open.iter().all(|reader| reader.id != id), "the id of a reader is its own");
        self.open.push(Reader { id, next: 0, end: rows, before: BTreeMap::new() });
        id
    }

    pub fn close(&mut self, reader: ReaderId) {
        self.open.retain(|other| other.id != reader);
    }

    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Copies a row for the readers that have not reached it. Called before the row changes.
    pub fn note_before(&mut self, place: usize, rows: &List<LockRow>) {
        for reader in &mut self.open {
            if (reader.next..reader.end).contains(&place) && !reader.before.contains_key(&place) {
                let before = rows.get(place).expect("a row that changes is there");
                reader.before.insert(place, before.clone());
            }
        }
    }

    /// Returns the next `most` rows of a reader, or as many as there are.
    ///
    /// # Panics
    /// If the reader was closed.
    pub fn read(&mut self, reader: ReaderId, most: usize, rows: &List<LockRow>) -> OwnedRows {
        let reader = self.open.iter_mut().find(|other| other.id == reader).expect("a reader that is open");
        let from = reader.next;
        reader.next = from.saturating_add(most).min(reader.end);
        let mut before = std::mem::take(&mut reader.before);
        reader.before = before.split_off(&reader.next);
        debug_assert!(reader.next <= reader.end, "a reader ends at the end of its map");
        debug_assert!(before.keys().all(|place| *place >= from), "rows that were read are not kept");
        let unchanged = |place| rows.get(place).expect("a row that has not changed is there").clone();
        let places = from..reader.next;
        OwnedRows(places.map(|place| before.remove(&place).unwrap_or_else(|| unchanged(place))).collect())
    }

    /// Asserts the invariants, for a table that has this number of rows.
    pub fn check(&self, rows: usize) {
        for reader in &self.open {
            assert!(reader.next <= reader.end, "a reader ends where the map ended");
            let unread = reader.next..reader.end;
            assert!(
                reader.before.keys().all(|place| unread.contains(place)),
                "copies are of rows to be read"
            );
            let is_there = |place: &usize| *place < rows || reader.before.contains_key(place);
            assert!(unread.clone().all(|place| is_there(&place)), "rows to be read are there, or a copy is");
        }
    }
}
