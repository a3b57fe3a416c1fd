//! What readers see.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::crdt::value::Type;

/// A value as a reader sees it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reading {
    /// Saturated, should concurrent additions leave the range.
    Counter(i64),
    ResettableCounter(i64),
    /// Never negative. `rights`: by how much it may go down in the datacenter asked.
    BoundedCounter {
        value: u64,
        rights: u64,
    },
    LwwRegister(Option<Bytes>),
    /// In order; more than one after concurrent assignments.
    MvRegister(Vec<Bytes>),
    Versioned(Option<VersionedReading>),
    /// In order.
    Set(Type, Vec<Bytes>),
    Flag(Type, bool),
    /// By field, in order; a field appears when it has a value.
    Map(Type, Vec<(Bytes, Reading)>),
}

/// See [`Reading::Versioned`]. The order of the fields is the order of values; they are written to checkpoints.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct VersionedReading {
    pub version: u64,
    pub value: Bytes,
    pub done: bool,
}

impl Reading {
    /// The type of the value that was read.
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

    /// About how many bytes this takes.
    pub fn weight(&self) -> usize {
        let all = |items: &[Bytes]| items.iter().map(|item| 2 + item.len()).sum::<usize>();
        4 + match self {
            Reading::Counter(_) | Reading::ResettableCounter(_) | Reading::Flag(..) => 8,
            Reading::BoundedCounter { .. } => 16,
            Reading::LwwRegister(value) => value.as_ref().map_or(0, Bytes::len),
            Reading::MvRegister(values) | Reading::Set(_, values) => all(values),
            Reading::Versioned(versioned) => {
                versioned.as_ref().map_or(0, |versioned| 9 + versioned.value.len())
            }
            Reading::Map(_, fields) => {
                fields.iter().map(|(field, value)| 2 + field.len() + value.weight()).sum()
            }
        }
    }
}
