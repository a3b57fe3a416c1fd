//! Queries about the parts of one lock. The row of the lock is looked up once, for all of them.

use geolock_api::names::{DcId, DcSet, LockName};

use super::Register;
use super::row::LockRow;
use crate::crdt::sponsors::{Sponsored, Sponsors};

/// The owners of the parts of a lock, see [`Ownership::of`](super::Ownership::of).
#[derive(Clone, Copy)]
pub struct LockOwners<'a> {
    lock: &'a LockName,
    /// `None`: no part has a register.
    row: Option<&'a LockRow>,
    sponsors: &'a Sponsors,
}

impl<'a> LockOwners<'a> {
    #[inline]
    pub(super) fn new(
        lock: &'a LockName,
        row: Option<&'a LockRow>,
        sponsors: &'a Sponsors,
    ) -> LockOwners<'a> {
        debug_assert!(row.is_none_or(|row| row.lock() == lock), "the row is that of lock {lock}");
        LockOwners { lock, row, sponsors }
    }

    /// Returns the register of a part as it was written.
    #[inline]
    pub fn written(self, part: DcId) -> Register {
        self.row.map(|row| row.register(part)).unwrap_or_default()
    }

    /// Returns the register of a part as it counts: that of a part which has fallen home says so.
    #[inline]
    pub fn register(self, part: DcId) -> Register {
        self.sponsors.as_it_counts(part, self.written(part))
    }

    /// Returns the owner of a part.
    pub fn owner(self, part: DcId) -> DcId {
        if self.sponsors.is_empty() {
            let register = self.register(part);
            return register.owner().unwrap_or_else(|| self.sponsors.default_owner(self.lock, part));
        }
        self.sponsors.owner(self.lock, part, |part| self.written(part))
    }

    /// Returns the parts that go along with these parts and would move with them unnamed.
    pub fn going_along(self, parts: DcSet) -> DcSet {
        if self.sponsors.is_empty() {
            return DcSet::EMPTY;
        }
        let goes = |it: &Sponsored| {
            let is_unnamed = self.register(it.part) == Register::default();
            let goes = self.sponsors.goes_along_homed(self.lock, it.part)
                || self.owner(it.part) != self.sponsors.default_owner(self.lock, it.part);
            is_unnamed && parts.contains(it.sponsor) && goes
        };
        self.sponsors.iter().filter(goes).map(|it| it.part).collect()
    }

    /// Returns the parts among `members` that `owner` owns.
    #[inline]
    pub fn parts_of(self, owner: DcId, members: DcSet) -> DcSet {
        match self.row {
            None => self.sponsors.parts_without_registers(self.lock, owner, members),
            Some(_) => self.parts_by_registers(owner, members),
        }
    }

    /// The same for a lock that has a row. Not inlined: most locks have none.
    #[inline(never)]
    fn parts_by_registers(self, owner: DcId, members: DcSet) -> DcSet {
        members.iter().filter(|part| self.owner(*part) == owner).collect()
    }

    /// Returns true if every part is at home.
    pub fn is_home(self) -> bool {
        let is_home = |(part, register)| self.sponsors.as_it_counts(part, register).version() == 0;
        self.row.is_none_or(|row| row.parts().all(is_home))
    }

    /// Returns the datacenters that own a part which is named after another one, by the registers as written.
    pub fn away_owners(self) -> DcSet {
        self.row.map_or(DcSet::EMPTY, LockRow::away_owners)
    }
}
