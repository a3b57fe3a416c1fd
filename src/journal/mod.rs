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
