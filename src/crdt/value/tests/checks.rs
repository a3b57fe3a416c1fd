//! Operations that are refused where they are requested.

use super::history::Commit;
use super::{bytes, dc};
use crate::base::time::Timestamp;
use crate::crdt::VersionVector;
use crate::crdt::value::{At, Dot, Slots};
use geolock_api::value::{MapOp, MapType, Op, OpError, PathStep, ResettableCounterOp, SetOp, Type, Update};

/// Returns a value that datacenter 0 wrote by these operations.
fn written(updates: &[Update]) -> Slots {
    let mut slots = Slots::default();
    Commit {
        dot: Dot { dc: dc(0), seq: 1 },
        stamp: Timestamp::from_millis(1),
        seen: VersionVector::default(),
        changes: updates.to_vec(),
    }
    .apply_to(&mut slots);
    slots
}

fn at_key(op: Op) -> Update {
    Update::of(op)
}

fn in_field(map: MapType, op: Op) -> Update {
    Update { path: vec![PathStep { map, field: bytes("f") }], op }
}

fn checked(before: &[Update], update: &Update) -> Result<(), OpError> {
    written(before).check(update, dc(0))
}

#[test]
fn a_key_is_of_one_type() {
    let error = |is, wanted| Err(OpError::WrongType { is, wanted });
    let set = at_key(Op::AddWinsSet(SetOp::Add(vec![bytes("a")])));
    let counter = at_key(Op::Counter(1));
    assert_eq!(checked(&[], &counter), Ok(()));
    assert_eq!(checked(std::slice::from_ref(&set), &set), Ok(()));
    assert_eq!(checked(std::slice::from_ref(&set), &counter), error(Type::AddWinsSet, Type::Counter));
    let field = in_field(MapType::GrowOnly, Op::Counter(1));
    assert_eq!(checked(std::slice::from_ref(&set), &field), error(Type::AddWinsSet, Type::GrowOnlyMap));
    let other_map = at_key(Op::ResettableMap(MapOp::Reset));
    assert_eq!(checked(&[field], &other_map), error(Type::GrowOnlyMap, Type::ResettableMap));
    // Empty again, it can be used as any type.
    let emptied = at_key(Op::AddWinsSet(SetOp::Reset));
    assert_eq!(checked(&[set, emptied], &counter), Ok(()));
}

#[test]
fn a_field_is_of_one_type() {
    let counter = in_field(MapType::GrowOnly, Op::Counter(1));
    let register = in_field(MapType::GrowOnly, Op::LwwRegister(bytes("a")));
    assert_eq!(checked(std::slice::from_ref(&counter), &counter), Ok(()));
    assert_eq!(
        checked(&[counter], &register),
        Err(OpError::WrongType { is: Type::Counter, wanted: Type::LwwRegister })
    );
}

#[test]
fn a_counter_stays_in_its_range() {
    let resettable = |amount| Op::ResettableCounter(ResettableCounterOp::Add(amount));
    for op in [Op::Counter, resettable] {
        assert_eq!(checked(&[at_key(op(i64::MAX))], &at_key(op(1))), Err(OpError::Overflow));
        assert_eq!(checked(&[at_key(op(i64::MAX))], &at_key(op(i64::MIN))), Ok(()));
        assert_eq!(checked(&[at_key(op(i64::MIN))], &at_key(op(-1))), Err(OpError::Overflow));
    }
    let in_map = in_field(MapType::Resettable, resettable(i64::MAX));
    assert_eq!(checked(std::slice::from_ref(&in_map), &in_map), Err(OpError::Overflow));
    let most = at_key(Op::BoundedCounter(i64::MAX));
    assert_eq!(
        checked(&[most.clone(), most.clone(), at_key(Op::BoundedCounter(1))], &most),
        Err(OpError::Overflow)
    );
}

#[test]
fn a_bounded_counter_goes_down_by_its_rights_only() {
    let slots =
        written(&[at_key(Op::BoundedCounter(5)), at_key(Op::TransferRights { to: dc(1), amount: 3 })]);
    let take = |amount: i64, me| slots.check(&at_key(Op::BoundedCounter(-amount)), dc(me));
    let give = |amount, me| slots.check(&at_key(Op::TransferRights { to: dc(2), amount }), dc(me));
    assert_eq!(take(2, 0), Ok(()));
    assert_eq!(take(3, 0), Err(OpError::InsufficientRights { asked: 3, rights: 2 }));
    assert_eq!(take(3, 1), Ok(()));
    assert_eq!(take(1, 2), Err(OpError::InsufficientRights { asked: 1, rights: 0 }));
    assert_eq!(
        take(i64::MAX, 1),
        Err(OpError::InsufficientRights { asked: i64::MAX.unsigned_abs(), rights: 3 })
    );
    assert_eq!(give(2, 0), Ok(()));
    assert_eq!(give(3, 0), Err(OpError::InsufficientRights { asked: 3, rights: 2 }));
    assert_eq!(give(u64::MAX, 1), Err(OpError::InsufficientRights { asked: u64::MAX, rights: 3 }));
    let least = at_key(Op::BoundedCounter(i64::MIN));
    assert_eq!(slots.check(&least, dc(0)), Err(OpError::InsufficientRights { asked: 1 << 63, rights: 2 }));
}

#[test]
fn a_version_is_higher_than_the_one_before() {
    let write = |version| at_key(Op::Versioned { version, value: bytes("a"), done: false });
    assert_eq!(checked(&[], &write(0)), Ok(()));
    assert_eq!(checked(&[write(3)], &write(4)), Ok(()));
    assert_eq!(checked(&[write(3)], &write(3)), Err(OpError::Stale { is: 3, written: 3 }));
    assert_eq!(checked(&[write(3)], &write(2)), Err(OpError::Stale { is: 3, written: 2 }));
}

#[test]
fn nothing_follows_what_is_done() {
    let write = |version, done| at_key(Op::Versioned { version, value: bytes("a"), done });
    assert_eq!(checked(&[write(3, true)], &write(4, false)), Err(OpError::Done { is: 3 }));
    assert_eq!(checked(&[write(3, true)], &write(3, true)), Err(OpError::Done { is: 3 }));
    assert_eq!(
        checked(&[write(3, true), write(4, false)], &write(5, false)),
        Ok(()),
        "that one was under way"
    );
    let field = |done| in_field(MapType::GrowOnly, Op::Versioned { version: 1, value: bytes("a"), done });
    assert_eq!(checked(&[field(true)], &field(false)), Err(OpError::Done { is: 1 }));
}

#[test]
fn a_value_is_done_by_the_commit_that_stands() {
    let done_by = |writes: &[(u8, Op)]| {
        let mut slots = Slots::default();
        for (seq, (id, op)) in (1..).zip(writes) {
            let (dot, seen) = (Dot { dc: dc(*id), seq }, VersionVector::default());
            let at = At { dot, index: 0, stamp: Timestamp::from_raw(seq), seen: &seen };
            slots.apply(&Update::of(op.clone()), &at);
        }
        slots.done_by().map(|dot| (dot.dc.get(), dot.seq))
    };
    let write = |version, done| Op::Versioned { version, value: bytes("a"), done };
    assert_eq!(done_by(&[(0, write(1, false))]), None);
    assert_eq!(done_by(&[(0, write(1, true))]), Some((0, 1)));
    assert_eq!(done_by(&[(1, write(1, true)), (0, write(1, true))]), Some((1, 1)), "the same, written twice");
    assert_eq!(done_by(&[(0, write(1, true)), (1, write(2, false))]), None);
    assert_eq!(done_by(&[(0, write(2, true)), (1, write(1, false))]), Some((0, 1)));
    // A value of another type is hidden or visible; it does not count if it shows nothing.
    assert_eq!(done_by(&[(0, write(1, true)), (1, Op::GrowOnlySet(vec![bytes("a")]))]), None);
    assert_eq!(done_by(&[(0, write(1, true)), (1, Op::Counter(1))]), None);
    assert_eq!(
        done_by(&[(0, write(1, true)), (1, Op::RemoveWinsSet(SetOp::Remove(vec![bytes("a")])))]),
        Some((0, 1))
    );
    assert_eq!(done_by(&[]), None);
}

#[test]
fn what_cannot_be_anywhere_is_refused_everywhere() {
    let steps = vec![PathStep { map: MapType::GrowOnly, field: bytes("f") }; 9];
    let too_deep = Update { path: steps, op: Op::Counter(1) };
    assert_eq!(checked(&[], &too_deep), Err(OpError::TooDeep(9)));
    let counter = in_field(MapType::Resettable, Op::Counter(1));
    assert_eq!(checked(&[], &counter), Err(OpError::NotResettable(Type::Counter)));
    let bounded = in_field(MapType::GrowOnly, Op::BoundedCounter(1));
    assert_eq!(checked(&[], &bounded), Err(OpError::BoundedInMap));
}
