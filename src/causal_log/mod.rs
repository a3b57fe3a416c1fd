//! Pure. The causally ordered log: entries, their delivery, the entries that each peer lacks, truncation.
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
