//! An element of a set, or the name of a field.

use std::borrow::Borrow;

use bytes::Bytes;
use serde::de::Deserializer;
use serde::{Deserialize, Serialize, Serializer};

use geolock_api::value::ELEMENT_OVERHEAD;

/// Owned bytes: 16 bytes of overhead instead of the 32 of [`Bytes`], and they do not keep the larger buffer
/// alive in which they arrived.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Element(Box<[u8]>);

impl Element {
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the weight of the element, or of the name of a field, in a reading.
    pub fn weight(&self) -> usize {
        weight(&self.0)
    }

    pub fn to_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(&self.0)
    }
}

/// Returns the weight of an element, or of the name of a field, with these bytes in a reading.
pub(super) fn weight(bytes: &[u8]) -> usize {
    ELEMENT_OVERHEAD + bytes.len()
}

impl From<&[u8]> for Element {
    fn from(bytes: &[u8]) -> Element {
        Element(bytes.into())
    }
}

/// Has the same order as the slice.
impl Borrow<[u8]> for Element {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl Serialize for Element {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Element {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Element, D::Error> {
        Bytes::deserialize(deserializer).map(|bytes| Element::from(&bytes[..]))
    }
}
