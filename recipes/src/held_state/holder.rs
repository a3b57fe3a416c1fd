//! The holder of a lock, which writes its value: `now` and an event in, effects out.
//!
//! `now` is the time since the grant. The driver performs the effects in order, and reports the outcome of
//! each [`Effect::Write`] and [`Effect::Clear`] before it passes on anything but a loss.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

/// Pause after something that is likely to pass: a server that drains, a disk that is full.
const RETRY: Duration = Duration::from_secs(1);

/// An outcome of something that the holder waits for, or a wish of the caller.
#[derive(Debug)]
pub(crate) enum Event {
    /// The caller sets the value, and waits for the answer.
    Set(Bytes),
    /// The caller gives up the lock.
    Leave,
    Written,
    /// Not written, or that is not known: the next attempt tells.
    NotWritten,
    /// Not written, for a reason that does not pass.
    Refused,
    /// The lock is lost.
    Lost,
    /// It is the time of [`Holder::deadline`].
    Time,
}

/// Something for the driver to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Write(Bytes),
    /// Remove the record.
    Clear,
    /// Answer all callers that wait for their value to be written. The first one waits since the grant.
    Answer(Result<(), Denied>),
    /// Release the lock. The last effect.
    Release,
    /// The lock is lost. The last effect.
    End,
}

/// The reason why a value was not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    Lost,
    Left,
    Refused,
}

#[derive(Debug)]
enum State {
    /// The store has the value. It is written again at that time.
    Resting(Option<Duration>),
    Writing,
    Pausing(Duration),
    Clearing,
    Over,
}

/// A deliberate mistake, in tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// The value is not written again before it expires.
    Unrenewed,
    /// The value that is written again is the first one.
    OldValueRenewed,
    /// A loss is ignored.
    LossIgnored,
}

/// The holder of a lock, from the grant on.
#[derive(Debug)]
pub(crate) struct Holder {
    /// The value that the store has, or shall have.
    value: Bytes,
    /// The value before it, until a waiting caller has the answer.
    before: Option<Bytes>,
    /// The first value was written.
    is_in: bool,
    /// The value is written again after this time, and removed at the end.
    renew: Option<Duration>,
    state: State,
    effects: VecDeque<Effect>,
    bug: Option<Bug>,
}

impl Holder {
    /// Begins at the grant, time 0, with a value to write.
    pub fn new(value: Bytes, renew: Option<Duration>) -> Holder {
        let effects = VecDeque::from([Effect::Write(value.clone())]);
        let before = Some(value.clone());
        Holder { value, before, is_in: false, renew, state: State::Writing, effects, bug: None }
    }

    #[cfg(test)]
    pub fn with_bug(mut self, bug: Option<Bug>) -> Holder {
        self.bug = bug;
        self
    }

    fn has(&self, bug: Bug) -> bool {
        cfg!(test) && self.bug == Some(bug)
    }

    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Returns the time at which it wants [`Event::Time`].
    pub fn deadline(&self) -> Option<Duration> {
        match self.state {
            State::Resting(renew_at) => renew_at,
            State::Pausing(until) => Some(until),
            State::Writing | State::Clearing | State::Over => None,
        }
    }

    pub fn handle(&mut self, now: Duration, event: Event) {
        match (&self.state, event) {
            (State::Over, _) => {}
            (_, Event::Lost) => self.on_lost(),
            (_, Event::Set(value)) => {
                let before = std::mem::replace(&mut self.value, value);
                // Of several waiting callers, the value of the last one counts, and the value before the
                // first one.
                self.before.get_or_insert(before);
                self.write();
            }
            (State::Clearing, Event::Written | Event::NotWritten | Event::Refused) => {
                self.end(Effect::Release);
            }
            (_, Event::Leave) => self.on_leave(),
            (State::Writing, Event::Written) => {
                self.is_in = true;
                self.answer(Ok(()));
                self.rest(now);
            }
            (State::Writing, Event::NotWritten) => self.state = State::Pausing(now + RETRY),
            (State::Writing, Event::Refused) if !self.is_in => {
                self.answer(Err(Denied::Refused));
                self.end(Effect::Release);
            }
            (State::Writing, Event::Refused) => {
                if let Some(before) = self.before.clone() {
                    self.value = before;
                    self.answer(Err(Denied::Refused));
                }
                self.rest(now);
            }
            (State::Resting(_) | State::Pausing(_), Event::Time) => self.on_time(now),
            _ => {}
        }
    }

    fn on_lost(&mut self) {
        if self.has(Bug::LossIgnored) {
            return;
        }
        // Effects that were not performed are pointless now.
        self.effects.clear();
        self.answer(Err(Denied::Lost));
        self.end(Effect::End);
    }

    fn on_leave(&mut self) {
        self.answer(Err(Denied::Left));
        match self.renew {
            Some(_) => {
                self.state = State::Clearing;
                self.effects.push_back(Effect::Clear);
            }
            None => self.end(Effect::Release),
        }
    }

    fn on_time(&mut self, now: Duration) {
        if self.deadline().is_some_and(|at| at <= now) {
            self.write();
        }
    }

    fn write(&mut self) {
        self.state = State::Writing;
        self.effects.push_back(Effect::Write(self.value.clone()));
    }

    fn rest(&mut self, now: Duration) {
        let renew = self.renew.filter(|_| !self.has(Bug::Unrenewed));
        self.state = State::Resting(renew.map(|after| now + after));
    }

    /// Answers the callers that wait, if some do.
    fn answer(&mut self, answer: Result<(), Denied>) {
        if let Some(before) = self.before.take() {
            self.effects.push_back(Effect::Answer(answer));
            if self.has(Bug::OldValueRenewed) {
                self.value = before;
            }
        }
    }

    fn end(&mut self, effect: Effect) {
        self.state = State::Over;
        self.effects.push_back(effect);
    }
}
