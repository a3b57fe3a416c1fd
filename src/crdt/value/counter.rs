//! A counter that adds up.
//!
//! The crate's `PNCounter` is not used: its operations carry the maker's running total, so that they may
//! arrive twice. Here operations arrive once and carry amounts only; two transactions of one datacenter need
//! not know of each other. Property-tested against it.

use serde::{Deserialize, Serialize};

use crate::crdt::value::leaf::Value;
use geolock_api::names::DcId;
use geolock_api::value::{OpError, Reading};

/// The sum of all additions. It is so wide that no number of 64-bit additions that fits a log overflows it.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Counter(i128);

impl Counter {
    pub fn add(&mut self, amount: i64) {
        // Wraps only after a forged checkpoint.
        self.0 = self.0.wrapping_add(amount.into());
    }

    pub fn check(&self, amount: i64) -> Result<(), OpError> {
        check_sum(self.0, amount)
    }
}

/// Returns the value of a sum that readers see.
pub(super) fn saturate(sum: i128) -> i64 {
    i64::try_from(sum).unwrap_or(if sum < 0 { i64::MIN } else { i64::MAX })
}

/// Checks that a sum may change by this amount.
pub(super) fn check_sum(sum: i128, amount: i64) -> Result<(), OpError> {
    match i64::try_from(sum.saturating_add(amount.into())) {
        Ok(_) => Ok(()),
        Err(_) => Err(OpError::Overflow),
    }
}

impl Value for Counter {
    fn read(&self, _me: DcId) -> Reading {
        Reading::Counter(saturate(self.0))
    }

    fn is_visible(&self) -> bool {
        self.0 != 0
    }

    fn atoms(&self, each: &mut dyn FnMut(&[u8])) {
        if self.0 != 0 {
            each(&saturate(self.0).to_le_bytes());
        }
    }
}
