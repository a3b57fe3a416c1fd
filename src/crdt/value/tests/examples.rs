//! The conflict rules of `mod.rs`, one by one. Datacenters are A, B and C.

use bytes::Bytes;

use super::history::Commit;
use super::{bytes, dc};
use crate::base::time::Timestamp;
use crate::crdt::VersionVector;
use crate::crdt::value::{Dot, Slots};
use geolock_api::names::DcId;
use geolock_api::value::{
    FlagOp, MapOp, MapType, Op, PathStep, Reading, RegisterOp, ResettableCounterOp, SetOp, Type, Update,
    VersionedReading,
};

const A: u8 = 0;
const B: u8 = 1;
const C: u8 = 2;

/// Commits of datacenters that may not know of each other.
#[derive(Default)]
struct Story(Vec<Commit>);

impl Story {
    /// Adds a transaction in a datacenter that has seen these commits; its number is the next one there.
    fn then(self, at: u8, seen: &[(u8, u64)], op: Op) -> Story {
        self.within(at, seen, &[], op)
    }

    /// The same in a field of maps.
    fn within(mut self, at: u8, seen: &[(u8, u64)], path: &[PathStep], op: Op) -> Story {
        let seq = 1 + self.0.iter().filter(|commit| commit.dot.dc == dc(at)).count();
        self.0.push(Commit {
            dot: Dot { dc: dc(at), seq: u64::try_from(seq).expect("few") },
            stamp: Timestamp::from_millis(seen.iter().map(|(_, seq)| seq + 1).max().unwrap_or(1)),
            seen: seen.iter().map(|(id, seq)| (dc(*id), *seq)).collect(),
            changes: vec![Update { path: path.to_vec(), op }],
        });
        self
    }

    /// Returns the final reading in a datacenter, and asserts that it is the same if commits arrive as early
    /// or as late as they can.
    fn read_in(&self, me: DcId) -> Option<Reading> {
        let (mut early, mut late) = (Slots::default(), Slots::default());
        self.0.iter().for_each(|commit| commit.apply_to(&mut early));
        let mut vector = VersionVector::default();
        for _ in &self.0 {
            let next = self.0.iter().rfind(|commit| commit.is_ready_at(&vector)).expect("one is ready");
            next.apply_to(&mut late);
            vector.raise(next.dot.dc, next.dot.seq);
        }
        assert_eq!(early, late, "the order of arrival does not matter");
        early.compact(&vector);
        assert_eq!(early.read(me), late.read(me));
        early.read(me)
    }

    fn read(&self) -> Option<Reading> {
        self.read_in(dc(A))
    }
}

fn story() -> Story {
    Story::default()
}

fn all(items: &[&'static str]) -> Vec<Bytes> {
    items.iter().map(|item| bytes(item)).collect()
}

fn add(amount: i64) -> Op {
    Op::ResettableCounter(ResettableCounterOp::Add(amount))
}

fn field(map: MapType, name: &'static str) -> PathStep {
    PathStep { map, field: bytes(name) }
}

#[test]
fn counters_add_up() {
    let story = story().then(A, &[], Op::Counter(2)).then(B, &[], Op::Counter(-5));
    assert_eq!(story.read(), Some(Reading::Counter(-3)));
}

#[test]
fn a_reset_takes_away_the_additions_it_saw() {
    let reset = Op::ResettableCounter(ResettableCounterOp::Reset);
    let story = story().then(A, &[], add(2)).then(B, &[], add(3)).then(A, &[(A, 1)], reset);
    assert_eq!(story.read(), Some(Reading::ResettableCounter(3)));
}

#[test]
fn two_transactions_of_one_datacenter_can_be_concurrent() {
    let reset = Op::ResettableCounter(ResettableCounterOp::Reset);
    let story = story().then(A, &[], add(2)).then(A, &[(A, 1)], add(3)).then(A, &[(A, 1)], reset);
    assert_eq!(story.read(), Some(Reading::ResettableCounter(3)));
}

#[test]
fn rights_of_a_bounded_counter_move() {
    let story = story()
        .then(A, &[], Op::BoundedCounter(5))
        .then(A, &[(A, 1)], Op::TransferRights { to: dc(B), amount: 2 })
        .then(B, &[(A, 2)], Op::BoundedCounter(-2))
        .then(A, &[(A, 2)], Op::BoundedCounter(-3))
        .then(C, &[], Op::BoundedCounter(1));
    assert_eq!(story.read_in(dc(A)), Some(Reading::BoundedCounter { value: 1, rights: 0 }));
    assert_eq!(story.read_in(dc(C)), Some(Reading::BoundedCounter { value: 1, rights: 1 }));
}

#[test]
fn the_last_writer_wins_then_the_higher_datacenter() {
    let register = |value| Op::LwwRegister(bytes(value));
    let last = |value| Some(Reading::LwwRegister(Some(bytes(value))));
    let same_stamp = story().then(A, &[], register("z")).then(B, &[], register("a"));
    assert_eq!(same_stamp.read(), last("a"));
    let later = same_stamp.then(A, &[(A, 1)], register("b"));
    assert_eq!(later.read(), last("b"));
}

#[test]
fn a_multi_value_register_shows_concurrent_assignments() {
    let assign = |value| Op::MvRegister(RegisterOp::Assign(bytes(value)));
    let both = story().then(A, &[], assign("b")).then(B, &[], assign("a"));
    assert_eq!(both.read(), Some(Reading::MvRegister(all(&["a", "b"]))));
    let one = both.then(C, &[(A, 1)], assign("c"));
    assert_eq!(one.read(), Some(Reading::MvRegister(all(&["a", "c"]))));
    let none = one.then(A, &[(A, 1), (B, 1), (C, 1)], Op::MvRegister(RegisterOp::Reset));
    assert_eq!(none.read(), None);
}

#[test]
fn the_higher_version_wins_then_the_greater_bytes() {
    let write = |version, value| Op::Versioned { version, value: bytes(value), done: false };
    let value = |version, value| VersionedReading { version, value: bytes(value), done: false };
    let tie = story().then(A, &[], write(2, "y")).then(B, &[], write(2, "x")).then(C, &[], write(1, "z"));
    assert_eq!(tie.read(), Some(Reading::Versioned(Some(value(2, "y")))));
    let higher = tie.then(C, &[(C, 1)], write(3, "a"));
    assert_eq!(higher.read(), Some(Reading::Versioned(Some(value(3, "a")))));
}

#[test]
fn an_add_survives_a_remove_that_did_not_see_it() {
    let story = story()
        .then(A, &[], Op::AddWinsSet(SetOp::Add(all(&["seen", "both"]))))
        .then(B, &[(A, 1)], Op::AddWinsSet(SetOp::Remove(all(&["seen", "both"]))))
        .then(C, &[(A, 1)], Op::AddWinsSet(SetOp::Add(all(&["both"]))));
    assert_eq!(story.read(), Some(Reading::Set(Type::AddWinsSet, all(&["both"]))));
}

#[test]
fn a_remove_takes_away_an_add_that_did_not_see_it() {
    let add = |item| Op::RemoveWinsSet(SetOp::Add(all(&[item])));
    let gone = story()
        .then(A, &[], add("a"))
        .then(B, &[(A, 1)], Op::RemoveWinsSet(SetOp::Remove(all(&["a"]))))
        .then(C, &[(A, 1)], add("a"));
    assert_eq!(gone.read(), None);
    let again = gone.then(A, &[(A, 1), (B, 1)], add("a"));
    assert_eq!(again.read(), Some(Reading::Set(Type::RemoveWinsSet, all(&["a"]))));
}

#[test]
fn a_reset_of_a_remove_wins_set_is_no_remove() {
    let story = story()
        .then(A, &[], Op::RemoveWinsSet(SetOp::Add(all(&["a", "b"]))))
        .then(B, &[(A, 1)], Op::RemoveWinsSet(SetOp::Reset))
        .then(C, &[(A, 1)], Op::RemoveWinsSet(SetOp::Add(all(&["b"]))));
    assert_eq!(story.read(), Some(Reading::Set(Type::RemoveWinsSet, all(&["b"]))));
}

#[test]
fn a_grow_only_set_has_all() {
    let story = story().then(A, &[], Op::GrowOnlySet(all(&["a", "b"]))).then(
        B,
        &[],
        Op::GrowOnlySet(all(&["c", "b"])),
    );
    assert_eq!(story.read(), Some(Reading::Set(Type::GrowOnlySet, all(&["a", "b", "c"]))));
}

#[test]
fn of_enable_and_disable_one_wins() {
    let enable_wins = story()
        .then(A, &[], Op::EnableWinsFlag(FlagOp::Enable))
        .then(B, &[(A, 1)], Op::EnableWinsFlag(FlagOp::Disable))
        .then(C, &[(A, 1)], Op::EnableWinsFlag(FlagOp::Enable));
    assert_eq!(enable_wins.read(), Some(Reading::Flag(Type::EnableWinsFlag, true)));
    let disable_wins = story()
        .then(A, &[], Op::DisableWinsFlag(FlagOp::Enable))
        .then(B, &[(A, 1)], Op::DisableWinsFlag(FlagOp::Disable))
        .then(C, &[(A, 1)], Op::DisableWinsFlag(FlagOp::Enable));
    assert_eq!(disable_wins.read(), None);
    let seen = disable_wins.then(A, &[(A, 1), (B, 1)], Op::DisableWinsFlag(FlagOp::Enable));
    assert_eq!(seen.read(), Some(Reading::Flag(Type::DisableWinsFlag, true)));
}

#[test]
fn a_grow_only_map_merges_field_by_field() {
    let at = |name| [field(MapType::GrowOnly, name)];
    let story = story()
        .within(A, &[], &at("f"), Op::Counter(1))
        .within(B, &[], &at("f"), Op::Counter(2))
        .within(B, &[], &at("g"), Op::LwwRegister(bytes("a")));
    let fields =
        vec![(bytes("f"), Reading::Counter(3)), (bytes("g"), Reading::LwwRegister(Some(bytes("a"))))];
    assert_eq!(story.read(), Some(Reading::Map(Type::GrowOnlyMap, fields)));
}

#[test]
fn removing_a_field_takes_away_what_it_saw_in_it_all_the_way_down() {
    let outer = field(MapType::Resettable, "f");
    let (inner, other) =
        ([outer.clone(), field(MapType::Resettable, "x")], [outer, field(MapType::Resettable, "y")]);
    let story = story()
        .within(A, &[], &inner, add(2))
        .within(A, &[(A, 1)], &other, Op::MvRegister(RegisterOp::Assign(bytes("a"))))
        .then(B, &[(A, 2)], Op::ResettableMap(MapOp::Remove(all(&["f"]))))
        .within(C, &[(A, 2)], &inner, add(3));
    let inner = Reading::Map(Type::ResettableMap, vec![(bytes("x"), Reading::ResettableCounter(3))]);
    assert_eq!(story.read(), Some(Reading::Map(Type::ResettableMap, vec![(bytes("f"), inner)])));
}

#[test]
fn of_two_types_at_once_the_first_in_the_list_is_seen_until_it_is_empty() {
    let both = story().then(A, &[], Op::AddWinsSet(SetOp::Add(all(&["a"])))).then(B, &[], add(2));
    assert_eq!(both.read(), Some(Reading::ResettableCounter(2)));
    let reset = Op::ResettableCounter(ResettableCounterOp::Reset);
    let one = both.then(C, &[(A, 1), (B, 1)], reset);
    assert_eq!(one.read(), Some(Reading::Set(Type::AddWinsSet, all(&["a"]))));
}

#[test]
fn an_emptied_set_leaves_nothing_once_every_datacenter_knows() {
    let items: Vec<Bytes> = (0..10_000).map(|n: u32| Bytes::copy_from_slice(&n.to_be_bytes())).collect();
    for op in [Op::AddWinsSet, Op::RemoveWinsSet] {
        let story = story().then(A, &[], op(SetOp::Add(items.clone()))).then(
            B,
            &[(A, 1)],
            op(SetOp::Remove(items.clone())),
        );
        let mut slots = Slots::default();
        story.0.iter().for_each(|commit| commit.apply_to(&mut slots));
        assert!(!slots.is_visible());
        slots.compact(&VersionVector::from_iter([(dc(A), 1), (dc(B), 1)]));
        assert!(slots.is_empty());
    }
}
