//! The reading of a key's updates, by the conflict rules of the types alone: one case for each type that the
//! load writes.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::base::time::Timestamp;
use crate::crdt::VersionVector;
use crate::crdt::value::Dot;
use geolock_api::names::DcId;
use geolock_api::value::{Op, Reading, SetOp, Type, VersionedReading};

/// Order of assignments: stamp, datacenter, index in the commit.
pub(super) type Rank = (Timestamp, u8, usize);

/// An update that a snapshot shows, or one of the reader's own on top.
pub(super) struct Item<'a> {
    pub dc: DcId,
    pub rank: Rank,
    /// Its commit, and the vector that the commit has seen; `None` for the reader's own.
    pub seen: Option<(Dot, &'a VersionVector)>,
    pub op: &'a Op,
}

impl Item<'_> {
    fn has_seen(&self, other: &Item<'_>) -> bool {
        match (self.seen, other.seen) {
            (None, Some(_)) => true,
            (Some(_), None) => false,
            (Some((dot, seen)), Some((other_dot, _))) if dot != other_dot => {
                seen.get(other_dot.dc) >= other_dot.seq
            }
            // Of one commit.
            _ => other.rank.2 < self.rank.2,
        }
    }
}

/// Returns the reading in datacenter `me`.
pub(super) fn evaluate(items: &[Item<'_>], me: DcId) -> Option<Reading> {
    let of = items.first()?.op.value_type();
    assert!(items.iter().all(|item| item.op.value_type() == of), "the load writes a key as one type");
    match of {
        Type::Counter => {
            let amount = |item: &Item<'_>| if let Op::Counter(amount) = item.op { *amount } else { 0 };
            let sum: i64 = items.iter().map(amount).sum();
            (sum != 0).then_some(Reading::Counter(sum))
        }
        Type::LwwRegister => match items.iter().max_by_key(|item| item.rank)?.op {
            Op::LwwRegister(value) => Some(Reading::LwwRegister(Some(value.clone()))),
            other => unreachable!("{other:?} is one on a register"),
        },
        Type::AddWinsSet | Type::RemoveWinsSet => {
            let named: BTreeSet<&Bytes> = items.iter().flat_map(|item| set_op(item.op).1).collect();
            let there = named.into_iter().filter(|element| has(items, element, of)).cloned();
            let elements: Vec<Bytes> = there.collect();
            (!elements.is_empty()).then_some(Reading::Set(of, elements))
        }
        Type::BoundedCounter => {
            let rights = rights(items);
            let share = |rights: i128| u64::try_from(rights.max(0)).expect("the load adds little");
            rights.values().any(|rights| *rights > 0).then(|| Reading::BoundedCounter {
                value: share(rights.values().sum()),
                rights: share(rights.get(&me).copied().unwrap_or(0)),
            })
        }
        Type::Versioned => {
            let written = |item: &Item<'_>| match item.op {
                Op::Versioned { version, value, done } => {
                    VersionedReading { version: *version, value: value.clone(), done: *done }
                }
                other => unreachable!("{other:?} is one on a versioned value"),
            };
            Some(Reading::Versioned(items.iter().map(written).max()))
        }
        other => unreachable!("the load writes no {other}"),
    }
}

/// Returns true if some datacenter has decremented more than it had rights to.
pub(super) fn is_below_bound(items: &[Item<'_>]) -> bool {
    let is_bounded = items.first().is_some_and(|item| item.op.value_type() == Type::BoundedCounter);
    is_bounded && rights(items).values().any(|rights| *rights < 0)
}

fn rights(items: &[Item<'_>]) -> BTreeMap<DcId, i128> {
    let mut rights = BTreeMap::new();
    for item in items {
        match item.op {
            Op::BoundedCounter(amount) => *rights.entry(item.dc).or_default() += i128::from(*amount),
            Op::TransferRights { to, amount } => {
                *rights.entry(item.dc).or_default() -= i128::from(*amount);
                *rights.entry(*to).or_default() += i128::from(*amount);
            }
            other => unreachable!("{other:?} is one on a bounded counter"),
        }
    }
    rights
}

/// Returns true for an addition, with the elements that the operation names.
fn set_op(op: &Op) -> (bool, &[Bytes]) {
    match op {
        Op::AddWinsSet(SetOp::Add(elements)) | Op::RemoveWinsSet(SetOp::Add(elements)) => (true, elements),
        Op::AddWinsSet(SetOp::Remove(elements)) | Op::RemoveWinsSet(SetOp::Remove(elements)) => {
            (false, elements)
        }
        other => unreachable!("the load does not make {other:?}"),
    }
}

fn has(items: &[Item<'_>], element: &Bytes, of: Type) -> bool {
    // The latest first: they decide most often.
    let about = |adds: bool| -> Vec<&Item<'_>> {
        let named = items.iter().rev().filter(|item| set_op(item.op).1.contains(element));
        named.filter(|item| set_op(item.op).0 == adds).collect()
    };
    let (adds, removes) = (about(true), about(false));
    let added = adds.iter().any(|add| !removes.iter().any(|remove| remove.has_seen(add)));
    let hidden = || removes.iter().any(|remove| !adds.iter().any(|add| add.has_seen(remove)));
    added && !(of == Type::RemoveWinsSet && hidden())
}
