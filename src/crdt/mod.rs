//! Pure. Replicated data: the version vector, the ownership map, and the values of the store.
//!
//! Vector and map are [`crdts::CvRDT`]s; their laws (commutative, associative, idempotent, monotone) are
//! property-tested beside them, against the `crdts` crate's own types.
//!
//! # Decisions
//!
//! - **Ownership is a map of registers, not `crdts::Map`** (`docs/algorithm/ownership.md#12-the-map`). Each
//!   part has one writer at a time, its owner, so registers never conflict. A part takes 8 bytes; with the
//!   crate's types a lock takes 1.5 to 3.3 KB. The rows are in a list, so their order depends on the applied
//!   entries, never on hashes.
//! - **A part that returns to its home loses its register.** Rejected: merging two ownership maps by the
//!   higher version. No register could then ever be dropped, because "none" would lose against any old one.
//!   The moves of a part are one causal chain, which every log has in order; two maps meet only in a state
//!   transfer, which knows both vectors (`lock_state/install_state.rs`).
//! - **The home of a lock is a part of its name** (`LockName::homed`). So every member knows the default
//!   owner of each part from the name (`default_owner.rs`), an unused lock takes no memory, and two clients
//!   that mean different homes cannot mean one lock. Rejected: a home that can be changed for each lock,
//!   which would be state of an unused lock, in every member, for ever. A rule about a prefix can change
//!   (`home_rules.rs`), and is one row for all its locks.
//! - **The locks that stop with a datacenter are counted when parts move** (`ownership/away.rs`), by owner,
//!   so status and metrics read one number.
//! - **Values use little of the crate**: `LWWReg`, and the other types as the reference in tests. Its
//!   `Orswot` and `MVReg` carry a clock for each element and iterate by hash, and its `PNCounter` needs
//!   totals of each actor. With causal delivery exactly once none of that is needed.
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
