//! Who owns which part of which lock: a map of registers, each with one writer at a time.
//!
//! A lock has one part per member. A part's register holds (version, owner). Only the owner writes it, and its write gives the
//! right to write away, so the writes of a register are one chain, which causal delivery hands to everybody in order. Two
//! registers of the same version always have the same owner: a different one is the alarm for a doubled part
//! ([`DoubleOwner`]), never a conflict to resolve.
//!
//! A part without a register belongs to the member it is named after. So a part that comes home loses its register, and
//! a lock that is all home takes no memory; versions count the moves since the part was at home last. That is what the map gives
//! up against a map of max registers, which could be merged whatever the two sides had seen: here "none" may be older
//! or newer than a register, and only vectors tell (see `lock_state/take_over.rs`).
//!
//! This replaces `crdts::Map<LockName, Map<DcId, MVReg<..>>>`: that costs 1.5 to 3.3 KB a lock and 5 us a
//! transfer, this 8 bytes a part and some 40 ns. Property-tested against the crate's `LWWReg`.

use crdts::CmRDT;
use indexmap::IndexMap;
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize, Serializer};
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_128;

use crate::names::{DcId, DcSet, LockName, MAX_DCS, MAX_NUMBER};

/// The register of one part: version in the upper 56 bits, owner in the lowest 8; so the higher version is the
/// greater number. Version 0 means never moved.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Register(u64);

impl Register {
    pub fn new(version: u64, owner: DcId) -> Register {
        assert!(version < 1 << 56, "version {version} of a part: 2^56 moves never happen");
        Register(version << 8 | u64::from(owner.get()))
    }

    pub const fn version(self) -> u64 {
        self.0 >> 8
    }

    /// `None` for a part that never moved.
    pub const fn owner(self) -> Option<DcId> {
        if self.version() == 0 { None } else { DcId::new(self.0 as u8) }
    }
}

/// One part gets one owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartMove {
    pub lock: LockName,
    pub part: DcId,
    pub owner: DcId,
    pub version: u64,
}

/// Two different owners at the same version: a broken invariant. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("two owners of part {part} of lock {lock} at version {version}: {ours} here, {theirs} there")]
pub struct DoubleOwner {
    pub lock: LockName,
    pub part: DcId,
    pub version: u64,
    pub ours: DcId,
    pub theirs: DcId,
}

/// The registers of a lock, by part number; as many as the highest moved part needs.
type Registers = SmallVec<[Register; 3]>;

/// What is known of a lock that is not all home.
#[derive(Clone, Default)]
struct Row {
    registers: Registers,
    /// See [`Ownership::note_used`]. Nobody else's business: no part of what is replicated.
    used: u32,
}

impl Row {
    /// Of which nothing is known but who owns its parts.
    fn unused(&self) -> Row {
        Row { registers: self.registers.clone(), used: 0 }
    }
}

/// So many rows stay when there are none.
const KEPT_ROWS: usize = 1 << 12;

/// The map. Iterates in an order that depends on what was applied only, never on hashes.
#[derive(Clone, Default)]
pub struct Ownership(IndexMap<LockName, Row, foldhash::fast::FixedState>);

impl Ownership {
    /// An empty map; `hash_seed` keeps clients from choosing names that collide.
    pub fn new(hash_seed: u64) -> Ownership {
        Ownership(IndexMap::with_hasher(foldhash::fast::FixedState::with_seed(hash_seed)))
    }

    /// The register of a part.
    pub fn register(&self, lock: &LockName, part: DcId) -> Register {
        self.0.get(lock).and_then(|row| row.registers.get(part.index())).copied().unwrap_or_default()
    }

    pub fn owner(&self, lock: &LockName, part: DcId) -> DcId {
        self.register(lock, part).owner().unwrap_or(part)
    }

    /// The parts among `members` that `owner` owns.
    pub fn parts_of(&self, lock: &LockName, owner: DcId, members: DcSet) -> DcSet {
        match self.0.get(lock) {
            None => DcSet::only(owner).intersection(members),
            Some(row) => members
                .iter()
                .filter(|part| {
                    let register = row.registers.get(part.index()).copied().unwrap_or_default();
                    register.owner().unwrap_or(*part) == owner
                })
                .collect(),
        }
    }

    /// Whether every part is owned by the member it is named after.
    pub fn is_home(&self, lock: &LockName) -> bool {
        !self.0.contains_key(lock)
    }

    /// How many locks have parts that are not at home.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The `index`-th lock that is not all home. When one comes home, the last one takes its place.
    pub fn lock_at(&self, index: usize) -> Option<&LockName> {
        self.0.get_index(index).map(|(lock, _)| lock)
    }

    /// Notes that a lock is in use here at that second of any clock, if it is not all home.
    pub fn note_used(&mut self, lock: &LockName, second: u32) {
        if let Some(row) = self.0.get_mut(lock) {
            row.used = second;
        }
    }

    /// What was noted of the `index`-th lock; 0 for nothing.
    pub fn used_at(&self, index: usize) -> u32 {
        self.0.get_index(index).map_or(0, |(_, row)| row.used)
    }

    /// The registers of at most `most` locks from the `start`-th on, in the order of [`Ownership::lock_at`].
    pub fn piece(&self, start: usize, most: usize) -> Ownership {
        let end = start.saturating_add(most).min(self.0.len());
        let rows = self.0.get_range(start..end).into_iter().flatten();
        Ownership(rows.map(|(lock, row)| (lock.clone(), row.unused())).collect())
    }

    /// Adds a piece of the same map.
    pub fn extend(&mut self, piece: Ownership) {
        self.0.extend(piece.0);
    }

    /// The same content under another hash seed: after reading it from disk.
    pub fn reseeded(self, hash_seed: u64) -> Ownership {
        let mut map = Ownership::new(hash_seed);
        map.0.extend(self.0.into_iter().map(|(lock, row)| (lock, row.unused())));
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
        if !self.0.contains_key(lock) {
            self.0.insert(lock.clone(), Row::default());
        }
        let registers = &mut self.0.get_mut(lock).expect("it was inserted above").registers;
        if registers.len() <= part.index() {
            registers.resize(part.index() + 1, Register::default());
        }
        registers[part.index()] = to;
    }

    fn clear(&mut self, lock: &LockName, part: DcId) {
        let Some(row) = self.0.get_mut(lock) else { return };
        if let Some(register) = row.registers.get_mut(part.index()) {
            *register = Register::default();
        }
        if row.registers.iter().all(|register| *register == Register::default()) {
            self.0.swap_remove(lock);
            self.give_back();
        }
    }

    /// Gives memory back when most locks came home. Half of what is left free stays, so each row is moved for many that went.
    fn give_back(&mut self) {
        if self.0.capacity() > KEPT_ROWS && self.0.len() < self.0.capacity() / 16 {
            self.0.shrink_to(2 * self.0.len());
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
        if op.owner == op.part {
            self.clear(&op.lock, op.part);
        } else {
            self.set(&op.lock, op.part, Register::new(op.version, op.owner));
        }
    }
}

impl Ownership {
    /// What a register adds to the sum over a map, which is a wrapping one: 0 for a part that is at home.
    pub fn digest(lock: &LockName, part: DcId, register: Register) -> u128 {
        if register == Register::default() {
            return 0;
        }
        let mut bytes = SmallVec::<[u8; 64]>::from_slice(&register.0.to_le_bytes());
        bytes.push(part.get());
        bytes.extend_from_slice(lock.as_bytes());
        xxh3_128(&bytes)
    }

    /// The sum over all registers: equal maps have equal sums. Walks all of it.
    pub fn sum(&self) -> u128 {
        self.iter()
            .map(|(lock, part, register)| Self::digest(lock, part, register))
            .fold(0, u128::wrapping_add)
    }

    /// Every register of a part that is not at home.
    pub fn iter(&self) -> impl Iterator<Item = (&LockName, DcId, Register)> {
        self.0.iter().flat_map(|(lock, row)| {
            (0_u8..)
                .zip(&row.registers)
                .filter(|(_, register)| register.version() > 0)
                .filter_map(move |(part, register)| Some((lock, DcId::new(part)?, *register)))
        })
    }
}

/// Same registers, in whatever order they came.
impl PartialEq for Ownership {
    fn eq(&self, other: &Ownership) -> bool {
        self.len() == other.len()
            && other.iter().all(|(lock, part, theirs)| self.register(lock, part) == theirs)
    }
}

impl Eq for Ownership {}

impl std::fmt::Debug for Ownership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let entries = self.iter().map(|(lock, part, r)| ((lock, part), (r.version(), r.owner())));
        f.debug_map().entries(entries).finish()
    }
}

impl Serialize for Ownership {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rows =
            self.0.iter().map(|(lock, row)| (lock, row.registers.iter().map(|r| r.0).collect::<Vec<_>>()));
        serializer.collect_seq(rows)
    }
}

impl<'de> Deserialize<'de> for Ownership {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Ownership, D::Error> {
        let mut map = Ownership::default();
        for (lock, registers) in Vec::<(LockName, Vec<u64>)>::deserialize(deserializer)? {
            let mut registers: Registers = registers.into_iter().map(Register).collect();
            let fault = |what: &str| Err(D::Error::custom(format_args!("lock {lock}: {what}")));
            if registers.len() > MAX_DCS {
                return fault("more parts than there are datacenters");
            }
            if registers.iter().any(|r| *r != Register::default() && r.owner().is_none()) {
                return fault("the owner of a part is no datacenter");
            }
            if registers.iter().any(|r| r.version() > MAX_NUMBER) {
                return fault("no part ever moved so often");
            }
            if map.0.contains_key(&lock) {
                return fault("it is there twice");
            }
            // What was written before parts lost their registers at home.
            for (part, register) in (0_u8..).zip(&mut registers) {
                if register.owner().is_some_and(|owner| owner.get() == part) {
                    *register = Register::default();
                }
            }
            let row = Row { registers, used: 0 };
            map.0.insert(lock, row);
        }
        map.0.retain(|_, row| row.registers.iter().any(|register| *register != Register::default()));
        Ok(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn dc(id: u8) -> DcId {
        DcId::new(id).expect("a small id")
    }

    /// Who gets which part of which lock next: every step is a move by the one who has it.
    fn moves() -> impl Strategy<Value = Vec<(u8, u8, u8)>> {
        proptest::collection::vec((0_u8..3, 0_u8..3, 0_u8..3), 0..40)
    }

    fn lock(name: u8) -> LockName {
        LockName::new(&[name]).expect("one byte")
    }

    fn part_move(map: &Ownership, (name, part, owner): (u8, u8, u8)) -> PartMove {
        let version = map.register(&lock(name), dc(part)).version() + 1;
        PartMove { lock: lock(name), part: dc(part), owner: dc(owner), version }
    }

    #[test]
    fn what_came_home_leaves_its_memory() {
        let mut map = Ownership::new(7);
        let moved = |n: u32, owner, version| {
            let lock = LockName::new(&n.to_be_bytes()).expect("four bytes");
            PartMove { lock, part: dc(0), owner: dc(owner), version }
        };
        (0..100_000).for_each(|n| map.apply(moved(n, 1, 1)));
        assert!(map.0.capacity() >= 100_000);
        (10..100_000).for_each(|n| map.apply(moved(n, 0, 2)));
        assert_eq!(map.len(), 10);
        assert!(map.0.capacity() <= 2 * KEPT_ROWS, "room for {} stays", map.0.capacity());
    }

    fn applied(moves: &[PartMove]) -> Ownership {
        let mut map = Ownership::new(7);
        for part_move in moves {
            assert_eq!(map.validate_op(part_move), Ok(()));
            map.apply(part_move.clone());
        }
        map
    }

    proptest! {
        /// Parts are independent of each other: only the order of the moves of one part counts.
        #[test]
        fn moves_of_different_parts_commute(moves in moves()) {
            let (mut map, mut chains) = (Ownership::new(7), std::collections::BTreeMap::<_, Vec<_>>::new());
            for one in moves {
                let one = part_move(&map, one);
                map.apply(one.clone());
                chains.entry((one.lock.clone(), one.part)).or_default().push(one);
            }
            let by_part: Vec<PartMove> = chains.into_values().rev().flatten().collect();
            prop_assert_eq!(applied(&by_part), map);
        }

        #[test]
        fn a_part_is_a_last_writer_wins_register(moves in moves()) {
            let mut map = Ownership::new(7);
            let mut theirs = crdts::LWWReg { val: dc(2), marker: 0_u64 };
            for (marker, one) in (1..).zip(moves) {
                map.apply(part_move(&map, one));
                if (one.0, one.1) == (1, 2) {
                    theirs.update(dc(one.2), marker);
                }
                prop_assert_eq!(map.owner(&lock(1), dc(2)), theirs.val);
            }
        }

        /// What is at home takes no memory; everything else is there.
        #[test]
        fn only_what_is_away_is_kept(moves in moves()) {
            let mut map = Ownership::new(7);
            for one in moves {
                map.apply(part_move(&map, one));
            }
            let away = |name: u8| (0..3).any(|part| map.owner(&lock(name), dc(part)) != dc(part));
            for name in 0..3 {
                prop_assert_eq!(map.is_home(&lock(name)), !away(name));
            }
            prop_assert_eq!(map.len(), (0..3).filter(|name| away(*name)).count());
            let bytes = crate::wire::encode("ownership", &map).expect("it is small");
            prop_assert_eq!(crate::wire::decode::<Ownership>("ownership", &bytes).expect("it was written"), map);
        }
    }

    #[test]
    fn two_owners_of_one_version_are_an_alarm() {
        let lock = LockName::new(b"a").expect("valid");
        let to = |owner| PartMove { lock: lock.clone(), part: dc(0), owner: dc(owner), version: 1 };
        let map = applied(&[to(1)]);
        let alarm = DoubleOwner { lock: lock.clone(), part: dc(0), version: 1, ours: dc(1), theirs: dc(2) };
        assert_eq!(map.validate_op(&to(2)), Err(alarm));
    }

    #[test]
    fn bytes_that_are_no_map_are_refused() {
        let decoded = |locks: &[(&str, Vec<u64>)]| {
            let named = |(lock, registers): &(&str, Vec<u64>)| {
                (LockName::try_from(*lock).expect("a short name"), registers.clone())
            };
            let locks: Vec<_> = locks.iter().map(named).collect();
            let bytes = crate::wire::encode("ownership", &locks).expect("it is small");
            crate::wire::decode::<Ownership>("ownership", &bytes).map_err(|error| error.to_string())
        };
        let moved = |version: u64, owner: u64| version << 8 | owner;
        assert_eq!(decoded(&[("a", vec![0, moved(MAX_NUMBER, 2)])]).map(|map| map.len()), Ok(1));
        for (wrong, why) in [
            (vec![("a", vec![0; MAX_DCS + 1])], "more parts"),
            (vec![("a", vec![moved(1, 64)])], "is no datacenter"),
            (vec![("a", vec![moved(0, 1)])], "is no datacenter"),
            (vec![("a", vec![moved(MAX_NUMBER + 1, 1)])], "moved so often"),
            (vec![("a", vec![]), ("a", vec![])], "there twice"),
        ] {
            let refused = decoded(&wrong).expect_err(why);
            assert!(refused.contains(why), "{refused}");
        }
    }
}
