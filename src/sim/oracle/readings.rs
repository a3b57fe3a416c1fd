//! The reading of a key's updates, by the conflict rules of the types alone: one case for each type that the
//! load writes.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::base::time::Timestamp;
use crate::crdt::VersionVector;
use crate::crdt::value::Dot;
use geolock_api::names::DcId;
use geolock_api::value::{
    MapOp, Op, PathStep, Reading, ResettableCounterOp, SetOp, Type, Update, VersionedReading,
};

/// Order of assignments: stamp, datacenter, index in the commit.
pub(super) type Rank = (Timestamp, u8, usize);

/// An update that a snapshot shows, or one of the reader's own on top.
#[derive(Clone, Copy)]
pub(super) struct Item<'a> {
    pub dc: DcId,
    pub rank: Rank,
    /// Its commit, and the vector that the commit has seen; `None` for the reader's own.
    pub seen: Option<(Dot, &'a VersionVector)>,
    /// From here into maps.
    path: &'a [PathStep],
    op: &'a Op,
}

impl<'a> Item<'a> {
    pub fn new(dc: DcId, rank: Rank, seen: Option<(Dot, &'a VersionVector)>, update: &'a Update) -> Item<'a> {
        Item { dc, rank, seen, path: &update.path, op: &update.op }
    }

    fn value_type(&self) -> Type {
        self.path.first().map_or_else(|| self.op.value_type(), |step| step.map.value_type())
    }

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
    let of = items.first()?.value_type();
    assert!(items.iter().all(|item| item.value_type() == of), "the load writes a key as one type");
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
            let elements = elements(items, of);
            (!elements.is_empty()).then_some(Reading::Set(of, elements))
        }
        Type::ResettableCounter => {
            let is_reset =
                |item: &&Item<'_>| matches!(item.op, Op::ResettableCounter(ResettableCounterOp::Reset));
            let resets: Vec<&Item<'_>> = items.iter().filter(is_reset).collect();
            let counts = |item: &&Item<'_>| !resets.iter().any(|reset| reset.has_seen(item));
            let amount = |item: &Item<'_>| match item.op {
                Op::ResettableCounter(ResettableCounterOp::Add(amount)) => *amount,
                _ => 0,
            };
            let sum: i64 = items.iter().filter(counts).map(amount).sum();
            (sum != 0).then_some(Reading::ResettableCounter(sum))
        }
        Type::ResettableMap => {
            let fields = fields(items, me);
            (!fields.is_empty()).then_some(Reading::Map(of, fields))
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
    let is_bounded = items.first().is_some_and(|item| item.value_type() == Type::BoundedCounter);
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

/// The additions and the removals of one element, in the order made.
type About<'a> = (Vec<&'a Item<'a>>, Vec<&'a Item<'a>>);

/// Returns the elements of a set, in order.
fn elements(items: &[Item<'_>], of: Type) -> Vec<Bytes> {
    let mut resets = Vec::new();
    let mut named: BTreeMap<&Bytes, About<'_>> = BTreeMap::new();
    for item in items {
        match item.op {
            Op::AddWinsSet(SetOp::Add(elements)) | Op::RemoveWinsSet(SetOp::Add(elements)) => {
                elements.iter().for_each(|element| named.entry(element).or_default().0.push(item));
            }
            Op::AddWinsSet(SetOp::Remove(elements)) | Op::RemoveWinsSet(SetOp::Remove(elements)) => {
                elements.iter().for_each(|element| named.entry(element).or_default().1.push(item));
            }
            Op::AddWinsSet(SetOp::Reset) | Op::RemoveWinsSet(SetOp::Reset) => resets.push(item),
            other => unreachable!("the load does not make {other:?}"),
        }
    }
    let is_there = |about: &mut About<'_>| {
        let counts = |item: &&Item<'_>| !resets.iter().any(|reset| reset.has_seen(item));
        about.0.retain(counts);
        about.1.retain(counts);
        has(about, of)
    };
    named
        .into_iter()
        .filter_map(|(element, mut about)| is_there(&mut about).then(|| element.clone()))
        .collect()
}

/// Returns true if an element is in a set of this type.
fn has((adds, removes): &About<'_>, of: Type) -> bool {
    // The latest first: they decide most often.
    let added = adds.iter().rev().any(|add| !removes.iter().rev().any(|remove| remove.has_seen(add)));
    let is_hidden = |remove: &&Item<'_>| !adds.iter().rev().any(|add| add.has_seen(remove));
    added && !(of == Type::RemoveWinsSet && removes.iter().rev().any(is_hidden))
}

/// Returns the fields of a resettable map, in order.
fn fields(items: &[Item<'_>], me: DcId) -> Vec<(Bytes, Reading)> {
    let mut resets: Vec<(&Item<'_>, Option<&[Bytes]>)> = Vec::new();
    let mut named: BTreeMap<&Bytes, Vec<Item<'_>>> = BTreeMap::new();
    for item in items {
        match (item.path.split_first(), item.op) {
            (Some((step, path)), _) => named.entry(&step.field).or_default().push(Item { path, ..*item }),
            (None, Op::ResettableMap(MapOp::Remove(fields))) => resets.push((item, Some(fields))),
            (None, _) => resets.push((item, None)),
        }
    }
    let reading = |(field, mut inner): (&Bytes, Vec<Item<'_>>)| {
        let of_field: Vec<&Item<'_>> = resets
            .iter()
            .filter(|(_, fields)| fields.is_none_or(|fields| fields.contains(field)))
            .map(|(reset, _)| *reset)
            .collect();
        inner.retain(|item| !of_field.iter().any(|reset| reset.has_seen(item)));
        Some((field.clone(), evaluate(&inner, me)?))
    };
    named.into_iter().filter_map(reading).collect()
}
