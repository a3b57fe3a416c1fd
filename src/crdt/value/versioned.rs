//! A value with a version that its writers choose.

use serde::{Deserialize, Serialize};

use crate::crdt::value::Dot;
use crate::crdt::value::leaf::Value;
use geolock_api::names::DcId;
use geolock_api::value::{OpError, Reading, VersionedReading};

/// The greatest of the written values: by version, then by bytes, then a done one. A plain maximum, so it
/// needs no marker beside it as the crate's `LWWReg` does.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Versioned(Option<Written>);

/// A written value and its commit; readers see no difference between commits that wrote the same value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
struct Written {
    value: VersionedReading,
    by: Dot,
}

impl Versioned {
    pub fn write(&mut self, value: VersionedReading, by: Dot) {
        let new = Written { value, by };
        if self.0.as_ref().is_none_or(|present| *present < new) {
            self.0 = Some(new);
        }
    }

    pub fn check(&self, written: u64) -> Result<(), OpError> {
        match self.present() {
            Some(present) if present.done => Err(OpError::Done { is: present.version }),
            Some(present) if written <= present.version => {
                Err(OpError::Stale { is: present.version, written })
            }
            _ => Ok(()),
        }
    }

    fn present(&self) -> Option<&VersionedReading> {
        self.0.as_ref().map(|written| &written.value)
    }
}

impl Value for Versioned {
    fn read(&self, _me: DcId) -> Reading {
        Reading::Versioned(self.present().cloned())
    }

    fn is_visible(&self) -> bool {
        self.0.is_some()
    }

    fn atoms(&self, each: &mut dyn FnMut(&[u8])) {
        if let Some(VersionedReading { version, value, done }) = self.present() {
            let mut atom = version.to_le_bytes().to_vec();
            atom.push(u8::from(*done));
            atom.extend_from_slice(value);
            each(&atom);
        }
    }

    fn done_by(&self) -> Option<Dot> {
        self.0.as_ref().filter(|written| written.value.done).map(|written| written.by)
    }
}
