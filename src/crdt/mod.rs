//! Pure. Replicated data: the version vector, the ownership map, and the values of the store.
//!
//! Vector and map are [`crdts::CvRDT`]s; their laws (commutative, associative, idempotent, monotone) are
//! property-tested beside them, against the `crdts` crate's own types.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(missing_docs)]

mod default_owner;
#[cfg(test)]
pub(crate) mod histories;
mod home_rules;
mod ownership;
mod sponsors;
pub mod value;
mod version_vector;

pub use home_rules::{AsOf, HomeRules, is_below};
pub use ownership::{
    AwayCounts, DoubleOwner, LockOwners, OwnedRows, Ownership, OwnershipSums, PartMove, ReaderId, Recency,
    Register, RegisterTable, lock_weight,
};
pub use sponsors::{Sponsored, Sponsors};
pub use version_vector::VersionVector;
