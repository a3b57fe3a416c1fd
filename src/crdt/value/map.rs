//! Maps: fields by name, each of which holds what a key holds.
//!
//! Not the crate's `Map`: equal replicas of it can differ in what readers see when its values are `MVReg`s, and it is
//! ordered by vectors of every field. Here a map has no marks of its own: a field is there while something in it is.
//! Removing one takes away what was seen in it, so what is concurrent stays, all the way down.

use bytes::Bytes;

use crate::crdt::VersionVector;
use crate::crdt::value::chunks::Chunks;
use crate::crdt::value::element::Element;
use crate::crdt::value::set::some_marked;
use crate::crdt::value::{At, MapOp, ReadBudget, Reading, Slots};
use crate::names::DcId;
use crate::work;

/// The fields that something is left in.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Map {
    fields: Chunks<Element, Slots>,
    /// Those of them that have something to settle: the others are not looked at for that.
    marked: Chunks<Element, ()>,
    /// How many of them readers see.
    visible: usize,
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

    /// Changes what is in a field.
    pub fn change<R>(&mut self, field: &[u8], how: impl FnOnce(&mut Slots) -> R) -> R {
        let slots = self.fields.entry(field);
        let (was_visible, had_marks) = (slots.is_visible(), slots.has_marks());
        let result = how(slots);
        let (is_visible, has_marks, is_empty) = (slots.is_visible(), slots.has_marks(), slots.is_empty());
        self.visible = self.visible + usize::from(is_visible) - usize::from(was_visible);
        if is_empty {
            self.fields.remove(field);
        }
        match (had_marks, has_marks) {
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
        self.visible = self.fields.values().filter(|slots| slots.is_visible()).count();
        let marked = self.fields.iter().filter(|(_, slots)| slots.has_marks());
        self.marked = marked.map(|(field, _)| (field.clone(), ())).collect();
    }

    pub fn settle(&mut self, stable: &VersionVector) {
        let mut all = usize::MAX;
        self.settle_some(stable, None, &mut all);
    }

    /// See [`Slots::settle_some`]; what a field has is settled whole.
    pub fn settle_some(
        &mut self,
        stable: &VersionVector,
        after: Option<Bytes>,
        most: &mut usize,
    ) -> Option<Bytes> {
        let (marked, goes_on) = some_marked(&self.marked, after, most);
        marked.iter().for_each(|field| self.change(field.as_bytes(), |slots| slots.settle(stable)));
        marked.last().filter(|_| goes_on).map(Element::to_bytes)
    }

    /// Whether there is anything to settle.
    pub fn has_marks(&self) -> bool {
        !self.marked.is_empty()
    }

    pub fn field(&self, field: &[u8]) -> Option<&Slots> {
        self.fields.get(field)
    }

    /// In order; with those that readers do not see.
    pub fn fields(&self) -> impl Iterator<Item = (&Element, &Slots)> {
        self.fields.iter()
    }

    pub fn read(&self, me: DcId, budget: &mut ReadBudget) -> Vec<(Bytes, Reading)> {
        let mut readings = Vec::new();
        for (field, slots) in self.fields() {
            let Some(reading) = slots.read_within(me, budget) else { continue };
            if !budget.take(field) {
                break;
            }
            readings.push((field.to_bytes(), reading));
        }
        readings
    }

    pub fn is_visible(&self) -> bool {
        self.visible > 0
    }

    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }
}
