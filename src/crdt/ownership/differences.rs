//! Comparison of two maps, row by row. Maps of which one was read from the other have mostly the same order,
//! so the row after the last one that was found is tried before the index.

use geolock_api::names::{DcId, LockName};

use super::row::LockRow;
use super::{LockOwners, Ownership, Register, RegisterTable};

/// Look-ups of locks that come mostly in the order of the rows.
struct InOrder<'a> {
    table: &'a RegisterTable,
    next: usize,
}

impl<'a> InOrder<'a> {
    fn of(map: &'a Ownership) -> InOrder<'a> {
        InOrder { table: &map.table, next: 0 }
    }

    fn row(&mut self, lock: &LockName) -> Option<&'a LockRow> {
        let is_next = self.table.get(self.next).is_some_and(|row| row.lock() == lock);
        let found = if is_next { self.next } else { self.table.find(lock)? };
        self.next = found + 1;
        self.table.get(found)
    }
}

impl Ownership {
    /// Returns the parts whose owners differ in the two maps. Only parts with a register in one of them are
    /// compared, and no part of a member that is over in `theirs`.
    pub fn differences<'a>(&'a self, theirs: &'a Ownership) -> impl Iterator<Item = (&'a LockName, DcId)> {
        let are_read_alike = self.sponsors == theirs.sponsors;
        let (mut in_theirs, mut in_ours) = (InOrder::of(theirs), InOrder::of(self));
        let ours = self.table.iter().map(move |row| (row.lock(), Some(row), in_theirs.row(row.lock())));
        let others = theirs.table.iter().filter(move |row| in_ours.row(row.lock()).is_none());
        let both = ours.chain(others.map(|row| (row.lock(), None, Some(row))));
        let differ =
            both.filter(move |(_, our, their)| !are_read_alike || registers(*our) != registers(*their));
        differ.flat_map(move |(lock, our, their)| {
            let parts = (0_u8..).filter_map(DcId::new).take(registers(our).len().max(registers(their).len()));
            let our = LockOwners::new(lock, our, &self.sponsors);
            let their = LockOwners::new(lock, their, &theirs.sponsors);
            let is_away = |owners: LockOwners<'_>, part| owners.register(part).version() > 0;
            let are_away = move |part: &DcId| is_away(our, *part) || is_away(their, *part);
            let counted = parts.filter(are_away).filter(|part| !theirs.sponsors.left().contains(*part));
            counted.filter(move |part| our.owner(*part) != their.owner(*part)).map(move |part| (lock, part))
        })
    }
}

fn registers(row: Option<&LockRow>) -> &[Register] {
    row.map(LockRow::registers).unwrap_or_default()
}

/// True if the registers are the same, in whatever order they were written.
impl PartialEq for Ownership {
    fn eq(&self, other: &Ownership) -> bool {
        self.iter().count() == other.iter().count()
            && other.iter().all(|(lock, part, theirs)| self.of(lock).register(part) == theirs)
    }
}

impl Eq for Ownership {}
