//! Faults on purpose: a server that was built with the feature `faults` dies at a named step, sees its disk fail, and has
//! a clock and a network as bad as a script says. Without the feature there is no script, and every call here is nothing.
//!
//! | file | job |
//! |---|---|
//! | `mod.rs` | the steps, and what the code that takes them says |
//! | `script.rs` | the file that says what shall happen |
//! | `armed.rs` | what is to happen in this process |

#[cfg(feature = "faults")]
mod armed;
#[cfg(feature = "faults")]
mod script;

use std::io;

#[cfg(feature = "faults")]
pub use armed::arm;
#[cfg(feature = "faults")]
pub use script::{Clock, Kill, Nth, Path, Script, ScriptError, When};

/// A step that a server may die before or after.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "faults", derive(serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum Step {
    /// A record is handed to the journal.
    Append,
    /// The journal makes records durable.
    Sync,
    /// A message to another datacenter is handed to its link.
    Send,
    /// An entry of another datacenter is applied: its record is handed to the journal.
    Apply,
    /// Parts of locks leave: the entry is handed to the journal.
    Transfer,
    /// A transaction commits: the entry is handed to the journal.
    Commit,
    /// A lease begins: its record is handed to the journal.
    Lease,
    /// A client is told that it has its locks.
    Grant,
    /// A client is told that its locks are released.
    Release,
    /// A client is told that its transaction is committed.
    Committed,
    /// A checkpoint is written.
    Checkpoint,
    /// What a checkpoint covers is deleted from the log.
    Truncate,
}

/// The code is about to take this step.
#[inline]
pub(crate) fn before(step: Step) {
    #[cfg(feature = "faults")]
    armed::reach(When::Before, step);
    #[cfg(not(feature = "faults"))]
    let _ = step;
}

/// The code has taken this step.
#[inline]
pub(crate) fn after(step: Step) {
    #[cfg(feature = "faults")]
    armed::reach(When::After, step);
    #[cfg(not(feature = "faults"))]
    let _ = step;
}

/// An error if the script wants this step to fail now.
#[inline]
pub(crate) fn attempt(step: Step) -> io::Result<()> {
    #[cfg(feature = "faults")]
    return armed::attempt(step);
    #[cfg(not(feature = "faults"))]
    {
        let _ = step;
        Ok(())
    }
}

/// What the monotonic clock shows, in nanoseconds, when it is really `nanos`. Never less than before.
#[inline]
pub(crate) fn mono(nanos: u64) -> u64 {
    #[cfg(feature = "faults")]
    return armed::mono(nanos);
    #[cfg(not(feature = "faults"))]
    nanos
}

/// What the wall clock shows, in milliseconds, when it is really `millis`.
#[inline]
pub(crate) fn wall(millis: u64) -> u64 {
    #[cfg(feature = "faults")]
    return armed::wall(millis);
    #[cfg(not(feature = "faults"))]
    millis
}
