//! Measured distances to the other datacenters.

use std::time::Duration;

use crate::names::{DcId, MAX_DCS};

/// One way, by datacenter; `None` for those that were not measured yet.
pub(crate) struct Distances([Option<Duration>; MAX_DCS]);

impl Distances {
    pub fn unknown() -> Distances {
        Distances([None; MAX_DCS])
    }

    pub fn to(&self, dc: DcId) -> Option<Duration> {
        self.0[dc.index()]
    }

    pub fn set(&mut self, dc: DcId, distance: Duration) {
        self.0[dc.index()] = Some(distance);
    }
}
