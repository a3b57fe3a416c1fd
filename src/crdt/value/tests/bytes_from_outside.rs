//! Values as a damaged disk or a faulty peer may deliver them.

use proptest::collection::vec;
use proptest::prelude::any;
use proptest::sample::Index;

use super::history::{Commit, histories};
use super::{bytes, dc};
use crate::base::wire;
use crate::crdt::VersionVector;
use crate::crdt::histories::{DCS, run};
use crate::crdt::value::Slots;
use geolock_api::value::{
    FlagOp, MAX_DEPTH, MapType, Op, PathStep, Reading, ResettableCounterOp, SetOp, Update,
};

/// Calls everything that a store calls.
fn use_it(mut slots: Slots, commits: &[Commit]) {
    for commit in commits {
        for update in &commit.changes {
            slots.digest_near(1, update);
            let _ = slots.check(update, commit.dot.dc);
        }
        commit.apply_to(&mut slots);
        (0..DCS).for_each(|me| drop(slots.read(dc(me))));
        slots.digest(1);
    }
    slots.compact(&VersionVector::from_iter((0..DCS).map(|id| (dc(id), u64::MAX))));
    wire::encode("value", &slots).expect("it is small");
}

#[test]
fn damaged_bytes_are_an_error_or_some_value() {
    let damages = vec((any::<Index>(), any::<u8>()), 1..6);
    let (good, bad) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    run(3_000, &(histories(), damages), |(commits, damages)| {
        let mut slots = Slots::default();
        commits.iter().for_each(|commit| commit.apply_to(&mut slots));
        let mut encoded = wire::encode("value", &slots).expect("it is small");
        for (place, byte) in damages {
            let place = place.index(encoded.len());
            encoded[place] = byte;
        }
        match wire::decode::<Slots>("value", &encoded) {
            Ok(slots) => {
                good.set(good.get() + 1);
                use_it(slots, &commits);
            }
            Err(_) => bad.set(bad.get() + 1),
        }
        Ok(())
    });
    assert!(good.get() > 100 && bad.get() > 500, "{} of them decode, {} do not", good.get(), bad.get());
}

#[test]
fn random_bytes_are_an_error_or_some_value() {
    run(3_000, &(histories(), vec(any::<u8>(), 0..60)), |(commits, encoded)| {
        if let Ok(slots) = wire::decode::<Slots>("value", &encoded) {
            use_it(slots, &commits);
        }
        Ok(())
    });
}

fn refused(encoded: &[u8]) -> String {
    wire::decode::<Slots>("value", encoded).expect_err("no value").to_string()
}

#[test]
fn what_is_no_value_is_refused_with_the_reason() {
    // A list of one leaf: keep 0, no steps, leaf 0 (a counter) at 0.
    assert!(refused(&[1, 0, 0, 0, 0]).contains("an empty counter"));
    // The same counter twice.
    assert!(refused(&[2, 0, 0, 0, 2, 0, 0, 0, 2]).contains("two counters in one place"));
    // Keeps a step of a path that has none.
    assert!(refused(&[1, 1, 0, 0, 2]).contains("keeps 1 steps of one of 0"));
    // A counter in a resettable map (1), in its field "f".
    assert!(refused(&[1, 0, 1, 1, 1, b'f', 0, 2]).contains("cannot be reset"));
    // An add-wins set (6) with one element "a" without dots.
    assert!(refused(&[1, 0, 0, 6, 1, 1, b'a', 0]).contains("nothing is left of"));
    // The same with a dot twice.
    assert!(refused(&[1, 0, 0, 6, 1, 1, b'a', 2, 0, 1, 0, 1]).contains("each once"));
    // Nine nested maps.
    let mut deep = vec![1, 0, 9];
    (0..9).for_each(|_| deep.extend([0, 1, b'f']));
    deep.extend([0, 2]);
    assert!(refused(&deep).contains("at most 8 deep"));
    // 2^62 leaves, of which none follows; the same for elements and for dots.
    let many = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0x40];
    refused(&many);
    refused(&[&[1, 0, 0, 6][..], &many].concat());
    refused(&[&[1, 0, 0, 6, 1, 1, b'a'][..], &many].concat());
}

#[test]
fn the_deepest_value_is_read_as_it_was_written() {
    let steps = |depth| vec![PathStep { map: MapType::GrowOnly, field: bytes("f") }; depth];
    let mut slots = Slots::default();
    let commit = Commit {
        dot: crate::crdt::value::Dot { dc: dc(0), seq: 1 },
        stamp: crate::base::time::Timestamp::from_millis(1),
        seen: VersionVector::default(),
        changes: (1..=MAX_DEPTH).map(|depth| Update { path: steps(depth), op: Op::Counter(1) }).collect(),
    };
    commit.apply_to(&mut slots);
    let encoded = wire::encode("value", &slots).expect("it is small");
    assert_eq!(wire::decode::<Slots>("value", &encoded).expect("its own bytes"), slots);
}

#[test]
fn the_bytes_of_values_stay_what_they_are() {
    let updates = [
        Op::Counter(-1),
        Op::ResettableCounter(ResettableCounterOp::Add(2)),
        Op::AddWinsSet(SetOp::Add(vec![bytes("a")])),
        Op::DisableWinsFlag(FlagOp::Disable),
    ];
    let commit = Commit {
        dot: crate::crdt::value::Dot { dc: dc(1), seq: 3 },
        stamp: crate::base::time::Timestamp::from_millis(1),
        seen: VersionVector::default(),
        changes: updates.map(Update::of).to_vec(),
    };
    let mut slots = Slots::default();
    commit.apply_to(&mut slots);
    let encoded = wire::encode("value", &slots).expect("it is small");
    assert_eq!(
        encoded,
        [
            4, // leaves
            0, 0, 0, 1, // counter: -1
            0, 0, 1, 4, 1, 1, 3, 4, // resettable counter: sum 2; dc 1, seq 3 added 2
            0, 0, 6, 1, 1, b'a', 1, 1, 3, // add-wins set: a, by dc 1, seq 3
            0, 0, 10, 0, 1, 1, 3, // disable-wins flag: no enables, one disable
        ]
    );
    assert_eq!(slots.read(dc(0)), Some(Reading::Counter(-1)));
}
