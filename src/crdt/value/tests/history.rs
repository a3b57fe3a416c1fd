//! Random causal histories of a key with a value. Few elements and fields, so that operations meet.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any};
use proptest::sample::{select, subsequence};

use super::{bytes, dc};
use crate::crdt::histories::{self, DCS, Step, steps};
use crate::crdt::value::Slots;
use geolock_api::value::{
    FlagOp, MapOp, MapType, Op, PathStep, RegisterOp, ResettableCounterOp, SetOp, Type, Update,
};

pub type Commit = histories::Commit<Update>;

impl Commit {
    pub fn apply_to(&self, slots: &mut Slots) {
        for (index, update) in self.changes.iter().enumerate() {
            slots.apply(update, &self.at(index));
        }
    }
}

/// Returns the commits in one causal order.
pub fn play(steps: Vec<Step<Update>>) -> Vec<Commit> {
    histories::play(steps, |_, _, update| update)
}

/// Generates histories of a key that is used as a few of the types.
pub fn histories() -> impl Strategy<Value = Vec<Commit>> {
    let types = prop_oneof_types();
    (types, 0..=3_usize).prop_flat_map(|(types, depth)| {
        let updates = vec(updates(types, depth), 1..4);
        vec(steps(updates, 0), 2..24).prop_map(play)
    })
}

/// Generates histories in which every transaction sees everything that its datacenter has applied, and makes
/// one update.
pub fn orderly_histories(of: Type) -> impl Strategy<Value = Vec<Commit>> {
    let updates = vec(updates(vec![of], 0), 1..2);
    vec(steps(updates, 0), 2..24).prop_map(|mut steps| {
        steps.iter_mut().for_each(|step| *step.age() = 0);
        play(steps)
    })
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

/// Returns a path that the operation may be at.
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

/// Generates operations on a value of this type.
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
            1 => (0..DCS, 0..3_u64).prop_map(|(to, amount)| Op::TransferRights { to: dc(to), amount }),
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
