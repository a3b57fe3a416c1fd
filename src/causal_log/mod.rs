//! Pure. The causally ordered log: entries, their delivery, what each peer still lacks, what can be forgotten.

mod entry;
mod violation;

pub use entry::{Entry, LockParts, MAX_LOCKS_PER_REQUEST, MAX_NAME_BYTES_PER_REQUEST, Op, Wants, WantsError};
pub use violation::{EntryFault, Violation};
