//! A register that shows all of several concurrent assignments.
//!
//! The crate's `MVReg` is not used: it describes what an assignment has seen by a vector that includes the
//! assignment itself, so of two assignments of one actor the later has always seen the earlier. Here two
//! transactions of one datacenter may be concurrent. It also keeps such a vector for every value.
//! Property-tested against it.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::crdt::value::leaf::Value;
use crate::crdt::value::{At, Dot};
use geolock_api::names::DcId;
use geolock_api::value::{Reading, RegisterOp};

/// The assignments that no operation has removed, in the order of their dots.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct MvRegister(Vec<(Dot, Bytes)>);

impl MvRegister {
    pub fn apply(&mut self, op: &RegisterOp, at: &At<'_>) {
        self.reset(at);
        if let RegisterOp::Assign(value) = op {
            let place = self.0.partition_point(|(dot, _)| *dot < at.dot);
            self.0.insert(place, (at.dot, value.clone()));
        }
    }

    /// In order, each once.
    fn values(&self) -> Vec<&Bytes> {
        let mut values: Vec<&Bytes> = self.0.iter().map(|(_, value)| value).collect();
        values.sort_unstable();
        values.dedup();
        values
    }
}

impl Value for MvRegister {
    fn read(&self, _me: DcId) -> Reading {
        Reading::MvRegister(self.values().into_iter().cloned().collect())
    }

    fn is_visible(&self) -> bool {
        !self.0.is_empty()
    }

    fn atoms(&self, each: &mut dyn FnMut(&[u8])) {
        self.values().into_iter().for_each(|value| each(value));
    }

    fn reset(&mut self, at: &At<'_>) {
        self.0.retain(|(dot, _)| !at.has_seen(*dot));
    }
}
