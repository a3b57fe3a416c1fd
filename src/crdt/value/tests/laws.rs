//! Laws that hold for every type in every causal history.

use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::{Strategy, any};
use proptest::sample::Index;
use proptest::test_runner::TestCaseResult;
use proptest::{prop_assert, prop_assert_eq};

use super::history::{Commit, histories, play};
use super::oracle::expected;
use super::{bytes, dc};
use crate::base::time::Timestamp;
use crate::base::wire;
use crate::crdt::VersionVector;
use crate::crdt::histories::{DCS, reorder, run, stable_before, steps};
use crate::crdt::value::{Dot, Shown, Slots};
use geolock_api::value::{MapOp, MapType, Op, PathStep, Reading, SetOp, Type, Update};

const SEED: u128 = 0x5eed << 100 | 7;

/// Counts of the cases that the histories must contain, or their laws mean nothing.
#[derive(Default, Debug)]
struct Found {
    concurrent: usize,
    concurrent_in_one_dc: usize,
    several_types: usize,
    several_values: usize,
    removed_fields: usize,
    hidden_fields_or_tombstones: usize,
    compacted: usize,
    met: usize,
    done: usize,
    types: BTreeMap<Type, usize>,
}

/// The readings in all datacenters.
type Seen = Vec<Option<Reading>>;

fn readings(slots: &Slots) -> Seen {
    let seen: Seen = (0..DCS).map(|me| slots.read(dc(me))).collect();
    let weights = seen.iter().map(|reading| reading.as_ref().map(Reading::weight));
    weights.for_each(|weight| {
        assert_eq!(slots.weight(), weight, "the weight that is kept is that of {slots:?}")
    });
    seen
}

struct Replica {
    slots: Slots,
    vector: VersionVector,
    /// Updated by the operations alone.
    digest: Shown,
}

impl Replica {
    fn new() -> Replica {
        Replica { slots: Slots::default(), vector: VersionVector::default(), digest: Shown::default() }
    }

    fn apply(&mut self, commit: &Commit) {
        for (index, update) in commit.changes.iter().enumerate() {
            let before = self.slots.digest_near(SEED, update);
            self.slots.apply(update, &commit.at(index));
            let after = self.slots.digest_near(SEED, update);
            self.digest = self.digest.minus(before).plus(after);
        }
        self.vector.raise(commit.dot.dc, commit.dot.seq);
    }

    /// Replaces the value by its decoded checkpoint bytes.
    fn restart(&mut self) -> TestCaseResult {
        let bytes = wire::encode("value", &self.slots).expect("it is small");
        let again: Slots = wire::decode("value", &bytes).expect("its own bytes");
        prop_assert_eq!(&again, &self.slots);
        self.slots = again;
        Ok(())
    }
}

pub fn choices() -> impl Strategy<Value = Vec<Index>> {
    vec(any::<Index>(), 1..40)
}

#[test]
fn replicas_agree_with_the_rules_at_every_vector_in_every_order() {
    let found = RefCell::new(Found::default());
    let orders = vec((choices(), vec(0..4_u8, 1..30)), 3);
    run(1_000, &(histories(), orders), |(commits, orders)| {
        let mut found = found.borrow_mut();
        count(&commits, &mut found);
        let mut by_vector: BTreeMap<String, (Seen, Shown, Option<Dot>)> = BTreeMap::new();
        for (order, whims) in &orders {
            let order = reorder(&commits, order);
            let mut replica = Replica::new();
            for (done, (commit, whim)) in order.iter().zip(whims.iter().cycle()).enumerate() {
                replica.apply(commit);
                match whim {
                    1 => {
                        let before = replica.slots.clone();
                        let stable = stable_before(&order[done + 1..], &replica.vector);
                        replica.slots.compact(&stable);
                        found.compacted += usize::from(before != replica.slots);
                    }
                    2 => replica.restart()?,
                    _ => {}
                }
                let seen = readings(&replica.slots);
                for (me, reading) in (0..).zip(&seen) {
                    prop_assert_eq!(reading, &expected(&order[..=done], dc(me)), "{:?}", replica.slots);
                }
                prop_assert_eq!(replica.slots.digest(SEED), replica.digest, "{:?}", replica.slots);
                note(&replica.slots, &seen, &mut found);
                let now = (seen, replica.digest, replica.slots.done_by());
                found.done += usize::from(now.2.is_some());
                if let Some(before) = by_vector.insert(replica.vector.to_string(), now.clone()) {
                    prop_assert_eq!(before, now);
                    found.met += 1;
                }
            }
            replica.slots.compact(&replica.vector);
            prop_assert_eq!(replica.slots.digest(SEED), replica.digest);
            let may_owe = commits.iter().flat_map(|commit| &commit.changes).any(is_bounded);
            prop_assert!(
                may_owe || replica.slots.is_empty() || replica.slots.is_visible(),
                "nothing is left out of sight: {:?}",
                replica.slots
            );
        }
        let all: Vec<&(Seen, Shown, Option<Dot>)> = by_vector.values().collect();
        for (place, (seen, digest, _)) in all.iter().enumerate() {
            for (other_seen, other_digest, _) in &all[place + 1..] {
                prop_assert_eq!(seen == other_seen, digest == other_digest);
            }
        }
        Ok(())
    });
    let found = found.into_inner();
    assert!(found.concurrent > 10_000 && found.concurrent_in_one_dc > 500, "{found:?}");
    assert!(found.several_types > 500 && found.several_values > 250, "{found:?}");
    assert!(found.removed_fields > 250 && found.hidden_fields_or_tombstones > 250, "{found:?}");
    assert!(found.compacted > 500 && found.met > 5_000 && found.done > 100, "{found:?}");
    assert!(found.types.len() == 13 && found.types.values().all(|seen| *seen > 100), "{found:?}");
}

/// Peers of another build compare digests with ours.
#[test]
fn digests_stay_what_they_are() {
    let mut replica = Replica::new();
    let path = vec![PathStep { map: MapType::Resettable, field: bytes("f") }];
    let op = Op::AddWinsSet(SetOp::Add(vec![bytes("a"), bytes("b")]));
    let dot = Dot { dc: dc(1), seq: 1 };
    let seen = VersionVector::default();
    replica.apply(&Commit { dot, stamp: Timestamp::ZERO, seen, changes: vec![Update { path, op }] });
    assert_eq!(replica.digest.sum, 0x4b04_252c_b34b_69ff_cc06_17a0_e55a_1ee1);
}

fn is_bounded(update: &Update) -> bool {
    update.root_type() == Type::BoundedCounter
}

fn count(commits: &[Commit], found: &mut Found) {
    for (place, one) in commits.iter().enumerate() {
        let concurrent = commits[place + 1..].iter().filter(|other| one.is_concurrent_with(other));
        for other in concurrent {
            found.concurrent += 1;
            found.concurrent_in_one_dc += usize::from(one.dot.dc == other.dot.dc);
        }
        let removes =
            |update: &&Update| matches!(&update.op, Op::ResettableMap(MapOp::Remove(_) | MapOp::Reset));
        found.removed_fields += one.changes.iter().filter(removes).count();
    }
}

fn note(slots: &Slots, seen: &Seen, found: &mut Found) {
    found.several_types += usize::from(slots.0.len() > 1);
    found.hidden_fields_or_tombstones += usize::from(!slots.is_visible() && !slots.is_empty());
    if let Some(Reading::MvRegister(values)) = &seen[0] {
        found.several_values += usize::from(values.len() > 1);
    }
    if let Some(of) = slots.value_type() {
        *found.types.entry(of).or_default() += 1;
    }
}

/// Checked at the origin, as clients do: every update that is checked there keeps the bound everywhere, at
/// every moment.
#[test]
fn a_bounded_counter_stays_above_its_bound_in_every_order() {
    let updates = vec(super::history::ops(Type::BoundedCounter).prop_map(Update::of), 1..4);
    let lowered = RefCell::new(0);
    run(1_000, &(vec(steps(updates, 0), 2..40), choices()), |(steps, order)| {
        let commits = obeying(play(steps));
        let mut applied = Vec::new();
        let mut slots = Slots::default();
        for commit in reorder(&commits, &order) {
            commit.apply_to(&mut slots);
            let sum: i64 = commit.changes.iter().map(|update| amount(&update.op)).sum();
            *lowered.borrow_mut() += usize::from(sum < 0);
            applied.push(commit);
            let updates = applied.iter().flat_map(|commit| &commit.changes);
            let total = u64::try_from(updates.map(|update| amount(&update.op)).sum::<i64>());
            prop_assert!(total.is_ok(), "below the bound after {:?}", applied);
            let (mut value, mut all_rights) = (0, 0);
            for me in 0..DCS {
                if let Some(Reading::BoundedCounter { value: seen, rights }) = slots.read(dc(me)) {
                    value = seen;
                    all_rights += rights;
                }
            }
            prop_assert_eq!(Ok(value), total);
            prop_assert_eq!(value, all_rights);
        }
        Ok(())
    });
    assert!(lowered.into_inner() > 500, "it was taken away from");
}

fn amount(op: &Op) -> i64 {
    if let Op::BoundedCounter(amount) = op { *amount } else { 0 }
}

/// Returns the same commits without the updates that their datacenter refuses. It checks them with everything
/// of its own applied and everything that these had seen.
fn obeying(commits: Vec<Commit>) -> Vec<Commit> {
    let mut at_home: Vec<Slots> = (0..DCS).map(|_| Slots::default()).collect();
    let mut vectors: Vec<VersionVector> = (0..DCS).map(|_| VersionVector::default()).collect();
    let mut kept: Vec<Commit> = Vec::new();
    for mut commit in commits {
        let home = commit.dot.dc.index();
        let (slots, vector) = (&mut at_home[home], &mut vectors[home]);
        for earlier in &kept {
            if earlier.dot.is_in(&commit.seen) && !earlier.dot.is_in(vector) {
                earlier.apply_to(slots);
                vector.raise(earlier.dot.dc, earlier.dot.seq);
            }
        }
        let me = commit.dot.dc;
        let updates = std::mem::take(&mut commit.changes);
        for update in updates {
            if slots.check(&update, me).is_ok() {
                commit.changes.push(update.clone());
                slots.apply(&update, &commit.at(commit.changes.len() - 1));
            }
        }
        vector.raise(me, commit.dot.seq);
        kept.push(commit);
    }
    kept
}
