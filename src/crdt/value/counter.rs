//! A counter that adds up.

use serde::{Deserialize, Serialize};

/// The sum of all additions; wide enough that no number of 64 bit additions that fits a log overflows it.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Counter(i128);

impl Counter {
    pub fn add(&mut self, amount: i64) {
        self.0 += i128::from(amount);
    }

    pub fn read(&self) -> i64 {
        self.0.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    /// Whether it may go there.
    pub fn can_add(&self, amount: i64) -> bool {
        i64::try_from(self.0 + i128::from(amount)).is_ok()
    }
}
