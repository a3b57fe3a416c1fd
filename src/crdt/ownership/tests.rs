//! The map, its registers and its readers, compared with maps that are copied whole and merged in any order.

use super::*;
use geolock_api::names::{DcSet, MAX_DCS, MAX_NUMBER};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::num::NonZeroU32;

fn dc(id: u8) -> DcId {
    DcId::new(id).expect("a small id")
}

/// Generates moves (lock, part, new owner); every step is a move by the present owner.
fn moves() -> impl Strategy<Value = Vec<(u8, u8, u8)>> {
    proptest::collection::vec((0_u8..3, 0_u8..3, 0_u8..3), 0..40)
}

/// Lock 2 has the bytes of lock 0, and a home.
fn lock(name: u8) -> LockName {
    let (home, byte) = if name == 2 { (Some(dc(1)), 0) } else { (None, name) };
    LockName::with_home(home, &[byte]).expect("one byte")
}

fn part_move(map: &Ownership, (name, part, owner): (u8, u8, u8)) -> PartMove {
    let version = map.of(&lock(name)).register(dc(part)).version() + 1;
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
    (10..100_000).for_each(|n| map.apply(moved(n, 0, 2)));
    assert_eq!(map.len(), 10);
    assert!((0..100_000_u32).all(|n| {
        let lock = LockName::new(&n.to_be_bytes()).expect("four bytes");
        map.of(&lock).owner(dc(0)) == dc(u8::from(n < 10))
    }));
}

/// dc1 ends. Then another server has its slot: its part goes along with that of dc0.
#[test]
fn the_next_member_with_a_slot_owns_nothing_of_the_one_before() {
    let mut map = Ownership::new(7);
    for one in [(0, 0, 1), (0, 1, 2), (0, 2, 1), (1, 1, 0), (2, 0, 2)] {
        let one = part_move(&map, one);
        map.apply(one);
    }
    let ended = DcSet::only(dc(1));
    map.sponsors_mut().end(ended);
    let owners = |map: &Ownership| -> Vec<DcId> {
        (0..3).flat_map(|name| [0, 2].map(|part| map.of(&lock(name)).owner(dc(part)))).collect()
    };
    let before = owners(&map);
    let mut left = map.len();
    while left > 0 {
        left -= 1;
        map.forget_ended(left);
    }
    assert_eq!(owners(&map), before, "it was read so already");
    assert_eq!(map.len(), 1, "only the lock that is away from home has a row");
    map.sponsors_mut().admit(dc(1), dc(0));
    assert_eq!(owners(&map), before);
    let new_part = |name| map.of(&lock(name)).owner(dc(1));
    assert_eq!([0, 1, 2].map(new_part), [dc(0), dc(0), dc(2)], "with the part of its sponsor");
    assert_eq!(map.sponsors().home(&lock(2)), None, "its slot is no home any more");
    map.check();
}

/// Its home has ended, and another member has its slot.
#[test]
fn a_homed_lock_whose_parts_are_at_its_former_home_is_read_as_it_was_written() {
    let mut map = Ownership::new(7);
    map.sponsors_mut().end(DcSet::only(dc(1)));
    map.sponsors_mut().admit(dc(1), dc(0));
    let away = part_move(&map, (2, 2, 1));
    map.apply(away);
    let bytes = crate::base::wire::encode("map", &map).expect("it is small");
    let mut read: Ownership = crate::base::wire::decode("map", &bytes).expect("it is a map");
    *read.sponsors_mut() = map.sponsors().clone();
    assert_eq!((read.of(&lock(2)).owner(dc(2)), read.of(&lock(2)).owner(dc(0))), (dc(1), dc(0)));
}

/// A part comes back to its member, which has given what it owns to another home meanwhile: by a transfer
/// whose maker knew that, and by one whose maker did not, before and after it.
#[test]
fn a_move_home_that_crosses_with_the_giving_of_its_receiver_is_read_alike_by_all() {
    let prefix = LockName::new(&[0]).expect("one byte");
    let members: DcSet = (0..3).map(dc).collect();
    let with_rule = || {
        let mut map = Ownership::new(7);
        map.apply(PartMove { lock: lock(0), part: dc(0), owner: dc(1), version: 1 });
        map.sponsors_mut().rules_mut().begin(&prefix, Some(dc(2)), 5, members);
        map
    };
    let back = PartMove { lock: lock(0), part: dc(0), owner: dc(0), version: 2 };
    let (unaware, aware) = (crate::crdt::VersionVector::default(), [(dc(0), 9)].into_iter().collect());
    let as_of = |deps| AsOf { no_homes: DcSet::EMPTY, entry: Some((5, deps)) };
    let (mut sooner, mut later, mut wanted) = (with_rule(), with_rule(), with_rule());
    sooner.apply_as_of(back.clone(), as_of(&unaware));
    sooner.sponsors_mut().rules_mut().give(dc(0), 5, 9);
    later.sponsors_mut().rules_mut().give(dc(0), 5, 9);
    later.apply_as_of(back.clone(), as_of(&unaware));
    assert!(sooner.is_empty() && later.is_empty(), "it is at its new home");
    assert_eq!(sooner.of(&lock(0)).owner(dc(0)), dc(2));
    wanted.sponsors_mut().rules_mut().give(dc(0), 5, 9);
    wanted.apply_as_of(back, as_of(&aware));
    assert_eq!(wanted.of(&lock(0)).owner(dc(0)), dc(0), "its maker gave it away from its home");
    // That register, and one that is kept, are those of parts away from home, also after a restart.
    wanted.keep(PartMove { lock: lock(0), part: dc(1), owner: dc(1), version: 1 });
    let bytes = crate::base::wire::encode("map", &wanted).expect("it is small");
    let mut read: Ownership = crate::base::wire::decode("map", &bytes).expect("it is a map");
    *read.sponsors_mut() = wanted.sponsors().clone();
    assert_eq!(read, wanted);
    assert_eq!([0, 1].map(|part| read.of(&lock(0)).register(dc(part)).version()), [2, 1]);
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
            prop_assert_eq!(map.of(&lock(1)).owner(dc(2)), theirs.val);
        }
    }

    /// With members that have joined or ended in one of the maps, or in both, and rows in any order.
    #[test]
    fn the_differences_of_two_maps_are_the_parts_with_other_owners(
        both in moves(),
        here in moves(),
        there in moves(),
        sponsors in (0..4_u8, 0..4_u8),
    ) {
        let common = applied_one_by_one(Ownership::new(7), &both);
        let map = |moves: &[(u8, u8, u8)], sponsors: u8| {
            let mut map = applied_one_by_one(common.clone(), moves).reseeded(u64::from(sponsors));
            change_members(&mut map, sponsors);
            map
        };
        let (ours, theirs) = (map(&here, sponsors.0), map(&there, sponsors.1));
        let names_and_parts = (0..3).flat_map(|name| (0..3).map(move |part| (lock(name), dc(part))));
        let expected: BTreeSet<(LockName, DcId)> = names_and_parts
            .filter(|(_, part)| !theirs.sponsors().left().contains(*part))
            .filter(|(lock, part)| [&ours, &theirs].iter().any(|map| map.of(lock).register(*part).version() > 0))
            .filter(|(lock, part)| ours.of(lock).owner(*part) != theirs.of(lock).owner(*part))
            .collect();
        let found: Vec<_> = ours.differences(&theirs).map(|(lock, part)| (lock.clone(), part)).collect();
        prop_assert_eq!(found.len(), expected.len(), "each of them once");
        prop_assert_eq!(BTreeSet::from_iter(found), expected);
    }

    /// Of locks with registers and without, also while a member joins, or when one has ended.
    #[test]
    fn the_parts_of_an_owner_are_those_with_that_owner(moves in moves(), sponsors in 0..4_u8) {
        let mut map = applied_one_by_one(Ownership::new(7), &moves);
        change_members(&mut map, sponsors);
        let members: DcSet = (0..4).map(dc).collect();
        for name in (0..3).map(lock) {
            let owners = map.of(&name);
            for owner in members.iter() {
                let expected: DcSet = members.iter().filter(|part| owners.owner(*part) == owner).collect();
                prop_assert_eq!(owners.parts_of(owner, members), expected, "{} of {}", owner, &name);
            }
        }
    }

    /// A lock that is at home takes no memory; every other lock has a row.
    #[test]
    fn only_what_is_away_is_kept(moves in moves()) {
        let mut map = Ownership::new(7);
        for one in moves {
            map.apply(part_move(&map, one));
        }
        let home = |name: u8, part: u8| if name == 2 { dc(1) } else { dc(part) };
        let away = |name: u8| (0..3).any(|part| map.of(&lock(name)).owner(dc(part)) != home(name, part));
        for name in 0..3 {
            prop_assert_eq!(map.of(&lock(name)).is_home(), !away(name));
        }
        prop_assert_eq!(map.len(), (0..3).filter(|name| away(*name)).count());
        let bytes = crate::base::wire::encode("ownership", &map).expect("it is small");
        prop_assert_eq!(crate::base::wire::decode::<Ownership>("ownership", &bytes).expect("it was written"), map);
    }
}

proptest! {
    /// However it is read, and whatever moves meanwhile.
    #[test]
    fn a_reader_finds_what_was_there_when_it_began(before in moves(), after in moves(), most in 1_usize..3) {
        let mut map = applied_one_by_one(Ownership::new(7), &before);
        let (reader, expected, mut read) = (map.table_mut().open_reader(), map.copy(), Ownership::default());
        for one in after {
            read.extend(map.table_mut().read(reader, most - 1));
            map = applied_one_by_one(map, &[one]);
        }
        loop {
            let piece = map.table_mut().read(reader, most);
            if piece.is_empty() {
                break;
            }
            read.extend(piece);
        }
        prop_assert_eq!(&read, &expected);
        prop_assert!(read.table.iter().map(LockRow::lock).eq(expected.table.iter().map(LockRow::lock)));
        map.table_mut().close_reader(reader);
        prop_assert_eq!(map.table().readers(), 0);
    }
}

proptest! {
    /// The same while the map gets and loses blocks, and the tables of its index grow.
    #[test]
    fn a_reader_finds_what_was_there_while_the_map_grows_and_shrinks(
        before in 250_u16..270,
        after in proptest::collection::vec(0_u16..600, 0..600),
        most in 1_usize..80,
    ) {
        let mut map = Ownership::new(7);
        // The part moves to dc1 if it is at home, else it comes home.
        let move_it = |map: &mut Ownership, n: u16| {
            let lock = LockName::new(&n.to_be_bytes()).expect("two bytes");
            let version = map.of(&lock).register(dc(0)).version() + 1;
            let owner = dc(u8::from(map.of(&lock).is_home()));
            map.apply(PartMove { lock, part: dc(0), owner, version });
        };
        (0..before).for_each(|n| move_it(&mut map, n));
        let (reader, expected, mut read) = (map.table_mut().open_reader(), map.copy(), Ownership::default());
        let mut after = after.chunks(64);
        loop {
            let piece = map.table_mut().read(reader, most);
            if piece.is_empty() {
                break;
            }
            read.extend(piece);
            after.next().into_iter().flatten().for_each(|n| move_it(&mut map, *n));
        }
        prop_assert_eq!(&read, &expected);
        prop_assert!(read.table.iter().map(LockRow::lock).eq(expected.table.iter().map(LockRow::lock)));
    }
}

fn applied_one_by_one(mut map: Ownership, moves: &[(u8, u8, u8)]) -> Ownership {
    for one in moves {
        map.apply(part_move(&map, *one));
    }
    map
}

/// A member joins, or one ends, or nothing changes.
fn change_members(map: &mut Ownership, which: u8) {
    match which {
        1 => map.sponsors_mut().admit(dc(3), dc(0)),
        2 => map.sponsors_mut().end(DcSet::only(dc(2))),
        3 => {
            map.sponsors_mut().admit(dc(3), dc(0));
            map.sponsors_mut().split(dc(3));
        }
        _ => {}
    }
}

/// Bytes that a client can influence are indexed by a hash that the client cannot predict.
#[test]
fn what_is_decoded_is_hashed_with_a_seed_of_its_own() {
    let decoded = |name| {
        let mut map = Ownership::new(7);
        map.apply(part_move(&map, (name, 0, 1)));
        let bytes = crate::base::wire::encode("ownership", &map).expect("it is small");
        crate::base::wire::decode::<Ownership>("ownership", &bytes).expect("it was written")
    };
    let hashes = [Ownership::default(), decoded(1), decoded(0)].map(|map| map.table().hash(&lock(1)));
    assert!(hashes[0] != hashes[1] && hashes[1] != hashes[2] && hashes[0] != hashes[2], "{hashes:?}");
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
        let bytes = crate::base::wire::encode("ownership", &locks).expect("it is small");
        crate::base::wire::decode::<Ownership>("ownership", &bytes).map_err(|error| error.to_string())
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

/// The listed locks, the one that was unused for longest first.
fn in_order_of_use(map: &Ownership) -> Vec<LockName> {
    let rows = map.recency().oldest_first();
    rows.map(|row| map.lock_at(row).expect("a listed row is there").clone()).collect()
}

proptest! {
    /// Whatever moves, the list has the order of a plain vector.
    #[test]
    fn the_list_is_in_the_order_of_use(events in proptest::collection::vec((0_u8..8, 0_u8..5), 0..200)) {
        let (mut map, mut expected) = (Ownership::new(7), Vec::new());
        for (second, (name, event)) in (1..).zip(events) {
            let (name_of, second) = (lock(name), NonZeroU32::new(second).expect("it begins at 1"));
            expected.retain(|other| *other != name_of || event == 4);
            match event {
                // It comes home, or goes away.
                0 => {
                    let owner = u8::from(map.of(&name_of).is_home());
                    map.apply(part_move(&map, (name, 0, owner)));
                }
                1 => map.table_mut().set_listed(&name_of, false),
                2 | 3 => {
                    map.table_mut().set_listed(&name_of, true);
                    map.table_mut().note_used(&name_of, second);
                    expected.extend((!map.of(&name_of).is_home()).then_some(name_of));
                }
                _ => map.table_mut().set_listed(&lock(9), true),
            }
            prop_assert_eq!(in_order_of_use(&map), expected.clone());
            prop_assert_eq!(map.recency().listed(), expected.len());
            let newest = map.recency().newest().and_then(|row| map.lock_at(row));
            prop_assert_eq!(newest, expected.last());
        }
    }
}
