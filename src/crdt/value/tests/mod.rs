//! Laws and examples of the values.

mod bytes_from_outside;
mod checks;
mod crate_types;
mod examples;
mod history;
mod laws;
mod oracle;

use bytes::Bytes;

use crate::base::time::Timestamp;
use crate::crdt::VersionVector;
use crate::crdt::value::{At, Dot, SharedValue, Slots};
use geolock_api::names::DcId;
use geolock_api::value::{Op, Update};

fn dc(id: u8) -> DcId {
    DcId::new(id).expect("a small id")
}

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

impl SharedValue {
    /// Returns a value that this was written to, and nothing else.
    pub fn written(op: Op) -> SharedValue {
        let seen = VersionVector::default();
        let at = At { dot: Dot { dc: dc(0), seq: 1 }, index: 0, stamp: Timestamp::ZERO, seen: &seen };
        let mut slots = Slots::default();
        slots.apply(&Update { path: Vec::new(), op }, &at);
        SharedValue::new(&slots, dc(0)).expect("what was written is seen")
    }
}
