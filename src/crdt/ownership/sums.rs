//! Sums over an ownership map, one for each owner and part.
//!
//! When a member ends, what it owned is at home at once, and its own parts count no more. Their sums just do
//! not count any more, so no lock has to be looked at for that.

use super::{Ownership, Register};
use geolock_api::names::{DcId, DcSet, LockName, MAX_DCS};

/// The wrapping sums of [`Ownership::digest`] over the registers of each part that name each owner.
#[derive(Clone, Debug)]
pub struct OwnershipSums {
    /// By owner and part.
    sums: Box<[u128]>,
    /// The sum over those that count.
    total: u128,
    /// The members that have ended.
    ended: DcSet,
}

impl Default for OwnershipSums {
    fn default() -> OwnershipSums {
        let sums = vec![0; MAX_DCS * MAX_DCS].into_boxed_slice();
        OwnershipSums { sums, total: 0, ended: DcSet::EMPTY }
    }
}

impl OwnershipSums {
    /// Returns the sum over all registers that count.
    #[inline]
    pub fn total(&self) -> u128 {
        self.total
    }

    /// A register was written.
    pub fn add(&mut self, lock: &LockName, part: DcId, register: Register) {
        self.change(lock, part, register, u128::wrapping_add);
    }

    /// A register is overwritten.
    pub fn subtract(&mut self, lock: &LockName, part: DcId, register: Register) {
        self.change(lock, part, register, u128::wrapping_sub);
    }

    fn change(&mut self, lock: &LockName, part: DcId, register: Register, by: fn(u128, u128) -> u128) {
        let Some(owner) = register.owner() else { return };
        let digest = Ownership::digest(lock, part, register);
        let sum = &mut self.sums[owner.index() * MAX_DCS + part.index()];
        *sum = by(*sum, digest);
        if !self.ended.contains(owner) && !self.ended.contains(part) {
            self.total = by(self.total, digest);
        }
    }

    /// No register names these any more, as part or as owner. What was removed of a member that had ended was
    /// not subtracted.
    pub fn forget(&mut self, ended: DcSet) {
        for (at, sum) in self.sums.iter_mut().enumerate() {
            let is_of = |index| DcId::new(index as u8).is_some_and(|dc| ended.contains(dc));
            if is_of(at / MAX_DCS) || is_of(at % MAX_DCS) {
                *sum = 0;
            }
        }
    }

    /// Sets the members that have ended: neither their parts nor what they own counts.
    pub fn set_ended(&mut self, ended: DcSet) {
        if self.ended == ended {
            return;
        }
        self.ended = ended;
        let counts = |at: &(usize, &u128)| {
            let dc = |index| DcId::new(index as u8).is_some_and(|dc| !ended.contains(dc));
            dc(at.0 / MAX_DCS) && dc(at.0 % MAX_DCS)
        };
        self.total =
            self.sums.iter().enumerate().filter(counts).fold(0, |all, (_, sum)| all.wrapping_add(*sum));
    }
}
