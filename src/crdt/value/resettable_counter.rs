//! A counter that adds up; a reset removes the additions that it saw.
//!
//! The crate's `PNCounter` resets by subtracting a vector of running totals; `counter.rs` says why operations
//! here carry amounts.

use serde::{Deserialize, Serialize};

use crate::base::work;
use crate::crdt::VersionVector;
use crate::crdt::value::chunks::Chunks;
use crate::crdt::value::counter::{check_sum, saturate};
use crate::crdt::value::leaf::Value;
use crate::crdt::value::{At, Dot};
use geolock_api::names::DcId;
use geolock_api::value::{OpError, Reading, ResettableCounterOp};

/// A reset removes everything from the sum except the additions that it did not see. So an addition has to be
/// known by itself only while some future reset may not have seen it; later it is in the sum alone.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct ResettableCounter {
    sum: i128,
    /// The amount that each commit added, unless every future operation has seen it.
    recent: Chunks<Dot, i128>,
}

impl ResettableCounter {
    pub fn apply(&mut self, op: &ResettableCounterOp, at: &At<'_>) {
        match op {
            ResettableCounterOp::Add(amount) => {
                let amount = i128::from(*amount);
                self.sum = self.sum.wrapping_add(amount);
                let added = self.recent.entry(&at.dot);
                *added = added.wrapping_add(amount);
            }
            ResettableCounterOp::Reset => self.reset(at),
        }
    }

    pub fn check(&self, op: &ResettableCounterOp) -> Result<(), OpError> {
        match op {
            ResettableCounterOp::Add(amount) => check_sum(self.sum, *amount),
            ResettableCounterOp::Reset => Ok(()),
        }
    }
}

impl Value for ResettableCounter {
    fn read(&self, _me: DcId) -> Reading {
        Reading::ResettableCounter(saturate(self.sum))
    }

    fn is_visible(&self) -> bool {
        self.sum != 0
    }

    fn is_empty(&self) -> bool {
        self.sum == 0 && self.recent.is_empty()
    }

    fn atoms(&self, each: &mut dyn FnMut(&[u8])) {
        if self.sum != 0 {
            each(&saturate(self.sum).to_le_bytes());
        }
    }

    fn reset(&mut self, at: &At<'_>) {
        work::count(self.recent.len() / 16);
        self.recent.retain(|dot, _| !at.has_seen(*dot));
        self.sum = self.recent.values().fold(0, |sum, amount| sum.wrapping_add(*amount));
    }

    fn compact(&mut self, stable: &VersionVector) {
        work::count(self.recent.len() / 16);
        if self.recent.keys().any(|dot| dot.is_in(stable)) {
            self.recent.retain(|dot, _| !dot.is_in(stable));
        }
    }

    fn has_tombstones(&self) -> bool {
        !self.recent.is_empty()
    }
}
