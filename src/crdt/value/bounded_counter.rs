//! A counter that never goes below 0, anywhere, though no datacenter asks another one before it decrements.
//!
//! Its value is a sum of rights to decrement, each of which one datacenter has. An addition gives rights to
//! its datacenter, a decrement uses them, and they can be moved (Balegas et al.: *Extending Eventually
//! Consistent Cloud Databases for Enforcing Numeric Invariants*, 2015). Only a datacenter itself lowers its
//! rights. It checks before it does, and its operations are applied in their order, after those that gave it
//! the rights. So no rights are ever negative if every datacenter obeyed [`BoundedCounter::check_add`]. If
//! one did not, the sums still agree everywhere, and readers see 0 instead of a negative value.
//!
//! The `crdts` crate has no such type.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::crdt::value::At;
use crate::crdt::value::leaf::Value;
use geolock_api::names::DcId;
use geolock_api::value::{OpError, Reading};

/// The rights of each datacenter; none is 0.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct BoundedCounter(BTreeMap<DcId, i128>);

impl BoundedCounter {
    pub fn add(&mut self, amount: i64, at: &At<'_>) {
        self.change(at.dot.dc, amount.into());
    }

    pub fn transfer_rights(&mut self, to: DcId, amount: u64, at: &At<'_>) {
        self.change(at.dot.dc, -i128::from(amount));
        self.change(to, amount.into());
    }

    fn change(&mut self, dc: DcId, amount: i128) {
        let rights = self.0.entry(dc).or_default();
        *rights = rights.wrapping_add(amount);
        if *rights == 0 {
            self.0.remove(&dc);
        }
    }

    /// Checks that datacenter `me` may add this amount.
    pub fn check_add(&self, amount: i64, me: DcId) -> Result<(), OpError> {
        if amount < 0 {
            self.check_rights(amount.unsigned_abs(), me)
        } else if u64::try_from(self.sum().max(0).saturating_add(amount.into())).is_err() {
            Err(OpError::Overflow)
        } else {
            Ok(())
        }
    }

    /// Checks that datacenter `me` has this number of rights to use.
    pub fn check_rights(&self, asked: u64, me: DcId) -> Result<(), OpError> {
        let rights = self.rights(me);
        if asked <= rights { Ok(()) } else { Err(OpError::InsufficientRights { asked, rights }) }
    }

    /// Returns the rights of all datacenters that have some.
    pub fn all_rights(&self) -> Vec<(DcId, u64)> {
        self.0.iter().map(|(dc, rights)| (*dc, saturate(*rights))).filter(|(_, rights)| *rights > 0).collect()
    }

    fn rights(&self, dc: DcId) -> u64 {
        self.0.get(&dc).map_or(0, |rights| saturate(*rights))
    }

    fn sum(&self) -> i128 {
        self.0.values().fold(0, |sum, rights| sum.wrapping_add(*rights))
    }
}

fn saturate(sum: i128) -> u64 {
    u64::try_from(sum).unwrap_or(if sum < 0 { 0 } else { u64::MAX })
}

impl Value for BoundedCounter {
    fn read(&self, me: DcId) -> Reading {
        Reading::BoundedCounter { value: saturate(self.sum()), rights: self.rights(me) }
    }

    fn is_visible(&self) -> bool {
        self.0.values().any(|rights| *rights > 0)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn atoms(&self, each: &mut dyn FnMut(&[u8])) {
        if self.is_visible() {
            each(&saturate(self.sum()).to_le_bytes());
        }
        for (dc, rights) in self.0.iter().filter(|(_, rights)| **rights > 0) {
            let [a, b, c, d, e, f, g, h] = saturate(*rights).to_le_bytes();
            each(&[dc.get(), a, b, c, d, e, f, g, h]);
        }
    }
}
