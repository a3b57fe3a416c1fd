//! The words between the machine and its driver.

use std::time::Duration;

use super::record::{Content, Record, RunState};

/// An outcome of something that the machine waits for.
#[derive(Debug)]
pub(crate) enum Event {
    /// The answer to [`Effect::AskNeeded`].
    Needed(bool),
    /// The record, by a read or a watch.
    News(Content),
    /// The lock is held; `token` is the number of a run that begins now.
    Granted {
        token: u64,
    },
    NotAcquired {
        after: Duration,
    },
    /// The answer to [`Effect::Read`].
    Read(Content),
    NotRead,
    /// The answer to [`Effect::Write`], except of a renewal.
    Written,
    NotWritten(NotWritten),
    /// The lock is lost.
    Lost,
    /// The section has ended.
    Ended(Result<(), String>),
    /// The server refuses for good.
    Refused(String),
    /// [`Machine::deadline`](super::machine::Machine::deadline) has come.
    Time,
}

/// Why a write was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotWritten {
    /// The lock is lost, and nothing was written; or it is not known if it was.
    Lost,
    /// Nothing was written for a reason that may pass.
    ForNow,
}

/// Something for the driver to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    AskNeeded,
    Acquire,
    Leave,
    /// Read the record under the lock.
    Read,
    /// Commit under the lock.
    Write(Write),
    /// Run the section.
    Start {
        token: u64,
    },
    /// Drop the section.
    Stop,
    Tell(Told),
    Finish(Verdict),
}

/// A commit under the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    Started(Record),
    /// Prolongs the key that [`Write::Started`] wrote.
    Renew,
    Done(Record),
    /// `pause`: how long the back-off lasts.
    Failed {
        record: Record,
        pause: Duration,
    },
}

/// Something for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Failed { error: String, pause: Duration },
    Paused { pause: Duration },
}

/// The end of the loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// `done`: the latest run of another instance that has done it since the loop began.
    NotNeeded {
        done: Option<Record>,
    },
    Ran {
        run: u64,
    },
    GaveUp {
        attempts: u32,
        last: LastSeen,
    },
    Refused(String),
}

/// The last thing that an instance saw of a critical section when it gave up.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LastSeen {
    /// No run.
    Nothing,
    /// A run, in this state.
    Run(Record),
    /// Its own run ended, or was cancelled, when its lock was lost. The job may run again: fence it.
    LostWhileRunning {
        /// The number of the run.
        run: u64,
    },
}

impl std::fmt::Display for LastSeen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LastSeen::Nothing => f.write_str("no run was seen"),
            LastSeen::LostWhileRunning { run } => write!(f, "run {run} lost its lock while it ran here"),
            LastSeen::Run(Record { run, state, who, attempts, .. }) => match state {
                RunState::Started => write!(f, "run {run} of {who} has started"),
                RunState::Done => write!(f, "run {run} of {who} is done, and it is still needed"),
                RunState::Failed { error } => {
                    write!(f, "run {run} of {who} failed ({attempts} failures in a row): {error}")
                }
            },
        }
    }
}

/// A deliberate mistake, in tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A granted lock is a claim.
    Undecided,
    /// An instance that takes a run over trusts an answer of `needed` from before the end of that run.
    Unconfirmed,
    /// The section goes on when the lock is lost.
    LossIgnored,
    /// Another instance's `Done` is believed.
    DoneBelieved,
    /// The back-off after a failure of another instance is not awaited.
    PauseIgnored,
}
