//! A register whose last assignment wins.

use bytes::Bytes;
use crdts::CmRDT;
use serde::{Deserialize, Serialize};

use crate::base::time::Timestamp;
use crate::crdt::value::At;
use crate::crdt::value::leaf::Value;
use geolock_api::names::DcId;
use geolock_api::value::Reading;

/// The crate's register. The marker orders assignments: stamp, datacenter, index in the commit.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct LwwRegister(Option<crdts::LWWReg<Bytes, Marker>>);

type Marker = (Timestamp, DcId, u32);

impl LwwRegister {
    pub fn assign(&mut self, value: &Bytes, at: &At<'_>) {
        let new = crdts::LWWReg { val: value.clone(), marker: (at.stamp, at.dot.dc, at.index) };
        match &mut self.0 {
            Some(register) => register.apply(new),
            None => self.0 = Some(new),
        }
    }
}

impl Value for LwwRegister {
    fn read(&self, _me: DcId) -> Reading {
        Reading::LwwRegister(self.0.as_ref().map(|register| register.val.clone()))
    }

    fn is_visible(&self) -> bool {
        self.0.is_some()
    }

    fn atoms(&self, each: &mut dyn FnMut(&[u8])) {
        if let Some(register) = &self.0 {
            each(&register.val);
        }
    }
}
