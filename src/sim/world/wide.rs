//! Wide keys: sets, maps and registers that are large now and then, and counters that can be reset.
//!
//! Most changes of a wide key are small, as those of other keys are; some name a thousand elements or fields
//! and more. So a step that walks the whole value for a small change, or that does several large changes at
//! once, examines more than a step may (`base/work.rs`).

use bytes::Bytes;

use crate::base::rng::Rng;
use crate::base::time::TimeToLive;
use crate::causal_log::{Action, Change};
use crate::sim::client::TxnStep;
use crate::sim::plan::TxnPlan;
use geolock_api::keys::Key;
use geolock_api::value::{MapOp, MapType, Op, PathStep, ResettableCounterOp, SetOp, Update};

/// The keys: each has one type.
const KEYS: [&str; 5] = ["add-wins", "remove-wins", "map", "register", "counter"];
/// Number of elements and fields that there can be.
const NAMES: u64 = 3_000;
/// Fewest and most elements of a large change of a set.
const ELEMENTS: (u64, u64) = (1_000, 2_000);
/// Fewest and most fields of a large change of a map: each is a change of its own.
const FIELDS: (u64, u64) = (300, 600);
/// Fewest and most bytes of a large register.
const BYTES: (u64, u64) = (64 << 10, 200 << 10);

/// Adds changes of wide keys to the first step of a transaction, and reads to any.
pub(super) fn add_to(steps: &mut [TxnStep], read_only: bool, plan: &TxnPlan, rng: &mut Rng) {
    if !read_only {
        let name = *rng.pick(&KEYS);
        let large = rng.percent(plan.large_percent);
        let mut changes = changes(name, large, rng);
        if rng.percent(plan.remove_percent / 4) {
            changes = vec![Action::Remove];
        } else if rng.percent(plan.expire_percent / 4) {
            let ttl = rng.around(plan.expire_after).as_millis().max(1) as u64;
            changes.push(Action::Expire(TimeToLive::from_millis(ttl).expect("it is a few seconds at most")));
        }
        let key = key(name);
        steps[0].changes.extend(changes.into_iter().map(|action| Change { key: key.clone(), action }));
    }
    if rng.percent(50) {
        let step = rng.index(steps.len());
        let read: &str = rng.pick::<&str>(&KEYS);
        steps[step].reads.push(key(read));
    }
}

fn key(name: &str) -> Key {
    // In the bucket that watches follow.
    Key::new(b"pairs", name.as_bytes()).expect("a short name is a key")
}

/// Returns one change of a wide key, or several of fields of the map.
fn changes(name: &str, large: bool, rng: &mut Rng) -> Vec<Action> {
    let one = |op| vec![Action::Update(Update::of(op))];
    match name {
        "add-wins" => one(Op::AddWinsSet(set_op(large, rng))),
        "remove-wins" => one(Op::RemoveWinsSet(set_op(large, rng))),
        "map" => map_changes(large, rng),
        "register" => {
            let (from, to) = if large { BYTES } else { (1, 100) };
            let mut bytes = vec![0; rng.between(from, to) as usize];
            bytes[0] = rng.below(256) as u8;
            one(Op::LwwRegister(bytes.into()))
        }
        _ => one(Op::ResettableCounter(counter_op(rng))),
    }
}

fn set_op(large: bool, rng: &mut Rng) -> SetOp {
    let elements = names(large.then_some(ELEMENTS), rng);
    match rng.below(10) {
        0 => SetOp::Reset,
        1..4 => SetOp::Remove(elements),
        _ => SetOp::Add(elements),
    }
}

fn map_changes(large: bool, rng: &mut Rng) -> Vec<Action> {
    let update = |path, op| Action::Update(Update { path, op });
    let fields = names(large.then_some(FIELDS), rng);
    match rng.below(10) {
        0 => return vec![update(Vec::new(), Op::ResettableMap(MapOp::Reset))],
        1..3 => return vec![update(Vec::new(), Op::ResettableMap(MapOp::Remove(fields)))],
        _ => {}
    }
    let changed = fields.into_iter().map(|field| {
        let path = vec![PathStep { map: MapType::Resettable, field }];
        update(path, Op::ResettableCounter(counter_op(rng)))
    });
    changed.collect()
}

fn counter_op(rng: &mut Rng) -> ResettableCounterOp {
    if rng.percent(10) { ResettableCounterOp::Reset } else { ResettableCounterOp::Add(rng.signed(9)) }
}

/// Returns that many names in a row, or one to six.
fn names(many: Option<(u64, u64)>, rng: &mut Rng) -> Vec<Bytes> {
    let (from, to) = many.unwrap_or((1, 6));
    let (first, count) = (rng.below(NAMES), rng.between(from, to));
    (first..first + count).map(|n| format!("{:04}", n % NAMES).into()).collect()
}
