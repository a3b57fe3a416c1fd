//! Sums over an ownership map, one for each owner and part.
//!
//! When a member ends, what it owned is at home at once, and its own parts count no more. Their sums just do
//! not count any more, so no lock has to be looked at for that.

use geolock_api::names::{DcId, DcSet, LockName, MAX_DCS};
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::{Ownership, Register};

/// The wrapping sums of the digests over the registers of each part that name each owner.
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
    /// Returns the sums over all registers: equal maps have equal sums. Walks the whole map.
    pub fn of_map(map: &Ownership) -> OwnershipSums {
        let mut sums = OwnershipSums::default();
        map.iter().for_each(|(lock, part, register)| sums.add(lock, part, register));
        sums.set_ended(map.sponsors().left());
        sums
    }

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
        let digest = digest(lock, part, register);
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

/// Returns the summand of a register in the wrapping sum over a map: 0 for a part that is at home, also if it
/// says so. Replicas that learn at different moments that a part is settled differ in that.
fn digest(lock: &LockName, part: DcId, register: Register) -> u128 {
    if register.version() == 0 {
        return 0;
    }
    let mut bytes = SmallVec::<[u8; 64]>::from_slice(&register.0.to_le_bytes());
    bytes.push(part.get());
    bytes.extend_from_slice(lock.as_bytes());
    // Members of version 2, which know plain names only, compute the same with no seed.
    let seed = lock.home().map_or(0, |home| 1 + u64::from(home.get()));
    xxh3_128_with_seed(&bytes, seed)
}
