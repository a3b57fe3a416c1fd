//! A set that only grows.
//!
//! The crate's `GSet` is not used: its size or a single element's bytes can be read only by copying. It is
//! the same tree inside; property-tested against it.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::base::work;
use crate::crdt::value::chunks::Chunks;
use crate::crdt::value::element::{self, Element};
use crate::crdt::value::leaf::Value;
use geolock_api::names::DcId;
use geolock_api::value::{READING_OVERHEAD, Reading, Type};

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct GrowOnlySet {
    elements: Chunks<Element, ()>,
    /// Sum of the weights of the elements.
    weight: usize,
}

impl GrowOnlySet {
    pub fn add(&mut self, items: &[Bytes]) {
        for item in items {
            if !self.elements.contains_key(&item[..]) {
                *self.elements.entry(&item[..]) = ();
                self.weight += element::weight(item);
            }
        }
    }

    /// Calls `each` with those of [`Value::atoms`] that adding these items may change.
    pub fn atoms_near(&self, items: &[Bytes], each: &mut dyn FnMut(&[u8])) {
        let named = items.iter().map(Bytes::as_ref).collect::<BTreeSet<&[u8]>>();
        named.into_iter().filter(|item| self.elements.contains_key(*item)).for_each(each);
    }
}

impl Value for GrowOnlySet {
    fn read(&self, _me: DcId) -> Reading {
        work::count(self.elements.len());
        Reading::Set(Type::GrowOnlySet, self.elements.keys().map(Element::to_bytes).collect())
    }

    fn weight(&self) -> usize {
        READING_OVERHEAD + self.weight
    }

    fn is_visible(&self) -> bool {
        !self.elements.is_empty()
    }

    fn atoms(&self, each: &mut dyn FnMut(&[u8])) {
        self.elements.keys().for_each(|item| each(item.as_bytes()));
    }
}

/// As a list.
impl Serialize for GrowOnlySet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeSeq;
        let mut list = serializer.serialize_seq(Some(self.elements.len()))?;
        self.elements.keys().try_for_each(|item| list.serialize_element(item))?;
        list.end()
    }
}

impl<'de> Deserialize<'de> for GrowOnlySet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<GrowOnlySet, D::Error> {
        let items = BTreeSet::<Element>::deserialize(deserializer)?;
        let weight = items.iter().map(Element::weight).sum();
        Ok(GrowOnlySet { elements: items.into_iter().map(|item| (item, ())).collect(), weight })
    }
}
