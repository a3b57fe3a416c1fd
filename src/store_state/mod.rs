//! Pure. Keys and values of one datacenter: what every snapshot that is still open shows of them.
//!
//! Commits come in the order in which this datacenter applies entries, and every snapshot is a prefix of that order:
//! the journal's durable position at the moment the transaction began. So versions need no vectors: a snapshot is one
//! [`Position`](crate::names::Position).
//!
//! ```text
//!  commits applied here:   .......|...........|..............|.......>  positions
//!                               floor      an open        durable
//!                         (oldest open     snapshot      (new snapshots)
//!                           snapshot)
//!  a record:        [ content at floor ][ effects after it, in order   ]
//! ```
//!
//! A record keeps its content as of the floor and the effects after it; a reader gets the content with the effects up to
//! its snapshot. When the floor moves on, effects are folded in, each once. So a write never copies a value, a reader
//! never stops a writer, and memory for old versions ends with the oldest open snapshot.
//!
//! | file | job |
//! |---|---|
//! | `content.rs` | a key's value with the marks beside it: what a change does to them |
//! | `marks.rs` | ends that late changes may be concurrent with; how long a key lives on |
//! | `mortal.rs` | keys that do not live for ever |
//! | `record.rs` | the content at the floor and the effects after it |
//! | `store.rs` | all keys: apply, read, check, fold, settle |
//! | `snapshots.rs` | which snapshots are open, and the floor |
//! | `digest.rs` | what buckets show, to compare replicas by |
//! | `check.rs` | the invariants |
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod check;
mod content;
mod digest;
mod marks;
mod mortal;
mod record;
mod snapshots;
mod store;
#[cfg(test)]
mod tests;

pub use content::Content;
pub use digest::{Bucket, BucketDigest, Digest};
pub(crate) use marks::Lifetime;
pub(crate) use mortal::Touched;
pub use store::ChangeError;
pub(crate) use store::Store;
