//! Random numbers for drivers: seeds, jitter, and names that no earlier run has used.

use std::hash::{BuildHasher as _, RandomState};

/// Returns a random number: the standard library's hash tables are seeded by the operating system.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0_u8)
}
