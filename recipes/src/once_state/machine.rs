//! The loop of one instance: `now` and an event in, effects out.
//!
//! `now` is the time since the loop began. The driver performs the effects in order, and reports the outcome
//! of each. [`Effect::Leave`] gives up a place in the queue, or releases the lock. News of the record may
//! come at any time.

use std::collections::VecDeque;
use std::time::Duration;

use super::decide::{Decision, decide};
use super::events::{Bug, Effect, Event, LastSeen, NotWritten, Told, Verdict, Write};
use super::options::OnceOptions;
use super::record::{Content, Record, RunState};

/// Pause after something that is likely to pass: a server that drains, a disk that is full.
const RETRY: Duration = Duration::from_secs(1);
/// The back-off after the first failure; it doubles with each further one.
const BACK_OFF: Duration = Duration::from_secs(1);
const MAX_BACK_OFF: Duration = Duration::from_secs(60);
/// The record is renewed this many times in a watermark.
const RENEWALS: u32 = 3;

#[derive(Debug)]
enum State {
    Asking,
    Queued,
    /// The lock is held, and the record is being read.
    Deciding {
        token: u64,
    },
    /// The lock is held, and `needed` is asked again: its last answer may be older than the end of the run
    /// that is taken over.
    Confirming(Record),
    /// `Started` is being written.
    Claiming(Record),
    Running {
        started: Record,
        renew_at: Duration,
        ends_by: Option<Duration>,
    },
    /// The end of the run is being written, again when `again_at` has come.
    Marking {
        write: Write,
        again_at: Option<Duration>,
    },
    Pausing {
        until: Duration,
        wakes: Wake,
    },
    Over,
}

/// The news that end a pause early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wake {
    Never,
    WithoutPause,
    WithoutLive,
}

/// The loop of one instance.
#[derive(Debug)]
pub(crate) struct Machine {
    options: OnceOptions,
    state: State,
    effects: VecDeque<Effect>,
    round: u32,
    give_up_at: Option<Duration>,
    /// The latest content that is known here.
    content: Content,
    /// The latest record that was ever seen.
    seen: Option<Record>,
    /// The latest run of another instance that was done when `needed` was last asked.
    asked_after: u64,
    /// The latest run that was known to be over then.
    over_before: u64,
    /// The latest run of another instance that was seen done since the loop began.
    done: Option<Record>,
    /// The own latest run.
    mine: Option<u64>,
    seed: u64,
    bug: Option<Bug>,
}

impl Machine {
    /// Begins the loop at time 0. `seed`: for the jitter of back-offs. `mine`: the latest run that this
    /// instance has done in an earlier loop.
    pub fn new(options: OnceOptions, seed: u64, mine: Option<u64>) -> Machine {
        let give_up_at = options.give_up_after;
        let mut machine = Machine {
            options,
            state: State::Over,
            effects: VecDeque::new(),
            round: 0,
            give_up_at,
            content: Content::default(),
            seen: None,
            asked_after: 0,
            over_before: 0,
            done: None,
            mine,
            seed,
            bug: None,
        };
        machine.ask();
        machine
    }

    #[cfg(test)]
    pub fn with_bug(mut self, bug: Option<Bug>) -> Machine {
        self.bug = bug;
        self
    }

    fn has(&self, bug: Bug) -> bool {
        cfg!(test) && self.bug == Some(bug)
    }

    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    pub fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }

    /// Returns when [`Event::Time`] is due.
    pub fn deadline(&self) -> Option<Duration> {
        let own = match &self.state {
            State::Running { renew_at, ends_by, .. } => {
                Some(ends_by.map_or(*renew_at, |by| by.min(*renew_at)))
            }
            State::Marking { again_at, .. } => *again_at,
            State::Pausing { until, .. } => Some(*until),
            State::Asking
            | State::Queued
            | State::Deciding { .. }
            | State::Confirming(_)
            | State::Claiming(_)
            | State::Over => None,
        };
        let give_up = self.give_up_at.filter(|_| self.may_give_up());
        own.into_iter().chain(give_up).min()
    }

    fn may_give_up(&self) -> bool {
        matches!(self.state, State::Asking | State::Queued | State::Pausing { .. })
    }

    pub fn handle(&mut self, now: Duration, event: Event) {
        match event {
            Event::Needed(needed) => self.on_needed(needed),
            Event::News(content) => self.on_news(content),
            Event::Granted { token } => {
                if matches!(self.state, State::Queued) {
                    self.state = State::Deciding { token };
                    self.effects.push_back(Effect::Read);
                }
            }
            Event::NotAcquired { after } => {
                if matches!(self.state, State::Queued) {
                    self.pause(now, after.max(RETRY), Wake::Never);
                }
            }
            Event::Read(content) => self.on_read(now, content),
            Event::NotRead => self.leave_for_now(now),
            Event::Written => self.on_written(now),
            Event::NotWritten(why) => self.on_not_written(now, why),
            Event::Lost => self.on_lost(),
            Event::Ended(outcome) => self.on_ended(outcome),
            Event::Refused(why) => self.finish(Verdict::Refused(why)),
            Event::Time => {}
        }
        self.on_time(now);
    }

    /// Begins a round.
    fn ask(&mut self) {
        self.round += 1;
        if self.round > self.options.max_retries {
            self.round -= 1;
            return self.give_up();
        }
        self.asked_after = self.done.as_ref().map_or(0, |done| done.run);
        self.over_before = match &self.seen {
            Some(Record { run, state: RunState::Done | RunState::Failed { .. }, .. }) => *run,
            _ => 0,
        };
        self.state = State::Asking;
        self.effects.push_back(Effect::AskNeeded);
    }

    fn finish(&mut self, verdict: Verdict) {
        self.state = State::Over;
        self.effects.push_back(Effect::Finish(verdict));
    }

    fn give_up(&mut self) {
        let last = self.seen.clone().map_or(LastSeen::Nothing, LastSeen::Run);
        self.finish(Verdict::GaveUp { attempts: self.round, last });
    }

    fn pause(&mut self, now: Duration, pause: Duration, wakes: Wake) {
        self.effects.push_back(Effect::Tell(Told::Paused { pause }));
        self.state = State::Pausing { until: now + pause, wakes };
    }

    fn leave_for_now(&mut self, now: Duration) {
        if matches!(self.state, State::Deciding { .. } | State::Claiming(_)) {
            self.effects.push_back(Effect::Leave);
            self.pause(now, RETRY, Wake::Never);
        }
    }

    fn on_needed(&mut self, needed: bool) {
        match &self.state {
            State::Confirming(_) if !needed => {
                self.effects.push_back(Effect::Leave);
                self.finish(Verdict::NotNeeded { done: self.done.clone() });
            }
            State::Confirming(started) => {
                let started = started.clone();
                self.claim(started);
            }
            State::Asking if !needed => self.finish(Verdict::NotNeeded { done: self.done.clone() }),
            // Another instance has done it while `needed` was asked: the answer may be older than that.
            State::Asking if self.has_unasked_done() => self.ask(),
            State::Asking => {
                self.state = State::Queued;
                self.effects.push_back(Effect::Acquire);
            }
            _ => {}
        }
    }

    /// Returns true if another instance has done it, and `needed` was not asked since.
    fn has_unasked_done(&self) -> bool {
        self.done.as_ref().is_some_and(|done| done.run > self.asked_after)
    }

    fn note(&mut self, content: Content) {
        if let Some(record) = &content.record {
            if self.seen.as_ref().is_none_or(|seen| record.is_later_than(seen)) {
                self.seen = Some(record.clone());
            }
            let is_later = self.done.as_ref().is_none_or(|done| record.run > done.run);
            if record.state == RunState::Done && self.mine != Some(record.run) && is_later {
                self.done = Some(record.clone());
            }
        }
        self.content = content;
    }

    fn on_news(&mut self, content: Content) {
        self.note(content);
        let is_new = self.has_unasked_done();
        match &self.state {
            State::Queued if is_new => {
                self.effects.push_back(Effect::Leave);
                self.after_done();
            }
            State::Pausing { .. } if is_new => self.after_done(),
            State::Pausing { wakes: Wake::WithoutPause, .. } if !self.content.pause => self.ask(),
            State::Pausing { wakes: Wake::WithoutLive, .. } if !self.content.live => self.ask(),
            _ => {}
        }
    }

    /// Another instance has done it: is it still needed?
    fn after_done(&mut self) {
        match self.has(Bug::DoneBelieved) {
            true => self.finish(Verdict::NotNeeded { done: self.done.clone() }),
            false => self.ask(),
        }
    }

    fn on_read(&mut self, now: Duration, content: Content) {
        let State::Deciding { token } = self.state else { return };
        self.note(content);
        let decision = match decide(&self.content, self.mine, self.options.takeover) {
            _ if self.has(Bug::Undecided) => Decision::Claim { failures: 0 },
            Decision::Paused if self.has(Bug::PauseIgnored) => Decision::Claim { failures: 0 },
            decision => decision,
        };
        let (wait, wakes) = match decision {
            Decision::Claim { failures } => {
                let started = self.record(token, RunState::Started, failures);
                let before = self.content.record.as_ref().map_or(0, |record| record.run);
                let is_own = self.mine.is_some_and(|mine| mine >= before);
                let is_trusted = is_own || self.has(Bug::Unconfirmed) || self.has(Bug::Undecided);
                if before > self.over_before && !is_trusted {
                    self.effects.push_back(Effect::AskNeeded);
                    self.state = State::Confirming(started);
                } else {
                    self.claim(started);
                }
                return;
            }
            Decision::DoneByOther { run } if run > self.asked_after => {
                self.effects.push_back(Effect::Leave);
                return self.after_done();
            }
            // Not believed: it was asked about this very run.
            Decision::DoneByOther { .. } => (self.options.wait, Wake::Never),
            Decision::Paused => (self.options.wait, Wake::WithoutPause),
            Decision::MayStillRun => (self.options.wait, Wake::WithoutLive),
        };
        self.effects.push_back(Effect::Leave);
        self.pause(now, wait, wakes);
    }

    fn claim(&mut self, started: Record) {
        self.mine = Some(started.run);
        self.effects.push_back(Effect::Write(Write::Started(started.clone())));
        self.state = State::Claiming(started);
    }

    fn record(&self, run: u64, state: RunState, attempts: u32) -> Record {
        Record { run, state, who: self.options.who.clone(), attempts, at_ms: 0 }
    }

    fn on_written(&mut self, now: Duration) {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Claiming(started) => {
                self.effects.push_back(Effect::Start { token: started.run });
                let renew_at = now + self.options.watermark / RENEWALS;
                let ends_by = self.options.max_runtime.map(|time| now + time);
                self.state = State::Running { started, renew_at, ends_by };
            }
            State::Marking { write, .. } => {
                self.effects.push_back(Effect::Leave);
                self.after_mark(now, write);
            }
            state => self.state = state,
        }
    }

    /// The end of the own run is written, or cannot be.
    fn after_mark(&mut self, now: Duration, write: Write) {
        match write {
            Write::Done(Record { run, .. }) => self.finish(Verdict::Ran { run }),
            Write::Failed { record, pause } => {
                if let RunState::Failed { error } = &record.state {
                    self.effects.push_back(Effect::Tell(Told::Failed { error: error.clone(), pause }));
                }
                self.seen = Some(record);
                self.state = State::Pausing { until: now + pause, wakes: Wake::Never };
                if self.round >= self.options.max_retries {
                    self.give_up();
                }
            }
            Write::Started(_) | Write::Renew => {}
        }
    }

    fn on_not_written(&mut self, now: Duration, why: NotWritten) {
        match (std::mem::replace(&mut self.state, State::Over), why) {
            (state @ State::Claiming(_), _) => {
                self.state = state;
                self.leave_for_now(now);
            }
            (State::Marking { write, .. }, NotWritten::ForNow) => {
                self.state = State::Marking { write, again_at: Some(now + RETRY) };
            }
            (State::Marking { write: Write::Done(Record { run, .. }), .. }, NotWritten::Lost) => {
                self.lost_while_running(run);
            }
            (State::Marking { write, .. }, NotWritten::Lost) => {
                self.effects.push_back(Effect::Leave);
                self.after_mark(now, write);
            }
            (state, _) => self.state = state,
        }
    }

    fn lost_while_running(&mut self, run: u64) {
        self.effects.push_back(Effect::Leave);
        let last = LastSeen::LostWhileRunning { run };
        self.finish(Verdict::GaveUp { attempts: self.round, last });
    }

    /// In other states than this one, a read or a write is under way, and its answer says so.
    fn on_lost(&mut self) {
        if let State::Running { started, .. } = &self.state
            && !self.has(Bug::LossIgnored)
        {
            let run = started.run;
            self.effects.push_back(Effect::Stop);
            self.lost_while_running(run);
        }
    }

    fn on_ended(&mut self, outcome: Result<(), String>) {
        let State::Running { started, .. } = &self.state else { return };
        let (run, failures) = (started.run, started.attempts);
        let write = match outcome {
            Ok(()) => Write::Done(self.record(run, RunState::Done, 0)),
            Err(error) => {
                let attempts = failures.saturating_add(1);
                let pause = self.back_off(run, attempts);
                Write::Failed { record: self.record(run, RunState::Failed { error }, attempts), pause }
            }
        };
        self.effects.push_back(Effect::Write(write.clone()));
        self.state = State::Marking { write, again_at: None };
    }

    /// Returns 0.5 to 1 times the back-off after so many failures.
    fn back_off(&self, run: u64, attempts: u32) -> Duration {
        let full = BACK_OFF.saturating_mul(1 << attempts.saturating_sub(1).min(10)).min(MAX_BACK_OFF);
        // A multiplicative hash is random enough to spread instances out.
        let bits = (self.seed ^ run).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
        full / 2 + full / 2 * u32::try_from(bits).unwrap_or(0) / 256
    }

    fn on_time(&mut self, now: Duration) {
        if self.give_up_at.is_some_and(|at| at <= now) && self.may_give_up() {
            if matches!(self.state, State::Queued) {
                self.effects.push_back(Effect::Leave);
            }
            return self.give_up();
        }
        match &mut self.state {
            State::Running { ends_by: Some(by), .. } if *by <= now => {
                self.effects.push_back(Effect::Stop);
                let limit = self.options.max_runtime.unwrap_or_default();
                self.on_ended(Err(format!("it took longer than {limit:?}")));
            }
            State::Running { renew_at, .. } if *renew_at <= now => {
                *renew_at = now + self.options.watermark / RENEWALS;
                self.effects.push_back(Effect::Write(Write::Renew));
            }
            State::Marking { write, again_at } if again_at.is_some_and(|at| at <= now) => {
                *again_at = None;
                let write = write.clone();
                self.effects.push_back(Effect::Write(write));
            }
            State::Pausing { until, .. } if *until <= now => self.ask(),
            _ => {}
        }
    }
}
