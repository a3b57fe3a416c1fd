//! Random causal histories of one key in three datacenters.
//!
//! A datacenter runs transactions on snapshots: mostly what it has applied, sometimes something older, so that its own
//! commits are concurrent too. Few elements and fields, so that operations meet.

use bytes::Bytes;
use crdts::CvRDT;
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any};
use proptest::sample::{Index, select, subsequence};

use super::{bytes, dc};
use crate::crdt::VersionVector;
use crate::crdt::value::{
    At, Dot, FlagOp, MapOp, MapType, Op, PathStep, RegisterOp, ResettableCounterOp, SetOp, Slots, Type,
    Update,
};
use crate::time::Timestamp;

pub const DCS: u8 = 3;

#[derive(Clone, Debug)]
pub struct Commit {
    pub dot: Dot,
    pub stamp: Timestamp,
    pub seen: VersionVector,
    pub updates: Vec<Update>,
}

impl Commit {
    pub fn at(&self, index: usize) -> At<'_> {
        At {
            dot: self.dot,
            index: u32::try_from(index).expect("few operations"),
            stamp: self.stamp,
            seen: &self.seen,
        }
    }

    pub fn apply_to(&self, slots: &mut Slots) {
        for (index, update) in self.updates.iter().enumerate() {
            slots.apply(update, &self.at(index));
        }
    }

    pub fn is_concurrent_with(&self, other: &Commit) -> bool {
        self.dot != other.dot && !other.dot.is_in(&self.seen) && !self.dot.is_in(&other.seen)
    }

    /// Whether a replica there can apply it: in the order of its datacenter, after what it has seen.
    pub fn is_ready_at(&self, vector: &VersionVector) -> bool {
        vector.get(self.dot.dc) + 1 == self.dot.seq && vector.covers(&self.seen)
    }
}

/// What happens next somewhere.
#[derive(Clone, Debug)]
pub enum Step {
    /// A transaction whose snapshot is that many steps old.
    Commit { dc: u8, age: usize, updates: Vec<Update> },
    /// `to` applies what `from` had applied that many steps ago.
    Sync { to: u8, from: u8, age: usize },
}

/// One datacenter while a history is made.
struct Site {
    /// The vectors it was at, up to now.
    passed: Vec<VersionVector>,
    clock: u64,
}

impl Site {
    fn vector(&self, age: usize) -> &VersionVector {
        &self.passed[self.passed.len().saturating_sub(1 + age)]
    }
}

/// The commits, in one causal order.
pub fn play(steps: Vec<Step>) -> Vec<Commit> {
    let mut sites: Vec<Site> =
        (0..DCS).map(|_| Site { passed: vec![VersionVector::default()], clock: 0 }).collect();
    let mut commits = Vec::new();
    for step in steps {
        match step {
            Step::Commit { dc: id, age, updates } => {
                let site = &mut sites[usize::from(id)];
                let seen = site.vector(age).clone();
                let mut now = site.vector(0).clone();
                let dot = Dot { dc: dc(id), seq: now.get(dc(id)) + 1 };
                now.raise(dot.dc, dot.seq);
                site.passed.push(now);
                site.clock += 1;
                commits.push(Commit { dot, stamp: Timestamp::from_raw(site.clock), seen, updates });
            }
            Step::Sync { to, from, age } => {
                let (news, clock) = {
                    let from = &sites[usize::from(from)];
                    (from.vector(age).clone(), from.clock)
                };
                let site = &mut sites[usize::from(to)];
                let mut now = site.vector(0).clone();
                now.merge(news);
                site.passed.push(now);
                site.clock = site.clock.max(clock);
            }
        }
    }
    commits
}

/// The commits again, each after all it has seen.
pub fn reorder(commits: &[Commit], choices: &[Index]) -> Vec<Commit> {
    let mut vector = VersionVector::default();
    let mut order = Vec::new();
    for choice in choices.iter().cycle().take(commits.len()) {
        let ready: Vec<&Commit> = commits.iter().filter(|commit| commit.is_ready_at(&vector)).collect();
        let next = (*choice.get(&ready)).clone();
        vector.raise(next.dot.dc, next.dot.seq);
        order.push(next);
    }
    order
}

/// The most that a replica may settle at: what every commit still to come there has seen.
pub fn stable_before(rest: &[Commit], vector: &VersionVector) -> VersionVector {
    vector
        .iter()
        .map(|(dc, seq)| (dc, rest.iter().map(|commit| commit.seen.get(dc)).fold(seq, u64::min)))
        .collect()
}

/// A history of a key that is used as a few of the types.
pub fn histories() -> impl Strategy<Value = Vec<Commit>> {
    let types = prop_oneof_types();
    (types, 0..=3_usize).prop_flat_map(|(types, depth)| {
        let updates = vec(updates(types, depth), 1..4);
        vec(steps(updates), 2..24).prop_map(play)
    })
}

/// A history in which every transaction sees all that its datacenter has applied and makes one update.
pub fn orderly_histories(of: Type) -> impl Strategy<Value = Vec<Commit>> {
    let updates = vec(updates(vec![of], 0), 1..2);
    vec(steps(updates), 2..24).prop_map(|mut steps| {
        for step in &mut steps {
            match step {
                Step::Commit { age, .. } | Step::Sync { age, .. } => *age = 0,
            }
        }
        play(steps)
    })
}

pub fn steps(updates: impl Strategy<Value = Vec<Update>> + 'static) -> impl Strategy<Value = Step> {
    let age = || proptest::prop_oneof![3 => Just(0_usize), 1 => 1..4_usize];
    proptest::prop_oneof![
        3 => (0..DCS, age(), updates).prop_map(|(dc, age, updates)| Step::Commit { dc, age, updates }),
        2 => (0..DCS, 0..DCS, age()).prop_map(|(to, from, age)| Step::Sync { to, from, age }),
    ]
}

const LEAVES: [Type; 12] = [
    Type::Counter,
    Type::ResettableCounter,
    Type::BoundedCounter,
    Type::LwwRegister,
    Type::MvRegister,
    Type::Versioned,
    Type::AddWinsSet,
    Type::RemoveWinsSet,
    Type::GrowOnlySet,
    Type::EnableWinsFlag,
    Type::DisableWinsFlag,
    // Its operations on the map as a whole; its fields come from the paths.
    Type::ResettableMap,
];

fn prop_oneof_types() -> impl Strategy<Value = Vec<Type>> {
    proptest::prop_oneof![
        subsequence(LEAVES.to_vec(), 1),
        // One type within maps whose fields are removed.
        select(&LEAVES[..11]).prop_map(|leaf| vec![leaf, Type::ResettableMap]),
        subsequence(LEAVES.to_vec(), 2..=4),
    ]
}

fn updates(types: Vec<Type>, depth: usize) -> impl Strategy<Value = Update> {
    let steps = vec((any::<bool>(), select(vec!["f", "g"])), 0..=depth);
    (select(types).prop_flat_map(ops), steps).prop_map(|(op, steps)| Update { path: path(&op, &steps), op })
}

/// A path that the operation may be at.
fn path(op: &Op, steps: &[(bool, &'static str)]) -> Vec<PathStep> {
    let leaf = op.value_type();
    let mut maps = if leaf == Type::BoundedCounter { 0 } else { steps.len() };
    // Resettable maps from there on: all of them, in half of the cases.
    let resettable_from = match (leaf.is_resettable(), steps.first()) {
        (true, Some((true, _))) => 0,
        (true, _) => maps / 2,
        (false, _) => maps,
    };
    if leaf == Type::ResettableMap && maps == 3 {
        maps = 2;
    }
    steps[..maps]
        .iter()
        .enumerate()
        .map(|(place, (_, field))| PathStep {
            map: if place >= resettable_from { MapType::Resettable } else { MapType::GrowOnly },
            field: bytes(field),
        })
        .collect()
}

fn element() -> impl Strategy<Value = Bytes> {
    select(vec!["a", "b", "c"]).prop_map(bytes)
}

fn elements() -> impl Strategy<Value = Vec<Bytes>> {
    vec(element(), 0..3)
}

/// Operations on a value of that type.
pub fn ops(of: Type) -> proptest::strategy::BoxedStrategy<Op> {
    let amount = || -3..=3_i64;
    match of {
        Type::Counter => amount().prop_map(Op::Counter).boxed(),
        Type::ResettableCounter => proptest::prop_oneof![
            3 => amount().prop_map(|amount| Op::ResettableCounter(ResettableCounterOp::Add(amount))),
            1 => Just(Op::ResettableCounter(ResettableCounterOp::Reset)),
        ]
        .boxed(),
        Type::BoundedCounter => proptest::prop_oneof![
            3 => amount().prop_map(Op::BoundedCounter),
            1 => (0..DCS, 0..3_u64).prop_map(|(to, amount)| Op::MoveRights { to: dc(to), amount }),
        ]
        .boxed(),
        Type::LwwRegister => element().prop_map(Op::LwwRegister).boxed(),
        Type::MvRegister => proptest::prop_oneof![
            4 => element().prop_map(|value| Op::MvRegister(RegisterOp::Assign(value))),
            1 => Just(Op::MvRegister(RegisterOp::Reset)),
        ]
        .boxed(),
        Type::Versioned => (0..3_u64, element(), any::<bool>())
            .prop_map(|(version, value, done)| Op::Versioned { version, value, done })
            .boxed(),
        Type::AddWinsSet => set_ops().prop_map(Op::AddWinsSet).boxed(),
        Type::RemoveWinsSet => set_ops().prop_map(Op::RemoveWinsSet).boxed(),
        Type::GrowOnlySet => elements().prop_map(Op::GrowOnlySet).boxed(),
        Type::EnableWinsFlag => flag_ops().prop_map(Op::EnableWinsFlag).boxed(),
        Type::DisableWinsFlag => flag_ops().prop_map(Op::DisableWinsFlag).boxed(),
        Type::GrowOnlyMap => unreachable!("it has no operations of its own"),
        Type::ResettableMap => proptest::prop_oneof![
            3 => vec(select(vec!["f", "g"]).prop_map(bytes), 0..3).prop_map(MapOp::Remove),
            1 => Just(MapOp::Reset),
        ]
        .prop_map(Op::ResettableMap)
        .boxed(),
    }
}

fn set_ops() -> impl Strategy<Value = SetOp> {
    proptest::prop_oneof![
        4 => elements().prop_map(SetOp::Add),
        3 => elements().prop_map(SetOp::Remove),
        1 => Just(SetOp::Reset),
    ]
}

fn flag_ops() -> impl Strategy<Value = FlagOp> {
    select(vec![FlagOp::Enable, FlagOp::Enable, FlagOp::Disable, FlagOp::Disable, FlagOp::Reset])
}
