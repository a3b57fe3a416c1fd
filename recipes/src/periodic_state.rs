//! Pure. A job that runs at most once in a period: the decisions of one attempt.
//!
//! ```text
//!  look --marked--> skipped
//!    | not
//!  acquire --held--> skipped
//!    |     '--out of reach--> look again --marked--> skipped
//!    |                                 '--not--> unknown
//!  read under the lock --marked--> skipped
//!    | not
//!  write the mark under the lock --> run --Err, and it is to run again--> remove the mark
//!                                     '--> ran, failed
//! ```
//!
//! The mark is a key that expires after the period less the slack, counted by the datacenters. It is read
//! and written under the lock, by transactions that commit only while it is held, so of two attempts that
//! both saw no mark the second one sees that of the first.
//!
//! A mark is written some time after its attempt began, and expires somewhat late. Without slack, the attempt
//! one period after that one would find it, and a timer with the period of the job would run it every second
//! time.

use std::collections::VecDeque;
use std::time::Duration;

use geolock_client::DcId;

/// The greatest slack that is not asked for.
const MAX_SLACK: Duration = Duration::from_secs(60);

/// Returns the time by which a run may begin before the period since the last one is over, unless another one
/// is asked for.
pub(crate) fn usual_slack(every: Duration) -> Duration {
    (every / 10).min(MAX_SLACK)
}

/// The latest run, as its mark says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub run: u64,
    pub who: String,
}

/// An outcome of something that the machine waits for.
#[derive(Debug)]
pub(crate) enum Event {
    /// The answer to [`Effect::Look`] and to [`Effect::Read`].
    Marked(Option<Mark>),
    Granted {
        token: u64,
    },
    /// The lock was not granted in time.
    Busy(Away),
    /// The answer to [`Effect::Write`] and to [`Effect::Remove`].
    Written(bool),
    Ended(Result<(), String>),
    Lost,
}

/// The place of a lock that was not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Away {
    /// Somebody holds it.
    Held,
    /// Nobody is known to hold it: these datacenters own parts of it, and are out of reach.
    OutOfReach(Vec<DcId>),
}

/// Something for the driver to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Read the mark without the lock.
    Look,
    Acquire,
    /// Read the mark under the lock.
    Read,
    Write {
        token: u64,
    },
    Remove,
    Start {
        token: u64,
    },
    /// Drop the job.
    Stop,
    Leave,
    Finish(PeriodicOutcome),
}

/// The outcome of an attempt to run a periodic job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeriodicOutcome {
    /// It ran here, to its end.
    Ran {
        /// The number of the run: its fencing token.
        run: u64,
    },
    /// It ran here, and ended with an error or a panic.
    Failed {
        /// The number of the run.
        run: u64,
        /// The error.
        error: String,
    },
    /// It was stopped here when its lock was lost, or it lost the lock before it began.
    Lost {
        /// The number of the run.
        run: u64,
    },
    /// It ran in this period already, or runs.
    Skipped {
        /// The instance that ran it; `None` if it runs now: another instance holds the lock.
        by: Option<String>,
    },
    /// It did not run here, and this datacenter cannot know if it ran in this period: the lock could not be
    /// had, and nobody is known to hold it.
    Unknown {
        /// Datacenters that own parts of the lock and are out of reach. None: the lock, or its answer, was
        /// lost.
        unreachable: Vec<DcId>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Looking,
    Acquiring,
    /// The lock could not be had: whoever had it may have left its mark meanwhile.
    LookingAgain(Vec<DcId>),
    Reading(u64),
    Marking(u64),
    Running(u64),
    Over,
}

fn skipped(mark: Mark) -> PeriodicOutcome {
    PeriodicOutcome::Skipped { by: Some(mark.who) }
}

/// A deliberate mistake, in tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// The mark is not read under the lock.
    Unread,
    /// The job goes on when the lock is lost.
    LossIgnored,
}

/// One attempt.
#[derive(Debug)]
pub(crate) struct Attempt {
    state: State,
    again_after_failure: bool,
    /// The error of a job whose mark is being removed.
    error: String,
    effects: VecDeque<Effect>,
    bug: Option<Bug>,
}

impl Attempt {
    pub fn new(again_after_failure: bool) -> Attempt {
        let effects = VecDeque::from([Effect::Look]);
        Attempt { state: State::Looking, again_after_failure, error: String::new(), effects, bug: None }
    }

    #[cfg(test)]
    pub fn with_bug(mut self, bug: Option<Bug>) -> Attempt {
        self.bug = bug;
        self
    }

    fn has(&self, bug: Bug) -> bool {
        cfg!(test) && self.bug == Some(bug)
    }

    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    pub fn handle(&mut self, event: Event) {
        match (self.state.clone(), event) {
            (State::Looking, Event::Marked(None)) => self.enter(State::Acquiring, Effect::Acquire),
            (State::Looking, Event::Marked(Some(mark))) => self.finish(skipped(mark)),
            (State::Acquiring, Event::Granted { token }) if self.has(Bug::Unread) => {
                self.enter(State::Marking(token), Effect::Write { token });
            }
            (State::Acquiring, Event::Granted { token }) => self.enter(State::Reading(token), Effect::Read),
            (State::Acquiring, Event::Busy(Away::Held)) => self.finish(PeriodicOutcome::Skipped { by: None }),
            (State::Acquiring, Event::Busy(Away::OutOfReach(unreachable))) => {
                self.enter(State::LookingAgain(unreachable), Effect::Look);
            }
            (State::LookingAgain(_), Event::Marked(Some(mark))) => self.finish(skipped(mark)),
            (State::LookingAgain(unreachable), Event::Marked(None)) => {
                self.finish(PeriodicOutcome::Unknown { unreachable });
            }
            // The lock was lost, or the answer.
            (State::Reading(_), Event::Lost) => {
                self.leave(PeriodicOutcome::Unknown { unreachable: Vec::new() });
            }
            (State::Reading(_), Event::Marked(Some(mark))) => self.leave(skipped(mark)),
            (State::Reading(token), Event::Marked(None)) => {
                self.enter(State::Marking(token), Effect::Write { token });
            }
            (State::Marking(token), Event::Written(true)) if self.error.is_empty() => {
                self.enter(State::Running(token), Effect::Start { token });
            }
            (State::Marking(run), Event::Written(_)) => {
                let error = std::mem::take(&mut self.error);
                match error.is_empty() {
                    true => self.leave(PeriodicOutcome::Lost { run }),
                    false => self.leave(PeriodicOutcome::Failed { run, error }),
                }
            }
            (State::Running(run), Event::Ended(Ok(()))) => self.leave(PeriodicOutcome::Ran { run }),
            (State::Running(run), Event::Ended(Err(error))) if self.again_after_failure => {
                self.error = if error.is_empty() { "it failed".to_owned() } else { error };
                self.enter(State::Marking(run), Effect::Remove);
            }
            (State::Running(run), Event::Ended(Err(error))) => {
                self.leave(PeriodicOutcome::Failed { run, error })
            }
            (State::Running(run), Event::Lost) if !self.has(Bug::LossIgnored) => {
                self.effects.push_back(Effect::Stop);
                self.leave(PeriodicOutcome::Lost { run });
            }
            _ => {}
        }
    }

    fn enter(&mut self, state: State, effect: Effect) {
        self.state = state;
        self.effects.push_back(effect);
    }

    fn leave(&mut self, outcome: PeriodicOutcome) {
        self.effects.push_back(Effect::Leave);
        self.finish(outcome);
    }

    fn finish(&mut self, outcome: PeriodicOutcome) {
        self.enter(State::Over, Effect::Finish(outcome));
    }
}

#[cfg(test)]
mod tests;
