//! The ownership map: the owner of each part of each lock. Each part has a register with one writer at a
//! time.
//!
//! A lock has one part per member. A part's register holds (version, owner). Only the owner writes it, and
//! the write gives the right to write away (`docs/algorithm.md#32-the-map`). So the writes of a register form
//! one chain, which causal delivery hands to every member in order. Two registers of the same version always
//! have the same owner. A different owner means that mutual exclusion is broken ([`DoubleOwner`]); it is
//! never a conflict to resolve.
//!
//! A part without a register is at home: its default owner has it (`default_owner.rs`). So a part that comes
//! home loses its register, and a lock that is all home takes no memory; versions count the moves since the
//! part was at home last. The price: two maps cannot be merged by versions as maps of max registers can,
//! because "no register" may be older or newer than a register, and only vectors can decide (see
//! `lock_state/install_state.rs`).
//!
//! Rows are stored in blocks and their index in many small tables, so the map grows without a copy of itself.
//! A reader reads it in pieces, as it was when the reader was opened, see [`Ownership::open_reader`].
//!
//! This replaces `crdts::Map<LockName, Map<DcId, MVReg<..>>>`, which costs 1.5 to 3.3 KB a lock and 5 us a
//! transfer; this costs 8 bytes a part and some 40 ns. Property-tested against the crate's `LWWReg`.

mod away;
mod check;
mod differences;
mod encoding;
mod ended;
mod recency;
mod register;
mod sums;

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use crdts::CmRDT;
use foldhash::fast::FixedState;
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_128_with_seed;

pub use self::away::AwayCounts;
use self::recency::{Recency, Use};
pub use self::register::{DoubleOwner, PartMove, Register};
pub use self::sums::OwnershipSums;
use super::default_owner::{default_owner, default_parts};
use super::sponsors::{Sponsored, Sponsors};
use crate::base::tables::{Index, List, short_hash};
use geolock_api::names::{DcId, DcSet, LockName};

/// The registers of a lock, by part number; as many as the highest moved part needs.
type Registers = SmallVec<[Register; 3]>;

/// A lock with at least one part away from home.
#[derive(Clone)]
struct Row {
    lock: LockName,
    registers: Registers,
    /// Local only; it is not replicated.
    usage: Use,
}

impl Row {
    /// Returns a copy with the registers only.
    fn unused(&self) -> Row {
        Row { usage: Use::UNKNOWN, ..self.clone() }
    }

    /// Returns true if every register is that of a part at home, as it counts.
    fn is_home(&self, sponsors: &Sponsors) -> bool {
        let registers = (0_u8..).filter_map(DcId::new).zip(&self.registers);
        registers.into_iter().all(|(part, register)| sponsors.as_it_counts(part, *register).version() == 0)
    }

    fn is_empty(&self) -> bool {
        self.registers.iter().all(|register| *register == Register::default())
    }

    fn register(&self, part: DcId) -> Register {
        self.registers.get(part.index()).copied().unwrap_or_default()
    }
}

/// Some rows of the map.
pub struct OwnedRows(Vec<Row>);

impl OwnedRows {
    /// Returns the number of moved parts.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if no part has moved.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Id of a reader, see [`Ownership::open_reader`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReaderId(u64);

/// A reader of the map as it was. It still has to read the rows from `next` to `end`; `before` has those that
/// have changed since.
#[derive(Clone)]
struct Reader {
    id: ReaderId,
    next: usize,
    end: usize,
    before: BTreeMap<usize, Row>,
}

/// The ownership map. The order of iteration depends only on the applied operations, never on hashes.
#[derive(Clone, Default)]
pub struct Ownership {
    hasher: FixedState,
    index: Index,
    rows: List<Row>,
    recency: Recency,
    readers: Vec<Reader>,
    last_reader: u64,
    sponsors: Sponsors,
}

impl Ownership {
    /// Returns an empty map. `hash_seed` keeps clients from choosing names that collide.
    pub fn new(hash_seed: u64) -> Ownership {
        Ownership { hasher: FixedState::with_seed(hash_seed), ..Ownership::default() }
    }

    fn hash(&self, lock: &LockName) -> u32 {
        short_hash(self.hasher.hash_one(lock.identity()))
    }

    fn find(&self, lock: &LockName) -> Option<usize> {
        // Most locks are at home.
        if self.rows.is_empty() {
            return None;
        }
        self.index.find(self.hash(lock), |row| self.at(row as usize).lock == *lock).map(|row| row as usize)
    }

    fn row(&self, lock: &LockName) -> Option<&Row> {
        self.find(lock).map(|row| self.at(row))
    }

    fn at(&self, row: usize) -> &Row {
        self.rows.get(row).expect("the index names rows that are there")
    }

    fn at_mut(&mut self, row: usize) -> &mut Row {
        self.rows.get_mut(row).expect("the index names rows that are there")
    }

    /// Adds the row of a lock that has none.
    fn push(&mut self, row: Row) {
        let place = u32::try_from(self.rows.len()).expect("fewer than 2^32 locks are away");
        debug_assert!(self.find(&row.lock).is_none(), "lock {} has one row", row.lock);
        self.index.insert(self.hash(&row.lock), place);
        self.rows.push(row);
    }

    /// Removes a row; the last one takes its place.
    fn remove(&mut self, row: usize) {
        let last = self.rows.len() - 1;
        self.note_before(row);
        self.note_before(last);
        self.unlist_removed(row);
        let removed = self.rows.swap_remove(row);
        self.index.remove(self.hash(&removed.lock), row as u32);
        if last != row {
            self.index.renumber(self.hash(&self.at(row).lock), last as u32, row as u32);
            self.relink(row);
        }
        debug_assert!(self.find(&removed.lock).is_none(), "lock {} has no row any more", removed.lock);
    }

    /// Copies a row for the readers that have not reached it. Called before the row changes.
    fn note_before(&mut self, row: usize) {
        for reader in &mut self.readers {
            if (reader.next..reader.end).contains(&row) && !reader.before.contains_key(&row) {
                let before = self.rows.get(row).expect("a row that changes is there").unused();
                reader.before.insert(row, before);
            }
        }
    }

    /// Opens a reader of the map as it is now; [`Ownership::read`] reads from it until
    /// [`Ownership::close_reader`].
    pub fn open_reader(&mut self) -> ReaderId {
        self.last_reader += 1;
        let id = ReaderId(self.last_reader);
        debug_assert!(self.readers.iter().all(|reader| reader.id != id), "the id of a reader is its own");
        self.readers.push(Reader { id, next: 0, end: self.rows.len(), before: BTreeMap::new() });
        id
    }

    /// Returns the registers of the next locks: of `most`, or of as many as there are.
    ///
    /// # Panics
    /// If the reader was closed.
    pub fn read(&mut self, reader: ReaderId, most: usize) -> OwnedRows {
        let reader = self.readers.iter_mut().find(|other| other.id == reader).expect("a reader that is open");
        let from = reader.next;
        reader.next = from.saturating_add(most).min(reader.end);
        let mut before = std::mem::take(&mut reader.before);
        reader.before = before.split_off(&reader.next);
        debug_assert!(reader.next <= reader.end, "a reader ends at the end of its map");
        debug_assert!(before.keys().all(|row| *row >= from), "rows that were read are not kept");
        let rows = from..reader.next;
        OwnedRows(rows.map(|row| before.remove(&row).unwrap_or_else(|| self.at(row).unused())).collect())
    }

    /// Ends a reader; rows need no longer be kept for it.
    pub fn close_reader(&mut self, reader: ReaderId) {
        self.readers.retain(|other| other.id != reader);
    }

    /// Returns the number of open readers.
    pub fn readers(&self) -> usize {
        self.readers.len()
    }

    /// Returns the register of a part as it counts: that of a part which has fallen home says so.
    pub fn register(&self, lock: &LockName, part: DcId) -> Register {
        self.sponsors.as_it_counts(part, self.written(lock, part))
    }

    /// Returns the register of a part as it was written.
    pub fn written(&self, lock: &LockName, part: DcId) -> Register {
        self.row(lock).map(|row| row.register(part)).unwrap_or_default()
    }

    /// Returns the parts that are not settled, with their sponsors.
    pub fn sponsors(&self) -> &Sponsors {
        &self.sponsors
    }

    /// Returns the parts that are not settled, to be changed.
    pub fn sponsors_mut(&mut self) -> &mut Sponsors {
        &mut self.sponsors
    }

    /// Returns the owner of a part that has no register.
    #[inline]
    pub fn default_owner(&self, lock: &LockName, part: DcId) -> DcId {
        default_owner(lock, part, self.sponsors.no_homes())
    }

    /// Returns the owner of a part.
    pub fn owner(&self, lock: &LockName, part: DcId) -> DcId {
        self.owner_in(self.row(lock), lock, part)
    }

    fn owner_in(&self, row: Option<&Row>, lock: &LockName, part: DcId) -> DcId {
        let register = |part| row.map(|row| row.register(part)).unwrap_or_default();
        if self.sponsors.is_empty() {
            let register = self.sponsors.as_it_counts(part, register(part));
            return register.owner().unwrap_or_else(|| self.default_owner(lock, part));
        }
        self.sponsors.owner(lock, part, register)
    }

    /// Returns the parts that go along with these parts of a lock and would move with them unnamed.
    pub fn going_along(&self, lock: &LockName, parts: DcSet) -> DcSet {
        if self.sponsors.is_empty() {
            return DcSet::EMPTY;
        }
        let row = self.row(lock);
        let register = |part| self.register(lock, part);
        let goes = |it: &Sponsored| {
            let is_unnamed = register(it.part) == Register::default();
            let goes = self.sponsors.home(lock).is_some() || self.owner_in(row, lock, it.part) != it.part;
            is_unnamed && parts.contains(it.sponsor) && goes
        };
        self.sponsors.iter().filter(goes).map(|it| it.part).collect()
    }

    /// Returns the parts among `members` that `owner` owns.
    pub fn parts_of(&self, lock: &LockName, owner: DcId, members: DcSet) -> DcSet {
        match self.row(lock) {
            None if self.sponsors.is_empty() || self.sponsors.home(lock).is_some() => {
                default_parts(lock, owner, members, self.sponsors.no_homes())
            }
            None => self.sponsors.default_parts(owner, members),
            row => self.parts_in(row, lock, owner, members),
        }
    }

    /// The same for a lock that has a row. Not inlined: most locks have none.
    #[inline(never)]
    fn parts_in(&self, row: Option<&Row>, lock: &LockName, owner: DcId, members: DcSet) -> DcSet {
        members.iter().filter(|part| self.owner_in(row, lock, *part) == owner).collect()
    }

    /// Returns true if every part is at home.
    pub fn is_home(&self, lock: &LockName) -> bool {
        self.row(lock).is_none_or(|row| row.is_home(&self.sponsors))
    }

    /// Returns the number of locks with parts away from home.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns true if every part of every lock is at home.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the `index`-th lock with parts away from home. When all parts of one come home, the last one
    /// takes its place.
    pub fn lock_at(&self, index: usize) -> Option<&LockName> {
        self.rows.get(index).map(|row| &row.lock)
    }

    /// Returns a copy with the registers only.
    pub fn copy(&self) -> Ownership {
        let (hasher, sponsors) = (self.hasher.clone(), self.sponsors.clone());
        let mut copy = Ownership { hasher, sponsors, ..Ownership::default() };
        self.rows.iter().for_each(|row| copy.push(row.unused()));
        copy
    }

    /// Adds some rows of the same map.
    pub fn extend(&mut self, rows: OwnedRows) {
        for row in rows.0 {
            match self.find(&row.lock) {
                Some(place) => self.at_mut(place).registers = row.registers,
                None => self.push(row),
            }
        }
    }

    /// Returns all rows.
    pub fn into_rows(self) -> OwnedRows {
        OwnedRows(self.rows.iter().map(Row::unused).collect())
    }

    /// Returns the same content under another hash seed: for a map that was read from disk.
    pub fn reseeded(self, hash_seed: u64) -> Ownership {
        let mut map = Ownership { sponsors: self.sponsors.clone(), ..Ownership::new(hash_seed) };
        self.rows.iter().for_each(|row| map.push(row.unused()));
        map
    }

    fn find_double_owner(&self, lock: &LockName, part: DcId, theirs: Register) -> Result<(), DoubleOwner> {
        let ours = self.register(lock, part);
        match (ours.owner(), theirs.owner()) {
            (Some(our_owner), Some(their_owner)) if ours.version() == theirs.version() && ours != theirs => {
                Err(DoubleOwner {
                    lock: lock.clone(),
                    part,
                    version: ours.version(),
                    ours: our_owner,
                    theirs: their_owner,
                })
            }
            _ => Ok(()),
        }
    }

    fn set(&mut self, lock: &LockName, part: DcId, to: Register) {
        let row = match self.find(lock) {
            Some(row) => {
                self.note_before(row);
                row
            }
            None => {
                self.push(Row { lock: lock.clone(), registers: Registers::new(), usage: Use::UNKNOWN });
                self.rows.len() - 1
            }
        };
        let registers = &mut self.at_mut(row).registers;
        if registers.len() <= part.index() {
            registers.resize(part.index() + 1, Register::default());
        }
        registers[part.index()] = to;
    }

    fn clear(&mut self, lock: &LockName, part: DcId) {
        let Some(place) = self.find(lock) else { return };
        self.note_before(place);
        let row = self.at_mut(place);
        if let Some(register) = row.registers.get_mut(part.index()) {
            *register = Register::default();
        }
        self.drop_if_empty(place);
    }

    fn drop_if_empty(&mut self, place: usize) {
        let row = self.at(place);
        if row.is_empty() || (self.sponsors.is_empty() && row.is_home(&self.sponsors)) {
            self.remove(place);
        }
    }

    /// Removes the `index`-th row if all parts of its lock are at home and settled. Returns true if it did:
    /// then another lock may have that row.
    pub fn drop_settled(&mut self, index: usize) -> bool {
        let before = self.rows.len();
        if index < before {
            self.drop_if_empty(index);
        }
        debug_assert!(self.rows.len() + 1 >= before, "at most this row is removed");
        self.rows.len() < before
    }

    /// The part of `sponsor` leaves home. The parts that are split off from it and have no register were at
    /// home, and would go along with it again.
    fn stay_home(&mut self, lock: &LockName, sponsor: DcId) {
        let at_home = self.sponsors.home(lock).is_none() && self.owner(lock, sponsor) == sponsor;
        let split: SmallVec<[DcId; 2]> =
            self.sponsors.of(sponsor).filter(|it| it.split).map(|it| it.part).collect();
        for part in split.into_iter().filter(|_| at_home) {
            if self.register(lock, part) == Register::default() {
                self.set(lock, part, Register::HOME);
            }
        }
    }
}

impl CmRDT for Ownership {
    type Op = PartMove;
    type Validation = DoubleOwner;

    fn validate_op(&self, op: &PartMove) -> Result<(), DoubleOwner> {
        self.find_double_owner(&op.lock, op.part, Register::new(op.version, op.owner))
    }

    fn apply(&mut self, op: PartMove) {
        self.apply_in(op, self.sponsors.no_homes());
    }
}

impl Ownership {
    /// Applies a move by an entry of an epoch in which these slots were no homes any more: a part that comes
    /// to its default owner of that epoch loses its register, here as elsewhere.
    pub fn apply_in(&mut self, op: PartMove, no_homes: DcSet) {
        let is_home = op.owner == default_owner(&op.lock, op.part, no_homes);
        let is_settled = self.sponsors.get(op.part).is_none();
        if is_home && is_settled {
            self.clear(&op.lock, op.part);
        } else if is_home {
            self.set(&op.lock, op.part, Register::HOME);
        } else {
            self.stay_home(&op.lock, op.part);
            self.set(&op.lock, op.part, Register::new(op.version, op.owner));
        }
    }
}

impl Ownership {
    /// Returns the summand of a register in the wrapping sum over a map: 0 for a part that is at home, also
    /// if it says so. Replicas that learn at different moments that a part is settled differ in that.
    pub fn digest(lock: &LockName, part: DcId, register: Register) -> u128 {
        if register.version() == 0 {
            return 0;
        }
        let mut bytes = SmallVec::<[u8; 64]>::from_slice(&register.0.to_le_bytes());
        bytes.push(part.get());
        bytes.extend_from_slice(lock.as_bytes());
        // Members of version 2, which know plain names only, compute the same with no seed.
        let seed = lock.home().map_or(0, |home| 1 + u64::from(home.get()));
        xxh3_128_with_seed(&bytes, seed)
    }

    /// Returns the sums over all registers: equal maps have equal sums. Walks the whole map.
    pub fn sums(&self) -> OwnershipSums {
        let mut sums = OwnershipSums::default();
        self.iter().for_each(|(lock, part, register)| sums.add(lock, part, register));
        sums.set_ended(self.sponsors.left());
        sums
    }

    /// Returns every register of a part away from home, as it counts.
    pub fn iter(&self) -> impl Iterator<Item = (&LockName, DcId, Register)> {
        self.rows.iter().flat_map(|row| {
            let parts = (0_u8..).filter_map(DcId::new).zip(&row.registers);
            let counted = parts.map(|(part, register)| (part, self.sponsors.as_it_counts(part, *register)));
            counted.filter(|(_, it)| it.version() > 0).map(move |(part, it)| (&row.lock, part, it))
        })
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
