//! Sets whose elements can be removed: add-wins and remove-wins.
//!
//! The crate's `Orswot` is not used: its hash maps are in random order; it knows one dot per add (here all
//! operations of a commit share one, and a later commit of a datacenter need not have seen an earlier one);
//! and it keeps removes that arrive early, with their vectors, which causal delivery rules out.
//! Property-tested against it.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize, Serializer};

use crate::base::work;
use crate::crdt::VersionVector;
use crate::crdt::value::At;
use crate::crdt::value::chunks::Chunks;
use crate::crdt::value::element::{self, Element};
use crate::crdt::value::leaf::Value;
use crate::crdt::value::presence::Presence;
use geolock_api::names::DcId;
use geolock_api::value::{READING_OVERHEAD, Reading, SetOp};

/// Returns the next elements that have something to compact, at most `most`, and true if there are more.
pub(super) fn some_marked(
    marked: &Chunks<Element, ()>,
    after: Option<Bytes>,
    most: &mut usize,
) -> (Vec<Element>, bool) {
    let mut next: Vec<Element> =
        marked.keys_after(after.as_deref()).take(most.saturating_add(1)).cloned().collect();
    let goes_on = next.len() > *most;
    next.truncate(*most);
    work::count(next.len());
    *most -= next.len();
    (next, goes_on)
}

/// The elements of which some operation is left. An operation costs the logarithm of their number for each
/// element that it names.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Set<P> {
    elements: Chunks<Element, P>,
    /// Those elements that have something to compact; the others are not examined for that.
    marked: Chunks<Element, ()>,
    /// Number of elements that are present.
    present: usize,
    /// Sum of their weights.
    weight: usize,
}

impl<P: Presence> Set<P> {
    pub fn apply(&mut self, op: &SetOp, at: &At<'_>) {
        match op {
            SetOp::Add(items) => items.iter().for_each(|item| self.change(item, |element| element.put(at))),
            SetOp::Remove(items) => {
                items.iter().for_each(|item| self.change(item, |element| element.remove(at)))
            }
            SetOp::Reset => self.reset(at),
        }
    }

    fn change(&mut self, item: &[u8], how: impl FnOnce(&mut P)) {
        let element = self.elements.entry(item);
        let (was_present, had_tombstones) = (element.is_present(), element.has_tombstones());
        how(element);
        let (is_present, has_tombstones, is_empty) =
            (element.is_present(), element.has_tombstones(), element.is_empty());
        self.present = self.present + usize::from(is_present) - usize::from(was_present);
        let weight = element::weight(item);
        self.weight = self.weight + weight * usize::from(is_present) - weight * usize::from(was_present);
        debug_assert!(!is_empty || !is_present, "an element of which nothing is left is not present");
        if is_empty {
            self.elements.remove(item);
        }
        match (had_tombstones, has_tombstones) {
            (false, true) => *self.marked.entry(item) = (),
            (true, false) => drop(self.marked.remove(item)),
            _ => {}
        }
        debug_assert!(self.present <= self.elements.len(), "present elements are elements");
        debug_assert!(self.marked.len() <= self.elements.len(), "marked elements are elements");
    }

    fn change_all(&mut self, how: impl Fn(&mut P)) {
        work::count(self.elements.len());
        self.elements.retain(|_, element| {
            how(element);
            !element.is_empty()
        });
        self.recount();
    }

    /// Recomputes the fields that follow from the elements.
    fn recount(&mut self) {
        self.present = self.present().count();
        self.weight = self.present().map(Element::weight).sum();
        let marked = self.elements.iter().filter(|(_, element)| element.has_tombstones());
        self.marked = marked.map(|(item, _)| (item.clone(), ())).collect();
    }

    fn present(&self) -> impl Iterator<Item = &Element> {
        self.elements.iter().filter(|(_, element)| element.is_present()).map(|(item, _)| item)
    }

    /// Calls `each` with those of [`Value::atoms`] that this operation may change.
    pub fn atoms_near(&self, op: &SetOp, each: &mut dyn FnMut(&[u8])) {
        match op {
            SetOp::Add(items) | SetOp::Remove(items) => {
                let named = items.iter().map(Bytes::as_ref).collect::<BTreeSet<&[u8]>>();
                let is_present = |item: &&[u8]| self.elements.get(*item).is_some_and(P::is_present);
                named.into_iter().filter(is_present).for_each(each);
            }
            SetOp::Reset => self.atoms(each),
        }
    }
}

impl<P: Presence> Value for Set<P> {
    fn read(&self, _me: DcId) -> Reading {
        work::count(self.present);
        Reading::Set(P::SET, self.present().map(Element::to_bytes).collect())
    }

    fn weight(&self) -> usize {
        READING_OVERHEAD + self.weight
    }

    fn is_visible(&self) -> bool {
        self.present > 0
    }

    fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }

    fn atoms(&self, each: &mut dyn FnMut(&[u8])) {
        self.present().for_each(|item| each(item.as_bytes()));
    }

    fn reset(&mut self, at: &At<'_>) {
        self.change_all(|element| element.reset(at));
    }

    fn compact(&mut self, stable: &VersionVector) {
        let mut all = usize::MAX;
        self.compact_some(stable, None, &mut all);
    }

    fn compact_some(
        &mut self,
        stable: &VersionVector,
        after: Option<Bytes>,
        most: &mut usize,
    ) -> Option<Bytes> {
        let (marked, goes_on) = some_marked(&self.marked, after, most);
        marked.iter().for_each(|item| self.change(item.as_bytes(), |element| element.compact(stable)));
        marked.last().filter(|_| goes_on).map(Element::to_bytes)
    }

    fn has_tombstones(&self) -> bool {
        !self.marked.is_empty()
    }
}

impl<P: Serialize> Serialize for Set<P> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.elements.serialize(serializer)
    }
}

impl<'de, P: Presence + Deserialize<'de>> Deserialize<'de> for Set<P> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Set<P>, D::Error> {
        let elements = Chunks::<Element, P>::deserialize(deserializer)?;
        if elements.values().any(P::is_empty) {
            return Err(D::Error::custom("a set holds an element that nothing is left of"));
        }
        let mut set = Set { elements, ..Set::default() };
        set.recount();
        Ok(set)
    }
}
