//! Readings: values as readers see them.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::element::Element;
use crate::crdt::value::Type;

/// Maximum number of bytes of a reading. Reading a value with many elements stops when the budget is
/// overdrawn, so that no reading costs more than may be returned. The result is then incomplete.
#[derive(Debug)]
pub struct ReadBudget {
    left: usize,
    is_overdrawn: bool,
}

impl ReadBudget {
    pub fn new(bytes: usize) -> ReadBudget {
        ReadBudget { left: bytes, is_overdrawn: false }
    }

    pub fn is_overdrawn(&self) -> bool {
        self.is_overdrawn
    }

    /// Takes one more element out of the budget. Returns true if there was room.
    pub(super) fn take(&mut self, element: &Element) -> bool {
        match self.left.checked_sub(AROUND + element.as_bytes().len()) {
            Some(left) => self.left = left,
            None => self.is_overdrawn = true,
        }
        !self.is_overdrawn
    }
}

/// Approximate number of bytes of an element or a field beside its own bytes.
const AROUND: usize = 2;

/// A value as a reader sees it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reading {
    /// Saturated if concurrent additions leave the range.
    Counter(i64),
    ResettableCounter(i64),
    /// Never negative. `rights`: the amount by which the answering datacenter may decrement it.
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

/// See [`Reading::Versioned`]. The order of the fields is the order of values. Written to checkpoints.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct VersionedReading {
    pub version: u64,
    pub value: Bytes,
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
        let all = |items: &[Bytes]| items.iter().map(|item| AROUND + item.len()).sum::<usize>();
        4 + match self {
            Reading::Counter(_) | Reading::ResettableCounter(_) | Reading::Flag(..) => 8,
            Reading::BoundedCounter { .. } => 16,
            Reading::LwwRegister(value) => value.as_ref().map_or(0, Bytes::len),
            Reading::MvRegister(values) | Reading::Set(_, values) => all(values),
            Reading::Versioned(versioned) => {
                versioned.as_ref().map_or(0, |versioned| 9 + versioned.value.len())
            }
            Reading::Map(_, fields) => {
                fields.iter().map(|(field, value)| AROUND + field.len() + value.weight()).sum()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crdt::VersionVector;
    use crate::crdt::value::{At, Dot, Op, SetOp, Slots, Update};
    use crate::names::DcId;
    use crate::time::Timestamp;

    #[test]
    fn a_large_set_is_read_up_to_the_budget_and_no_further() {
        let me = DcId::new(0).expect("a small id");
        let items: Vec<Bytes> = (0..1_000).map(|n| format!("{n:08}").into()).collect();
        let seen = VersionVector::default();
        let at = At { dot: Dot { dc: me, seq: 1 }, index: 0, stamp: Timestamp::ZERO, seen: &seen };
        for op in [Op::GrowOnlySet(items.clone()), Op::AddWinsSet(SetOp::Add(items))] {
            let mut slots = Slots::default();
            slots.apply(&Update { path: Vec::new(), op }, &at);
            let read = |bytes| {
                let mut budget = ReadBudget::new(bytes);
                let reading = slots.read_within(me, &mut budget).expect("it is there");
                let Reading::Set(_, items) = reading else { panic!("it is a set") };
                (items.len(), budget.is_overdrawn())
            };
            assert_eq!(read(10 * 100 + 9), (100, true));
            assert_eq!(read(10 * 1_000), (1_000, false));
        }
    }
}
