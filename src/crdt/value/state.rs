//! One value of one type.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::base::work;
use crate::crdt::VersionVector;
use crate::crdt::value::digest::{Place, Shown};
use crate::crdt::value::leaf::Leaf;
use crate::crdt::value::map::Map;
use crate::crdt::value::slots::weight_of_new;
use crate::crdt::value::{At, Dot, element};
use geolock_api::names::DcId;
use geolock_api::value::{MapOp, MapType, Op, OpError, PathStep, Reading, Type};

/// The state of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum State {
    Leaf(Leaf),
    Map(MapType, Map),
}

impl State {
    /// Returns the empty value that this operation at this path is for, or within.
    pub fn for_op(path: &[PathStep], op: &Op) -> State {
        match (path.first(), Leaf::for_op(op)) {
            (Some(step), _) => State::Map(step.map, Map::default()),
            (None, Some(leaf)) => State::Leaf(leaf),
            (None, None) => State::Map(MapType::Resettable, Map::default()),
        }
    }

    pub fn value_type(&self) -> Type {
        match self {
            State::Leaf(leaf) => leaf.value_type(),
            State::Map(of, _) => of.value_type(),
        }
    }

    /// `path` has at most [`MAX_DEPTH`](geolock_api::value::MAX_DEPTH) steps, so the recursion is no deeper.
    pub fn apply(&mut self, path: &[PathStep], op: &Op, at: &At<'_>) {
        match (self, path.split_first(), op) {
            (State::Map(_, map), Some((step, inner)), _) => {
                map.change(&step.field, |slots| slots.apply_within(inner, op, at));
            }
            (State::Map(_, map), None, Op::ResettableMap(op)) => map.apply(op, at),
            (State::Leaf(leaf), None, _) => leaf.apply(op, at),
            (state, path, _) => {
                unreachable!("{op:?} at {path:?} is given to the slot of its type, not to {state:?}")
            }
        }
    }

    pub fn check(&self, path: &[PathStep], op: &Op, me: DcId) -> Result<(), OpError> {
        match (self, path.split_first()) {
            (State::Map(_, map), Some((step, inner))) => match map.field(&step.field) {
                Some(slots) => slots.check_within(inner, op, me),
                None => State::for_op(inner, op).check(inner, op, me),
            },
            (State::Leaf(leaf), None) => leaf.check(op, me),
            _ => Ok(()),
        }
    }

    pub fn read(&self, me: DcId) -> Reading {
        match self {
            State::Leaf(leaf) => leaf.value().read(me),
            State::Map(of, map) => Reading::Map(of.value_type(), map.read(me)),
        }
    }

    /// Returns the [weight](Reading::weight) of the reading.
    pub fn weight(&self) -> usize {
        match self {
            State::Leaf(leaf) => leaf.value().weight(),
            State::Map(_, map) => map.weight(),
        }
    }

    /// Returns a bound of the bytes by which an operation makes the reading larger.
    pub fn growth(&self, path: &[PathStep], op: &Op) -> usize {
        match (self, path.split_first()) {
            (State::Leaf(leaf), _) => {
                let mut named = 0;
                leaf.atoms_near(op, &mut |atom| named += element::weight(atom));
                op.weight().saturating_sub(named)
            }
            (State::Map(_, map), Some((step, inner))) => map
                .field(&step.field)
                .map_or_else(|| weight_of_new(path, op), |slots| slots.growth_within(inner, op)),
            (State::Map(..), None) => 0,
        }
    }

    pub fn is_visible(&self) -> bool {
        match self {
            State::Leaf(leaf) => leaf.value().is_visible(),
            State::Map(_, map) => map.is_visible(),
        }
    }

    pub fn is_empty(&self) -> bool {
        match self {
            State::Leaf(leaf) => leaf.value().is_empty(),
            State::Map(_, map) => map.is_empty(),
        }
    }

    pub fn reset(&mut self, at: &At<'_>) {
        match self {
            State::Leaf(leaf) => leaf.value_mut().reset(at),
            State::Map(MapType::Resettable, map) => map.reset(at),
            State::Map(MapType::GrowOnly, _) => {}
        }
    }

    pub fn done_by(&self) -> Option<Dot> {
        match self {
            State::Leaf(leaf) => leaf.value().done_by(),
            State::Map(..) => None,
        }
    }

    /// Returns true if there is anything to compact.
    pub fn has_tombstones(&self) -> bool {
        match self {
            State::Leaf(leaf) => leaf.value().has_tombstones(),
            State::Map(_, map) => map.has_tombstones(),
        }
    }

    pub fn compact_some(
        &mut self,
        stable: &VersionVector,
        after: Option<Bytes>,
        most: &mut usize,
    ) -> Option<Bytes> {
        match self {
            State::Leaf(leaf) => leaf.value_mut().compact_some(stable, after, most),
            State::Map(_, map) => map.compact_some(stable, after, most),
        }
    }

    pub fn compact(&mut self, stable: &VersionVector) {
        match self {
            State::Leaf(leaf) => leaf.value_mut().compact(stable),
            State::Map(_, map) => map.compact(stable),
        }
    }

    /// Returns the sum over the atoms that readers see if this is the visible slot.
    pub fn digest(&self, place: Place) -> Shown {
        match self {
            State::Leaf(leaf) => sum_atoms(place, leaf.value_type(), |each| leaf.value().atoms(each)),
            State::Map(of, map) => map
                .fields()
                .map(|(field, slots)| slots.digest_at(place.of_field(of.value_type(), field.as_bytes())))
                .fold(Shown::default(), Shown::plus),
        }
    }

    /// Returns the part of [`State::digest`] that an operation may change.
    pub fn digest_near(&self, place: Place, path: &[PathStep], op: &Op) -> Shown {
        match (self, path.split_first(), op) {
            (State::Leaf(leaf), _, _) => {
                sum_atoms(place, leaf.value_type(), |each| leaf.atoms_near(op, each))
            }
            (State::Map(of, map), Some((step, inner)), _) => {
                let place = place.of_field(of.value_type(), &step.field);
                let slots = map.field(&step.field);
                slots.map_or_else(Shown::default, |slots| slots.digest_near_within(place, inner, op))
            }
            (State::Map(of, map), None, Op::ResettableMap(MapOp::Remove(fields))) => {
                let named = fields.iter().map(Bytes::as_ref).collect::<BTreeSet<&[u8]>>();
                let digest_of = |field: &[u8]| {
                    let place = place.of_field(of.value_type(), field);
                    map.field(field).map_or_else(Shown::default, |slots| slots.digest_at(place))
                };
                named.into_iter().map(digest_of).fold(Shown::default(), Shown::plus)
            }
            (State::Map(..), None, _) => self.digest(place),
        }
    }
}

fn sum_atoms(place: Place, of: Type, atoms: impl FnOnce(&mut dyn FnMut(&[u8]))) -> Shown {
    let mut shown = Shown::default();
    atoms(&mut |content| {
        work::count(1 + content.len() / work::BLOCK);
        let sum = place.atom(of, content);
        shown = shown.plus(Shown { sum, bytes: content.len() as u64, atoms: 1 });
    });
    shown
}
