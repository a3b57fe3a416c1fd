//! A bound on the size of a reading.

use geolock_api::value::ELEMENT_OVERHEAD;

use super::element::Element;
use crate::base::work;

/// Maximum number of bytes of a reading. Reading a value with many elements stops when the budget is
/// overdrawn, so that no reading costs more than may be returned. The result is then incomplete.
#[derive(Debug)]
pub struct ReadBudget {
    left: usize,
    is_overdrawn: bool,
    /// Number of elements.
    taken: u64,
}

impl ReadBudget {
    /// Returns a budget of this number of bytes.
    pub fn new(bytes: usize) -> ReadBudget {
        ReadBudget { left: bytes, is_overdrawn: false, taken: 0 }
    }

    /// Returns true if a reading was cut off.
    pub fn is_overdrawn(&self) -> bool {
        self.is_overdrawn
    }

    /// Takes one more element out of the budget. Returns true if there was room.
    pub(super) fn take(&mut self, element: &Element) -> bool {
        // To copy an element takes less than to look for a row.
        self.taken += 1;
        work::count(usize::from(self.taken.is_multiple_of(16)));
        match self.left.checked_sub(ELEMENT_OVERHEAD + element.as_bytes().len()) {
            Some(left) => self.left = left,
            None => self.is_overdrawn = true,
        }
        !self.is_overdrawn
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::base::time::Timestamp;
    use crate::crdt::VersionVector;
    use crate::crdt::value::{At, Dot, Slots};
    use geolock_api::names::DcId;
    use geolock_api::value::{Op, Reading, SetOp, Update};

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
