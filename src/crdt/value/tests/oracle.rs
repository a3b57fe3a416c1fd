//! The expected readings, computed from the whole history and the conflict rules alone: slow, and without any
//! state.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::history::Commit;
use geolock_api::names::DcId;
use geolock_api::value::{
    FlagOp, MapOp, MapType, Op, Reading, RegisterOp, ResettableCounterOp, SetOp, Type, Update,
    VersionedReading,
};

/// One operation of a history.
#[derive(Clone, Copy)]
struct Item<'a> {
    commit: &'a Commit,
    index: usize,
    update: &'a Update,
}

impl<'a> Item<'a> {
    fn op(&self) -> &'a Op {
        &self.update.op
    }

    fn sees(&self, other: &Item<'_>) -> bool {
        if self.commit.dot == other.commit.dot {
            other.index < self.index
        } else {
            other.commit.dot.is_in(&self.commit.seen)
        }
    }

    fn is_seen_by(&self, others: &[Item<'_>]) -> bool {
        others.iter().any(|other| other.sees(self))
    }
}

/// Returns the reading of a reader in datacenter `me`, if exactly these commits are applied.
pub fn expected(commits: &[Commit], me: DcId) -> Option<Reading> {
    let items: Vec<Item<'_>> = commits
        .iter()
        .flat_map(|commit| {
            commit.changes.iter().enumerate().map(move |(index, update)| Item { commit, index, update })
        })
        .collect();
    level(&items, 0, &[], me)
}

fn filtered<'a>(items: &[Item<'a>], keep: impl Fn(&Op) -> bool) -> Vec<Item<'a>> {
    items.iter().filter(|item| keep(item.op())).copied().collect()
}

/// Evaluates all operations at one place or below it, `depth` steps down; `resets` are those of the maps
/// around it.
fn level(items: &[Item<'_>], depth: usize, resets: &[Item<'_>], me: DcId) -> Option<Reading> {
    let (here, below): (Vec<Item<'_>>, Vec<Item<'_>>) =
        items.iter().copied().partition(|item| item.update.path.len() == depth);
    let mut readings = BTreeMap::new();
    let types: BTreeSet<Type> = here.iter().map(|item| item.op().value_type()).collect();
    for of in types {
        let own = filtered(&here, |op| op.value_type() == of);
        readings.extend(leaf(of, &own, resets, me).map(|reading| (of, reading)));
    }
    for map in [MapType::GrowOnly, MapType::Resettable] {
        let mut fields: BTreeMap<&Bytes, Vec<Item<'_>>> = BTreeMap::new();
        for item in below.iter().filter(|item| item.update.path[depth].map == map) {
            fields.entry(&item.update.path[depth].field).or_default().push(*item);
        }
        let mut seen = Vec::new();
        for (field, items) in fields {
            let mut around = resets.to_vec();
            if map == MapType::Resettable {
                around.extend(filtered(&here, |op| match op {
                    Op::ResettableMap(MapOp::Remove(fields)) => fields.contains(field),
                    Op::ResettableMap(MapOp::Reset) => true,
                    _ => false,
                }));
            }
            seen.extend(level(&items, depth + 1, &around, me).map(|reading| (field.clone(), reading)));
        }
        if !seen.is_empty() {
            readings.insert(map.value_type(), Reading::Map(map.value_type(), seen));
        }
    }
    readings.into_values().next()
}

/// Returns the reading of one type; `None` if it is empty.
fn leaf(of: Type, own: &[Item<'_>], around: &[Item<'_>], me: DcId) -> Option<Reading> {
    match of {
        Type::Counter => {
            let sum =
                own.iter().map(|item| if let Op::Counter(amount) = item.op() { *amount } else { 0 }).sum();
            (sum != 0).then_some(Reading::Counter(sum))
        }
        Type::ResettableCounter => {
            let resets = filtered(own, |op| *op == Op::ResettableCounter(ResettableCounterOp::Reset));
            let left = own.iter().filter(|item| !item.is_seen_by(&[&resets, around].concat()));
            let sum = left.filter_map(|item| match item.op() {
                Op::ResettableCounter(ResettableCounterOp::Add(amount)) => Some(*amount),
                _ => None,
            });
            Some(sum.sum()).filter(|sum| *sum != 0).map(Reading::ResettableCounter)
        }
        Type::BoundedCounter => bounded(own, me),
        Type::LwwRegister => {
            let last = own
                .iter()
                .max_by_key(|item| (item.commit.stamp, item.commit.dot.dc, item.index))
                .expect("not empty");
            let Op::LwwRegister(value) = last.op() else { panic!("of this type") };
            Some(Reading::LwwRegister(Some(value.clone())))
        }
        Type::MvRegister => {
            let left = own.iter().filter(|item| !item.is_seen_by(&[own, around].concat()));
            let values: BTreeSet<Bytes> = left
                .filter_map(|item| match item.op() {
                    Op::MvRegister(RegisterOp::Assign(value)) => Some(value.clone()),
                    _ => None,
                })
                .collect();
            (!values.is_empty()).then(|| Reading::MvRegister(values.into_iter().collect()))
        }
        Type::Versioned => {
            let values = own.iter().map(|item| match item.op() {
                Op::Versioned { version, value, done } => (*version, value.clone(), *done),
                _ => panic!("of this type"),
            });
            let (version, value, done) = values.max().expect("not empty");
            Some(Reading::Versioned(Some(VersionedReading { version, value, done })))
        }
        Type::AddWinsSet | Type::RemoveWinsSet | Type::GrowOnlySet => {
            let elements: BTreeSet<&Bytes> = own.iter().flat_map(|item| named(item.op())).collect();
            let is_there = |element: &&Bytes| {
                presence(of == Type::RemoveWinsSet, own, around, |op| named(op).contains(element))
            };
            let present: Vec<Bytes> = elements.into_iter().filter(is_there).cloned().collect();
            (!present.is_empty()).then_some(Reading::Set(of, present))
        }
        Type::EnableWinsFlag | Type::DisableWinsFlag => {
            let on = presence(of == Type::DisableWinsFlag, own, around, |_| true);
            on.then_some(Reading::Flag(of, true))
        }
        Type::GrowOnlyMap | Type::ResettableMap => None,
    }
}

fn named(op: &Op) -> &[Bytes] {
    match op {
        Op::AddWinsSet(SetOp::Add(items) | SetOp::Remove(items))
        | Op::RemoveWinsSet(SetOp::Add(items) | SetOp::Remove(items))
        | Op::GrowOnlySet(items) => items,
        _ => &[],
    }
}

/// Returns true if the element or flag of the `about` operations is present.
fn presence(remove_wins: bool, own: &[Item<'_>], around: &[Item<'_>], about: impl Fn(&Op) -> bool) -> bool {
    let adds = filtered(own, |op| {
        about(op)
            && matches!(
                op,
                Op::AddWinsSet(SetOp::Add(_))
                    | Op::RemoveWinsSet(SetOp::Add(_))
                    | Op::GrowOnlySet(_)
                    | Op::EnableWinsFlag(FlagOp::Enable)
                    | Op::DisableWinsFlag(FlagOp::Enable)
            )
    });
    let removes = filtered(own, |op| {
        about(op)
            && matches!(
                op,
                Op::AddWinsSet(SetOp::Remove(_))
                    | Op::RemoveWinsSet(SetOp::Remove(_))
                    | Op::EnableWinsFlag(FlagOp::Disable)
                    | Op::DisableWinsFlag(FlagOp::Disable)
            )
    });
    let resets = filtered(own, |op| {
        matches!(
            op,
            Op::AddWinsSet(SetOp::Reset)
                | Op::RemoveWinsSet(SetOp::Reset)
                | Op::EnableWinsFlag(FlagOp::Reset)
                | Op::DisableWinsFlag(FlagOp::Reset)
        )
    });
    let takers = [&removes[..], &resets, around].concat();
    let liftings = [&adds[..], &resets, around].concat();
    let is_added = adds.iter().any(|add| !add.is_seen_by(&takers));
    let is_hidden = remove_wins && removes.iter().any(|remove| !remove.is_seen_by(&liftings));
    is_added && !is_hidden
}

fn bounded(own: &[Item<'_>], me: DcId) -> Option<Reading> {
    let mut rights: BTreeMap<DcId, i64> = BTreeMap::new();
    for item in own {
        let from = item.commit.dot.dc;
        match item.op() {
            Op::BoundedCounter(amount) => *rights.entry(from).or_default() += amount,
            Op::TransferRights { to, amount } => {
                let amount = i64::try_from(*amount).expect("small");
                *rights.entry(from).or_default() -= amount;
                *rights.entry(*to).or_default() += amount;
            }
            _ => panic!("of this type"),
        }
    }
    let not_below_zero = |n: i64| u64::try_from(n).unwrap_or(0);
    rights.values().any(|rights| *rights > 0).then(|| Reading::BoundedCounter {
        value: not_below_zero(rights.values().sum()),
        rights: not_below_zero(rights.get(&me).copied().unwrap_or(0)),
    })
}
