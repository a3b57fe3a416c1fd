//! Maps: fields by name, each with a value as a key has it.
//!
//! The crate's `Map` is not used: equal replicas of it can differ in their readings when its values are
//! `MVReg`s, and it orders operations by a vector in every field. Here a map has no tombstones of its own: a
//! field exists while its value does. Removing a field removes what was seen in it, so concurrent changes
//! stay, at every depth.

use bytes::Bytes;

use crate::base::work;
use crate::crdt::VersionVector;
use crate::crdt::value::chunks::Chunks;
use crate::crdt::value::element::{self, Element};
use crate::crdt::value::set::some_marked;
use crate::crdt::value::{At, Slots};
use geolock_api::names::DcId;
use geolock_api::value::{MapOp, READING_OVERHEAD, Reading};

/// The fields whose values are not empty.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Map {
    fields: Chunks<Element, Slots>,
    /// Those fields that have something to compact; the others are not examined for that.
    marked: Chunks<Element, ()>,
    /// Number of fields that readers see.
    visible: usize,
    /// Sum of the weights of these fields and of their readings.
    weight: usize,
}

impl Map {
    pub fn apply(&mut self, op: &MapOp, at: &At<'_>) {
        match op {
            MapOp::Remove(fields) => {
                fields.iter().for_each(|field| self.change(field, |slots| slots.reset(at)));
            }
            MapOp::Reset => self.reset(at),
        }
    }

    /// Changes the value of a field.
    pub fn change<R>(&mut self, field: &[u8], how: impl FnOnce(&mut Slots) -> R) -> R {
        let slots = self.fields.entry(field);
        let (before, had_tombstones) = (slots.weight(), slots.has_tombstones());
        let result = how(slots);
        let (after, has_tombstones, is_empty) = (slots.weight(), slots.has_tombstones(), slots.is_empty());
        let weight = |inner: Option<usize>| inner.map_or(0, |inner| element::weight(field) + inner);
        self.visible = self.visible + usize::from(after.is_some()) - usize::from(before.is_some());
        self.weight = self.weight + weight(after) - weight(before);
        if is_empty {
            self.fields.remove(field);
        }
        match (had_tombstones, has_tombstones) {
            (false, true) => *self.marked.entry(field) = (),
            (true, false) => drop(self.marked.remove(field)),
            _ => {}
        }
        result
    }

    pub fn reset(&mut self, at: &At<'_>) {
        work::count(self.fields.len());
        self.fields.retain(|_, slots| {
            slots.reset(at);
            !slots.is_empty()
        });
        (self.visible, self.weight) = (0, 0);
        for (field, slots) in self.fields.iter() {
            let Some(inner) = slots.weight() else { continue };
            self.visible += 1;
            self.weight += field.weight() + inner;
        }
        let marked = self.fields.iter().filter(|(_, slots)| slots.has_tombstones());
        self.marked = marked.map(|(field, _)| (field.clone(), ())).collect();
    }

    pub fn compact(&mut self, stable: &VersionVector) {
        let mut all = usize::MAX;
        self.compact_some(stable, None, &mut all);
    }

    /// See [`Slots::compact_some`]; the value of a field is compacted whole.
    pub fn compact_some(
        &mut self,
        stable: &VersionVector,
        after: Option<Bytes>,
        most: &mut usize,
    ) -> Option<Bytes> {
        let (marked, goes_on) = some_marked(&self.marked, after, most);
        marked.iter().for_each(|field| self.change(field.as_bytes(), |slots| slots.compact(stable)));
        marked.last().filter(|_| goes_on).map(Element::to_bytes)
    }

    /// Returns true if there is anything to compact.
    pub fn has_tombstones(&self) -> bool {
        !self.marked.is_empty()
    }

    pub fn field(&self, field: &[u8]) -> Option<&Slots> {
        self.fields.get(field)
    }

    /// In order; including those that readers do not see.
    pub fn fields(&self) -> impl Iterator<Item = (&Element, &Slots)> {
        self.fields.iter()
    }

    pub fn read(&self, me: DcId) -> Vec<(Bytes, Reading)> {
        work::count(self.visible);
        self.fields().filter_map(|(field, slots)| Some((field.to_bytes(), slots.read(me)?))).collect()
    }

    /// Returns the weight of the reading.
    pub fn weight(&self) -> usize {
        READING_OVERHEAD + self.weight
    }

    pub fn is_visible(&self) -> bool {
        self.visible > 0
    }

    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }
}
