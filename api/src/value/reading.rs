//! Readings: values as readers see them.

use bytes::Bytes;

use super::Type;

/// Approximate number of bytes of an element or a field beside its own bytes.
pub const ELEMENT_OVERHEAD: usize = 2;

/// Approximate number of bytes of a reading beside its elements.
pub const READING_OVERHEAD: usize = 4;

/// A value as a reader sees it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reading {
    /// Saturated if concurrent additions leave the range.
    Counter(i64),
    /// Saturated as [`Reading::Counter`].
    ResettableCounter(i64),
    /// Never negative.
    BoundedCounter {
        /// The sum.
        value: u64,
        /// The amount by which the answering datacenter may decrement it.
        rights: u64,
    },
    /// The last write.
    LwwRegister(Option<Bytes>),
    /// In order; more than one after concurrent assignments.
    MvRegister(Vec<Bytes>),
    /// The highest version.
    Versioned(Option<VersionedReading>),
    /// A set of this type: its elements, in order.
    Set(Type, Vec<Bytes>),
    /// A flag of this type.
    Flag(Type, bool),
    /// A map of this type, by field, in order; a field appears when it has a value.
    Map(Type, Vec<(Bytes, Reading)>),
}

/// A version of a versioned value. The order of the fields is the order of values, and their order
/// in checkpoints.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct VersionedReading {
    /// The version that its writer chose.
    pub version: u64,
    /// The bytes of that version.
    pub value: Bytes,
    /// The writer said that no version follows.
    pub done: bool,
}

impl Reading {
    /// Returns the type of the value that was read.
    pub fn value_type(&self) -> Type {
        match self {
            Reading::Counter(_) => Type::Counter,
            Reading::ResettableCounter(_) => Type::ResettableCounter,
            Reading::BoundedCounter { .. } => Type::BoundedCounter,
            Reading::LwwRegister(_) => Type::LwwRegister,
            Reading::MvRegister(_) => Type::MvRegister,
            Reading::Versioned(_) => Type::Versioned,
            Reading::Set(of, _) | Reading::Flag(of, _) | Reading::Map(of, _) => *of,
        }
    }

    /// Returns the approximate number of bytes.
    pub fn weight(&self) -> usize {
        let all = |items: &[Bytes]| items.iter().map(|item| ELEMENT_OVERHEAD + item.len()).sum::<usize>();
        READING_OVERHEAD
            + match self {
                Reading::Counter(_) | Reading::ResettableCounter(_) | Reading::Flag(..) => 8,
                Reading::BoundedCounter { .. } => 16,
                Reading::LwwRegister(value) => value.as_ref().map_or(0, Bytes::len),
                Reading::MvRegister(values) | Reading::Set(_, values) => all(values),
                Reading::Versioned(versioned) => {
                    versioned.as_ref().map_or(0, |versioned| 9 + versioned.value.len())
                }
                Reading::Map(_, fields) => {
                    fields.iter().map(|(field, value)| ELEMENT_OVERHEAD + field.len() + value.weight()).sum()
                }
            }
    }
}
