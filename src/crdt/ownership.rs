//! The ownership map: the owner of each part of each lock. Each part has a register with one writer at a
//! time.
//!
//! A lock has one part per member. A part's register holds (version, owner). Only the owner writes it, and
//! the write gives the right to write away (`docs/algorithm/ownership.md#12-the-map`). So the writes of a
//! register form one chain, which causal delivery hands to every member in order. Two registers of the same
//! version always have the same owner. A different owner means that mutual exclusion is broken
//! ([`DoubleOwner`]); it is never a conflict to resolve.
//!
//! A part without a register is at home: its default owner has it (`default_owner.rs`). So a part that comes
//! home loses its register, and a lock that is all home takes no memory; versions count the moves since the
//! part was at home last. The price: two maps cannot be merged by versions as maps of max registers can,
//! because "no register" may be older or newer than a register, and only vectors can decide (see
//! `lock_state/install_state.rs`).
//!
//! [`Ownership`] is the meaning of the registers: it applies moves, with the members that join and end
//! ([`Sponsors`]). [`RegisterTable`] stores them, a row for each lock, with what is local: the order in which
//! locks were used ([`Recency`]), and the readers of the map as it was. [`LockOwners`] has the queries about
//! the parts of one lock; it looks the row of the lock up once.
//!
//! Rows are stored in blocks and their index in many small tables, so the map grows without a copy of itself.
//! A reader reads it in pieces, as it was when the reader was opened, see [`RegisterTable::open_reader`].
//!
//! This replaces `crdts::Map<LockName, Map<DcId, MVReg<..>>>`, which costs 1.5 to 3.3 KB a lock and 5 us a
//! transfer; this costs 8 bytes a part and some 40 ns. Property-tested against the crate's `LWWReg`.

mod away;
mod differences;
mod encoding;
mod ended;
mod readers;
mod recency;
mod register;
mod row;
mod sums;
mod table;
mod view;

use crdts::CmRDT;
use smallvec::SmallVec;

pub use self::away::AwayCounts;
pub use self::readers::ReaderId;
pub use self::recency::Recency;
pub use self::register::{DoubleOwner, PartMove, Register};
use self::row::LockRow;
pub use self::row::OwnedRows;
pub use self::sums::OwnershipSums;
pub use self::table::{RegisterTable, lock_weight};
pub use self::view::LockOwners;
use super::home_rules::AsOf;
use super::sponsors::{Sponsored, Sponsors};
use geolock_api::names::{DcId, LockName};

/// The ownership map. The order of iteration depends only on the applied operations, never on hashes.
#[derive(Clone, Default)]
pub struct Ownership {
    table: RegisterTable,
    sponsors: Sponsors,
}

impl Ownership {
    /// Returns an empty map. `hash_seed` keeps clients from choosing names that collide.
    pub fn new(hash_seed: u64) -> Ownership {
        Ownership { table: RegisterTable::with_seed(hash_seed), sponsors: Sponsors::default() }
    }

    /// Returns the owners of the parts of a lock.
    #[inline]
    pub fn of<'a>(&'a self, lock: &'a LockName) -> LockOwners<'a> {
        LockOwners::new(lock, self.table.row(lock), &self.sponsors)
    }

    /// Returns the `index`-th lock that has a register. When one loses its registers, the last one takes its
    /// place.
    pub fn lock_at(&self, index: usize) -> Option<&LockName> {
        self.table.get(index).map(LockRow::lock)
    }

    /// Returns the owners of the parts of the `index`-th lock that has a register.
    pub fn at(&self, index: usize) -> Option<LockOwners<'_>> {
        self.table.get(index).map(|row| LockOwners::new(row.lock(), Some(row), &self.sponsors))
    }

    /// Returns the number of locks that have a register: those with parts away from home, and some more while
    /// members join or end.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns true if every part of every lock is at home.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the order in which the locks that have a register were used here.
    pub fn recency(&self) -> &Recency {
        self.table.recency()
    }

    /// Returns the rows.
    pub fn table(&self) -> &RegisterTable {
        &self.table
    }

    /// Returns the rows, for their order of use and their readers.
    pub fn table_mut(&mut self) -> &mut RegisterTable {
        &mut self.table
    }

    /// Returns the parts that are not settled, with their sponsors.
    pub fn sponsors(&self) -> &Sponsors {
        &self.sponsors
    }

    /// Returns the parts that are not settled, to be changed.
    pub fn sponsors_mut(&mut self) -> &mut Sponsors {
        &mut self.sponsors
    }

    /// Returns every register of a part away from home, as it counts.
    pub fn iter(&self) -> impl Iterator<Item = (&LockName, DcId, Register)> {
        self.table.iter().flat_map(|row| {
            let counted = row.parts().map(|(part, it)| (part, self.sponsors.as_it_counts(part, it)));
            counted.filter(|(_, it)| it.version() > 0).map(move |(part, it)| (row.lock(), part, it))
        })
    }

    /// Returns a copy with the registers only.
    pub fn copy(&self) -> Ownership {
        Ownership { table: self.table.copy(), sponsors: self.sponsors.clone() }
    }

    /// Returns the same content under another hash seed: for a map that was read from disk.
    pub fn reseeded(self, hash_seed: u64) -> Ownership {
        Ownership { table: self.table.reseeded(hash_seed), sponsors: self.sponsors }
    }

    /// Returns all rows.
    pub fn into_rows(self) -> OwnedRows {
        OwnedRows(self.table.iter().cloned().collect())
    }

    /// Adds some rows of the same map.
    pub fn extend(&mut self, rows: OwnedRows) {
        rows.0.into_iter().for_each(|row| self.table.replace(row));
    }

    /// Applies a move by an entry whose maker knew this of homes: a part that comes to its default owner as
    /// of then loses its register, here as elsewhere.
    pub fn apply_as_of(&mut self, op: PartMove, as_of: AsOf<'_>) {
        let is_home = op.owner == self.sponsors.default_owner_as_of(&op.lock, op.part, as_of);
        let is_settled = self.sponsors.get(op.part).is_none();
        if is_home && is_settled {
            self.clear(&op.lock, op.part);
        } else if is_home {
            self.table.set(&op.lock, op.part, Register::HOME);
        } else {
            self.stay_home(&op.lock, op.part);
            self.table.set(&op.lock, op.part, Register::new(op.version, op.owner));
        }
    }

    /// The owner of a part keeps it by its register, also at its home.
    pub fn keep(&mut self, op: PartMove) {
        self.table.set(&op.lock, op.part, Register::new(op.version, op.owner));
    }

    fn clear(&mut self, lock: &LockName, part: DcId) {
        if let Some(index) = self.table.find(lock) {
            self.table.set_at(index, part, Register::default());
            self.drop_settled(index);
        }
    }

    /// The part of `sponsor` leaves home. The parts that are split off from it and have no register were at
    /// home, and would go along with it again.
    fn stay_home(&mut self, lock: &LockName, sponsor: DcId) {
        let owners = self.of(lock);
        let at_home = owners.owner(sponsor) == self.sponsors.default_owner(lock, sponsor);
        let is_split_off = |it: &Sponsored| it.split && !self.sponsors.goes_along_homed(lock, it.part);
        let split = self.sponsors.of(sponsor).filter(|it| at_home && is_split_off(it)).map(|it| it.part);
        let unnamed = split.filter(|part| owners.register(*part) == Register::default());
        for part in unnamed.collect::<SmallVec<[DcId; 2]>>() {
            self.table.set(lock, part, Register::HOME);
        }
    }

    /// Removes the `index`-th row if all parts of its lock are at home and settled. Returns true if it did:
    /// then another lock may have that row.
    pub fn drop_settled(&mut self, index: usize) -> bool {
        let Some(row) = self.table.get(index) else { return false };
        let is_home = || LockOwners::new(row.lock(), Some(row), &self.sponsors).is_home();
        let is_settled = row.is_empty() || (self.sponsors.is_empty() && is_home());
        if is_settled {
            self.table.remove(index);
        }
        is_settled
    }

    /// Asserts the invariants. Walks the whole map: for tests and the simulator.
    pub fn check(&self) {
        for row in self.table.iter() {
            assert!(!row.is_empty(), "lock {} has a row because a part has a register", row.lock());
        }
        self.table.check();
    }
}

impl CmRDT for Ownership {
    type Op = PartMove;
    type Validation = DoubleOwner;

    fn validate_op(&self, op: &PartMove) -> Result<(), DoubleOwner> {
        let ours = self.of(&op.lock).register(op.part);
        match ours.owner() {
            Some(owner) if ours.version() == op.version && owner != op.owner => Err(DoubleOwner {
                lock: op.lock.clone(),
                part: op.part,
                version: op.version,
                ours: owner,
                theirs: op.owner,
            }),
            _ => Ok(()),
        }
    }

    fn apply(&mut self, op: PartMove) {
        self.apply_as_of(op, AsOf::here(self.sponsors.no_homes()));
    }
}

impl std::fmt::Debug for Ownership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let entries = self.iter().map(|(lock, part, r)| ((lock, part), (r.version(), r.owner())));
        f.debug_map().entries(entries).finish()
    }
}

#[cfg(test)]
mod tests;
