//! Edge. Durable records: group commit, recovery, checkpoints, one owner per data directory.
//!
//! Knows bytes and positions, no locks, and decides nothing. A position is a plain `u64` here, not the core's
//! newtype: the module then imports only ground files, and the one conversion is in the actor.
//!
//! ```text
//!  actor --append--> queue --batch--> writer thread: one write, one fdatasync --Durable--> sink
//!        --checkpoint--> queue -----> checkpoint thread: temp file, sync, rename, sync directory
//!                                         `--done--> writer thread: delete covered records --> sink
//! ```
//!
//! | file | job |
//! |---|---|
//! | `handle.rs` | [`Journal`]: the handle of the actor |
//! | `queue.rs` | state shared by the actor and the two threads |
//! | `threads.rs` | the two threads |
//! | `writer.rs` | segments: append, rotate, delete |
//! | `checkpoint.rs` | checkpoint files |
//! | `recovery.rs`, `scan.rs`, `records.rs` | from files to records; refusals |
//! | `contents.rs` | reads a directory that no server uses |
//! | `format.rs` | the bytes |
//! | `data_dir.rs` | lock file and identity |
//! | `members.rs` | the cluster of a directory |
//! | `disk.rs` | calls to the file system, behind a trait for the crash tests |
//!
//! # Decisions
//!
//! - **Batches are checked, not records** (`format.rs`), because a batch is what one write and one sync
//!   make durable.
//! - **A full disk is an outcome, a failed sync is an error** (`writer.rs`). After a failed sync the
//!   content of the disk is unknown. Free space is reported in advance (`base/capacity.rs`), and the core
//!   accepts less in two stages, so no queue grows while nothing can be written.
//! - **A checkpoint is one file** (written beside, synced, renamed). Rejected: a `redb` database, because
//!   there is one value, which is rewritten as a whole. A store of many gigabytes would change this
//!   decision, but it does not fit in memory anyway.

mod checkpoint;
mod contents;
mod data_dir;
mod disk;
mod error;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod handle;
mod members;
mod queue;
mod records;
mod recovery;
mod scan;
mod threads;
mod writer;

#[cfg(test)]
mod tests;

pub use contents::Contents;
pub use data_dir::{is_begun, is_restored_copy, own as lock_directory};
pub use error::{Identity, JournalError};
pub use handle::{Journal, JournalEvent, JournalOptions, MAX_SEGMENT_BYTES, MIN_SEGMENT_BYTES, Recovered};
pub(crate) use members::keep_members;
pub use members::{MemberNames, MembersError, check_members};
pub use queue::{Figures, LastCheckpoint};
pub use records::Records;
pub use writer::LogSize;
