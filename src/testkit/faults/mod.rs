//! Fault injection. A server built with the feature `faults` dies at a named step, sees its disk fail, and
//! has a clock and a network as bad as a script says. Without the feature there is no script, and every
//! function here does nothing.
//!
//! | file | job |
//! |---|---|
//! | `mod.rs` | the steps, and the calls in the code that takes them |
//! | `script.rs` | the script file |
//! | `armed.rs` | the armed faults of this process |

#[cfg(feature = "faults")]
mod armed;
#[cfg(feature = "faults")]
mod script;

use std::io;

#[cfg(feature = "faults")]
pub use armed::arm;
#[cfg(feature = "faults")]
pub use script::{Clock, Kill, Nth, Path, Script, ScriptError, When};

/// A step before or after which a server may die.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "faults", derive(serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum Step {
    /// A record is passed to the journal.
    Append,
    /// The journal makes records durable.
    Sync,
    /// A message to another datacenter is passed to its link.
    Send,
    /// An entry of another datacenter is applied: its record is passed to the journal.
    Apply,
    /// Parts of locks leave: the entry is passed to the journal.
    Transfer,
    /// A transaction commits: the entry is passed to the journal.
    Commit,
    /// A lease begins: its record is passed to the journal.
    Lease,
    /// A client gets the answer to a grant.
    Grant,
    /// A client gets the answer to a release.
    Release,
    /// A client gets the answer to a commit.
    Committed,
    /// A checkpoint is written.
    Checkpoint,
    /// Log files that a checkpoint covers are deleted.
    Truncate,
    /// The decision that admits a server is passed to the journal.
    Admit,
    /// A new epoch is entered: the entry is passed to the journal.
    Enter,
    /// A piece of the state is sent.
    Give,
    /// A piece of a state is passed to the journal.
    Take,
    /// A state is installed: the record that says so is passed to the journal.
    Install,
    /// The part of a joining member is split off: the entry is passed to the journal.
    Split,
    /// A member names no further locks for a joining one: the entry is passed to the journal.
    Done,
    /// The decision that a joining member is settled is passed to the journal.
    Settle,
}

/// Called when the code is about to take this step.
#[inline]
pub(crate) fn before(step: Step) {
    #[cfg(feature = "faults")]
    armed::reach(When::Before, step);
    #[cfg(not(feature = "faults"))]
    let _ = step;
}

/// Called when the code has taken this step.
#[inline]
pub(crate) fn after(step: Step) {
    #[cfg(feature = "faults")]
    armed::reach(When::After, step);
    #[cfg(not(feature = "faults"))]
    let _ = step;
}

/// Returns an error if the script wants this step to fail now.
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

/// Returns the reading of the monotonic clock, in nanoseconds, when the true reading is `nanos`. Never
/// decreases.
#[inline]
pub(crate) fn mono(nanos: u64) -> u64 {
    #[cfg(feature = "faults")]
    return armed::mono(nanos);
    #[cfg(not(feature = "faults"))]
    nanos
}

/// Returns the reading of the wall clock, in milliseconds, when the true reading is `millis`.
#[inline]
pub(crate) fn wall(millis: u64) -> u64 {
    #[cfg(feature = "faults")]
    return armed::wall(millis);
    #[cfg(not(feature = "faults"))]
    millis
}
