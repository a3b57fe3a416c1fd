//! Flags: one presence each.

use serde::{Deserialize, Serialize};

use crate::crdt::VersionVector;
use crate::crdt::value::At;
use crate::crdt::value::leaf::Value;
use crate::crdt::value::presence::Presence;
use geolock_api::names::DcId;
use geolock_api::value::{FlagOp, Reading};

/// Enabled is present.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Flag<P>(P);

impl<P: Presence> Flag<P> {
    pub fn apply(&mut self, op: &FlagOp, at: &At<'_>) {
        match op {
            FlagOp::Enable => self.0.put(at),
            FlagOp::Disable => self.0.remove(at),
            FlagOp::Reset => self.0.reset(at),
        }
    }
}

impl<P: Presence> Value for Flag<P> {
    fn read(&self, _me: DcId) -> Reading {
        Reading::Flag(P::FLAG, self.0.is_present())
    }

    fn is_visible(&self) -> bool {
        self.0.is_present()
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn atoms(&self, each: &mut dyn FnMut(&[u8])) {
        if self.0.is_present() {
            each(&[]);
        }
    }

    fn reset(&mut self, at: &At<'_>) {
        self.0.reset(at);
    }

    fn compact(&mut self, stable: &VersionVector) {
        self.0.compact(stable);
    }

    fn has_tombstones(&self) -> bool {
        self.0.has_tombstones()
    }
}
