//! Pure. Keys and values of one datacenter, as every open snapshot shows them.
//!
//! Commits arrive in the order in which this datacenter applies entries, and every snapshot is a prefix of
//! that order: the journal's durable position at the moment the transaction opened. So versions need no
//! vectors: a snapshot is one [`Position`](geolock_api::names::Position).
//!
//! ```text
//!  commits applied here:   .......|...........|..............|.......>  positions
//!                               floor      an open        durable
//!                         (oldest open     snapshot      (new snapshots)
//!                           snapshot)
//!  a record:        [ content at floor ][ effects after it, in order   ]
//! ```
//!
//! A record keeps its content as of the floor and the effects after it; a reader gets the content with the
//! effects up to its snapshot. When the floor advances, effects are folded into the content, each once. So a
//! write never copies a value, a reader never stops a writer, and old versions are dropped with the oldest
//! open snapshot.
//!
//! | file | job |
//! |---|---|
//! | `content.rs` | a key's value and its tombstones: the effect of a change on both |
//! | `tombstones.rs` | tombstones of ended keys, and lifetimes |
//! | `expiring.rs` | expiring keys |
//! | `record.rs` | the content at the floor and the effects after it |
//! | `store.rs` | all keys: apply, read, list, check, fold, compact |
//! | `snapshots.rs` | the open snapshots, and the floor |
//! | `digest.rs` | sums over the state that readers see, by bucket, to compare replicas |
//! | `check.rs` | the invariants |
//!
//! # Decisions
//!
//! - **A snapshot is a position of the journal here, not a vector.** A record keeps content at one place
//!   and effects after it, so a write copies nothing and a lookup compares numbers. A copy for a read or a
//!   check shares all unchanged data (`crdt/value/chunks.rs`).
//! - **A removal wins over concurrent updates, an expiry only over those of its lifetime**
//!   (`docs/algorithm/log.md#32-ends-of-keys`). A tombstone is kept until it is stable.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(missing_docs)]

mod check;
mod content;
mod digest;
mod expiring;
mod record;
mod snapshots;
mod store;
#[cfg(test)]
mod tests;
mod tombstones;

pub use content::Content;
pub use digest::{Bucket, BucketDigest, Digest};
pub(crate) use expiring::Touched;
pub use store::ChangeError;
pub(crate) use store::{Listing, Store};
pub(crate) use tombstones::Lifetime;
