//! Our types against those of the `crdts` crate, in the histories that the crate supports: one operation per
//! commit, and every transaction sees everything that its datacenter has applied.

use std::collections::BTreeSet;

use bytes::Bytes;
use crdts::{CmRDT, VClock};
use proptest::prop_assert_eq;
use proptest::test_runner::TestCaseResult;

use super::history::{Commit, orderly_histories};
use super::laws::choices;
use super::{bytes, dc};
use crate::crdt::VersionVector;
use crate::crdt::histories::{reorder, run};
use crate::crdt::value::Slots;
use geolock_api::value::{Op, Reading, RegisterOp, SetOp, Type};

fn clock(vector: &VersionVector) -> VClock<u8> {
    vector.iter().map(|(dc, seq)| crdts::Dot::new(dc.get(), seq)).collect()
}

/// Applies histories to a value of ours and to one of the crate's: `theirs` builds the crate's operations,
/// `shown` reads them.
fn compare<C: CmRDT + Default>(
    of: Type,
    theirs: impl Fn(&[Commit], &Commit) -> Vec<C::Op>,
    shown: impl Fn(&C) -> Reading,
) {
    let law = |(commits, order): (Vec<Commit>, Vec<proptest::sample::Index>)| -> TestCaseResult {
        let empty = shown(&C::default());
        let (mut ours, mut other) = (Slots::default(), C::default());
        for commit in reorder(&commits, &order) {
            commit.apply_to(&mut ours);
            theirs(&commits, &commit).into_iter().for_each(|op| other.apply(op));
            prop_assert_eq!(ours.read(dc(0)).unwrap_or_else(|| empty.clone()), shown(&other));
        }
        Ok(())
    };
    run(300, &(orderly_histories(of), choices()), law);
}

#[test]
fn the_counter_is_the_crates() {
    let theirs = |commits: &[Commit], commit: &Commit| {
        // The crate's operations carry the running total of their maker in one direction.
        let amount = |commit: &Commit| match commit.changes[0].op {
            Op::Counter(amount) => amount,
            _ => panic!("of this type"),
        };
        let here = amount(commit);
        let until_here =
            commits.iter().filter(|other| other.dot.dc == commit.dot.dc && other.dot <= commit.dot);
        let total: u64 =
            until_here.map(amount).filter(|n| n.signum() == here.signum()).map(i64::unsigned_abs).sum();
        let dir = if here < 0 { crdts::pncounter::Dir::Neg } else { crdts::pncounter::Dir::Pos };
        let op = crdts::pncounter::Op { dot: crdts::Dot::new(commit.dot.dc.get(), total), dir };
        if here == 0 { vec![] } else { vec![op] }
    };
    compare::<crdts::PNCounter<u8>>(Type::Counter, theirs, |counter| {
        Reading::Counter(counter.read().to_string().parse().expect("a small number"))
    });
}

#[test]
fn the_multi_value_register_is_the_crates_but_shows_equal_values_once() {
    // The crate's register has no reset operation; here a reset is an assignment of a value that readers do
    // not see.
    let theirs = |_: &[Commit], commit: &Commit| {
        let mut clock = clock(&commit.seen);
        clock.apply(crdts::Dot::new(commit.dot.dc.get(), commit.dot.seq));
        let val = match &commit.changes[0].op {
            Op::MvRegister(RegisterOp::Assign(value)) => Some(value.clone()),
            Op::MvRegister(RegisterOp::Reset) => None,
            _ => panic!("of this type"),
        };
        vec![crdts::mvreg::Op::Put { clock, val }]
    };
    compare::<crdts::MVReg<Option<Bytes>, u8>>(Type::MvRegister, theirs, |register| {
        let values: BTreeSet<Bytes> = register.read().val.into_iter().flatten().collect();
        Reading::MvRegister(values.into_iter().collect())
    });
}

#[test]
fn the_add_wins_set_is_the_crates() {
    let theirs = |_: &[Commit], commit: &Commit| {
        let (dot, clock) = (crdts::Dot::new(commit.dot.dc.get(), commit.dot.seq), clock(&commit.seen));
        vec![match &commit.changes[0].op {
            Op::AddWinsSet(SetOp::Add(members)) => crdts::orswot::Op::Add { dot, members: members.clone() },
            Op::AddWinsSet(SetOp::Remove(members)) => {
                crdts::orswot::Op::Rm { clock, members: members.clone() }
            }
            Op::AddWinsSet(SetOp::Reset) => {
                crdts::orswot::Op::Rm { clock, members: ["a", "b", "c"].map(bytes).to_vec() }
            }
            _ => panic!("of this type"),
        }]
    };
    compare::<crdts::Orswot<Bytes, u8>>(Type::AddWinsSet, theirs, |set| {
        let elements: BTreeSet<Bytes> = set.read().val.into_iter().collect();
        Reading::Set(Type::AddWinsSet, elements.into_iter().collect())
    });
}

#[test]
fn the_grow_only_set_is_the_crates() {
    let theirs = |_: &[Commit], commit: &Commit| match &commit.changes[0].op {
        Op::GrowOnlySet(items) => items.clone(),
        _ => panic!("of this type"),
    };
    compare::<crdts::GSet<Bytes>>(Type::GrowOnlySet, theirs, |set| {
        Reading::Set(Type::GrowOnlySet, set.read().into_iter().collect())
    });
}
