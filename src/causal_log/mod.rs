//! Pure. The causally ordered log: entries, their delivery, the entries that each peer lacks, truncation.
//!
//! # Decisions
//!
//! - **The log is kept in the order of application, with the index of the next entry for each peer**
//!   (`docs/algorithm/log.md#12-causal-delivery`). That order is causal: any piece of it can be applied on
//!   arrival, and a walk forward sends everything that an own entry depends on before it.
//! - **The token of a commit is an operation beside it** (`Op::Under`). Rejected: a field of the commit,
//!   which would change older entries and their hashes. Only `geolock journal orphans` reads it.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(missing_docs)]

mod commit;
mod entry;
mod inbox;
mod log;
pub mod v1;
mod violation;

pub use commit::{Action, Change, Commit, CommitFault, MAX_CHANGES, MAX_COMMIT_BYTES};
pub use entry::{Entry, LockParts, MAX_LOCKS_PER_REQUEST, MAX_NAME_BYTES_PER_REQUEST, Op, Wants, WantsError};
pub(crate) use inbox::{Inbox, Overflow};
pub(crate) use log::{Log, Majority};
pub use violation::{EntryFault, Violation};
