//! The life of a selection that was made, until its locks are free for others.
//!
//! ```text
//!   Picked --reserve--> Reserved --spent--> Spent --linger--> over
//!     |                    |  '-- handle dropped: until `reserve_for` is over --> over
//!     '--- dropped, release --> over
//! ```
//!
//! Every write commits only while the locks are held. Without them, after a loss or a crash, or at another
//! replica, the locks are taken again first, and the marks that the grant's snapshot has decide.

use std::collections::VecDeque;
use std::time::Duration;

use super::bugs::Bug;
use super::options::SelectorOptions;
use super::record::{MarkState, Record};
use super::select::{MarkRead, Wait};
use crate::selector_state::token::Token;

/// Pause after a write or a lock that failed for a reason that passes.
const AGAIN: Duration = Duration::from_secs(1);
/// A reservation is written again so many times while it lasts.
const RENEWALS: u32 = 3;

/// A call of the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Reserve,
    /// With the new tokens of the pool.
    Spent(Vec<Token>),
    Release,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// Marks and the record, for `reserve_for`.
    Reserved,
    /// Marks, the record and the new tokens.
    Spent(Vec<Token>),
    /// Marks and the record are removed.
    Removed,
}

/// An action for the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Take the locks of all tokens again, and read their marks under them.
    Lock(Wait),
    /// Write under the locks.
    Write(Write),
    LetGo,
    /// To the caller of [`Event::Call`].
    Answer(Answer),
    /// Nothing is left to do.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    /// The tokens are not this transaction's any more.
    Fenced,
    /// The transaction has spent its tokens.
    AlreadySpent,
    /// Others hold the locks.
    Taken,
    /// The driver knows the error.
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Call(Call),
    /// The marks are in the order of the tokens.
    Locked {
        fence: u64,
        marks: Vec<MarkRead>,
    },
    /// Others hold the locks. `is_own`: all marks are this transaction's, as far as is known here.
    NotLocked {
        is_own: bool,
    },
    /// The locks could not be asked for.
    LockFailed,
    Written,
    /// The locks are lost.
    NotWritten,
    /// For a reason that passes, or one that does not.
    WriteFailed {
        passes: bool,
    },
    Lost,
    /// Nobody has a handle of the selection.
    Dropped,
    /// Somebody has one again.
    Attached,
    /// The source says that the tokens are spent.
    Denied,
    Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Picked,
    Reserved { until: Duration },
    Spent { since: Duration },
    Over,
}

#[derive(Clone, Debug)]
struct Doing {
    call: Call,
    /// Somebody waits for the answer. Otherwise it prolongs, or keeps house.
    is_asked: bool,
    began: Duration,
    /// The write to make again, and when.
    again: Option<(Duration, Write)>,
}

/// A selection that was made.
#[derive(Debug)]
pub(crate) struct Open {
    options: SelectorOptions,
    stage: Stage,
    fence: u64,
    is_held: bool,
    has_handle: bool,
    doing: Option<Doing>,
    prolong_at: Duration,
    effects: VecDeque<Effect>,
    bug: Option<Bug>,
}

impl Open {
    /// A selection that holds its locks.
    pub fn picked(options: &SelectorOptions, fence: u64) -> Open {
        Open::new(options, Stage::Picked, fence, true)
    }

    /// A selection of another replica, or of an earlier run, that is known by its record.
    pub fn recovered(now: Duration, options: &SelectorOptions, record: &Record) -> Open {
        let stage = match record.state {
            // When it was written is not known.
            MarkState::Reserved => Stage::Reserved { until: now + options.reserve_for },
            MarkState::Spent => Stage::Spent { since: now },
        };
        let open = Open::new(options, stage, record.fence, false);
        Open { prolong_at: now + options.reserve_for / RENEWALS, ..open }
    }

    fn new(options: &SelectorOptions, stage: Stage, fence: u64, is_held: bool) -> Open {
        Open {
            options: options.clone(),
            stage,
            fence,
            is_held,
            has_handle: true,
            doing: None,
            prolong_at: Duration::ZERO,
            effects: VecDeque::new(),
            bug: None,
        }
    }

    #[cfg(test)]
    pub fn with_bug(mut self, bug: Option<Bug>) -> Open {
        self.bug = bug;
        self
    }

    fn has(&self, bug: Bug) -> bool {
        cfg!(test) && self.bug == Some(bug)
    }

    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    pub fn fence(&self) -> u64 {
        self.fence
    }

    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Returns true if a call is under way: the next one waits.
    pub fn is_busy(&self) -> bool {
        self.doing.is_some()
    }

    /// Returns when [`Event::Time`] is due.
    pub fn deadline(&self) -> Option<Duration> {
        if let Some(doing) = &self.doing {
            return doing.again.as_ref().map(|(at, _)| *at);
        }
        match self.stage {
            Stage::Picked | Stage::Over => None,
            Stage::Reserved { until } if !self.has_handle => Some(until),
            Stage::Reserved { .. } => Some(self.prolong_at),
            Stage::Spent { since } => Some(since + self.linger()),
        }
    }

    fn linger(&self) -> Duration {
        if self.has(Bug::SpentLetsGoAtOnce) { Duration::ZERO } else { self.options.linger }
    }

    pub fn handle(&mut self, now: Duration, event: Event) {
        match event {
            Event::Call(call) => self.on_call(now, call, true),
            Event::Locked { fence, marks } => self.on_locked(fence, &marks),
            Event::NotLocked { is_own } => self.on_not_locked(now, is_own),
            Event::LockFailed => self.on_failed(now),
            Event::Written => self.on_written(now),
            Event::NotWritten => self.on_not_written(now),
            Event::WriteFailed { passes } => self.on_write_failed(now, passes),
            Event::Lost => self.on_lost(now),
            Event::Dropped => self.has_handle = false,
            Event::Attached => self.has_handle = true,
            Event::Denied if !self.is_busy() => match self.stage {
                Stage::Picked => self.end(),
                Stage::Reserved { .. } => self.on_call(now, Call::Spent(Vec::new()), false),
                Stage::Spent { .. } | Stage::Over => {}
            },
            Event::Denied | Event::Time => {}
        }
        self.on_time(now);
    }

    fn answer(&mut self, answer: Answer) {
        if self.doing.take().is_some_and(|doing| doing.is_asked) {
            self.effects.push_back(Effect::Answer(answer));
        }
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.is_held) {
            self.effects.push_back(Effect::LetGo);
        }
        self.stage = Stage::Over;
        self.effects.push_back(Effect::End);
    }

    fn on_call(&mut self, now: Duration, call: Call, is_asked: bool) {
        self.doing = Some(Doing { call: call.clone(), is_asked, began: now, again: None });
        match (call, self.stage) {
            (_, Stage::Over) => self.answer(Answer::Fenced),
            (Call::Reserve | Call::Spent(_), Stage::Spent { .. }) => self.answer(Answer::Done),
            (Call::Release, Stage::Spent { .. }) => self.answer(Answer::AlreadySpent),
            (Call::Reserve, Stage::Picked) if !self.is_held => {
                self.answer(Answer::Fenced);
                self.end();
            }
            (Call::Release, Stage::Picked) => {
                self.end();
                self.answer(Answer::Done);
            }
            _ if self.is_held => self.write(),
            _ => self.lock(),
        }
    }

    fn write(&mut self) {
        let Some(doing) = &self.doing else { return };
        let write = match &doing.call {
            Call::Reserve => Write::Reserved,
            Call::Spent(change) => Write::Spent(change.clone()),
            Call::Release => Write::Removed,
        };
        self.effects.push_back(Effect::Write(write));
    }

    fn lock(&mut self) {
        let Some(doing) = &self.doing else { return };
        let wait = match doing.call {
            // Somebody may hold them who goes on with the same reservation.
            Call::Reserve => Wait::AtMost(self.options.patience),
            Call::Spent(_) | Call::Release => Wait::AtMost(self.options.wait),
        };
        self.effects.push_back(Effect::Lock(wait));
    }

    fn on_locked(&mut self, fence: u64, marks: &[MarkRead]) {
        (self.is_held, self.fence) = (true, self.fence.max(fence));
        let Some(doing) = &self.doing else { return };
        let is_others = marks.iter().any(|mark| matches!(mark, MarkRead::Other(_)));
        let is_over = marks.contains(&MarkRead::None);
        // A reservation that has ended may have been somebody else's meanwhile.
        if is_others || (is_over && doing.call == Call::Reserve) {
            self.answer(Answer::Fenced);
            return self.end();
        }
        self.write();
    }

    fn on_not_locked(&mut self, now: Duration, is_own: bool) {
        match self.doing.as_ref().map(|doing| &doing.call) {
            // The replica that selected them holds them, and prolongs.
            Some(Call::Reserve) if is_own => {
                self.prolong_at = now + self.options.reserve_for / RENEWALS;
                self.answer(Answer::Done);
            }
            Some(Call::Reserve) => {
                self.answer(Answer::Fenced);
                self.end();
            }
            _ => self.answer(Answer::Taken),
        }
    }

    fn on_failed(&mut self, now: Duration) {
        self.prolong_at = now + AGAIN;
        self.answer(Answer::Failed);
    }

    fn on_written(&mut self, now: Duration) {
        let Some(doing) = &self.doing else { return };
        match doing.call {
            Call::Reserve => {
                // The expiry counts from a moment after this one.
                self.stage = Stage::Reserved { until: doing.began + self.options.reserve_for };
                self.prolong_at = doing.began + self.options.reserve_for / RENEWALS;
            }
            Call::Spent(_) => self.stage = Stage::Spent { since: now },
            Call::Release => self.end(),
        }
        self.answer(Answer::Done);
    }

    fn on_not_written(&mut self, now: Duration) {
        if std::mem::take(&mut self.is_held) {
            self.effects.push_back(Effect::LetGo);
        }
        match self.doing.as_ref().map(|doing| &doing.call) {
            Some(Call::Reserve) if self.has(Bug::ReservedWithoutGuard) => self.on_written(now),
            Some(Call::Reserve) if self.stage == Stage::Picked => {
                self.answer(Answer::Fenced);
                self.end();
            }
            Some(_) => self.lock(),
            None => {}
        }
    }

    fn on_write_failed(&mut self, now: Duration, passes: bool) {
        let Some(doing) = &mut self.doing else { return };
        if passes && now < doing.began + self.options.wait {
            let write = match &doing.call {
                Call::Reserve => Write::Reserved,
                Call::Spent(change) => Write::Spent(change.clone()),
                Call::Release => Write::Removed,
            };
            doing.again = Some((now + AGAIN, write));
        } else {
            self.on_failed(now);
        }
    }

    fn on_lost(&mut self, now: Duration) {
        // A write that is under way fails and says so.
        if self.is_busy() || !self.is_held {
            return;
        }
        self.is_held = false;
        self.effects.push_back(Effect::LetGo);
        match self.stage {
            Stage::Picked | Stage::Over => {}
            Stage::Reserved { .. } => self.prolong_at = now,
            Stage::Spent { .. } => self.end(),
        }
    }

    fn on_time(&mut self, now: Duration) {
        if let Some(doing) = &mut self.doing {
            if let Some((_, write)) = doing.again.take_if(|(at, _)| *at <= now) {
                self.effects.push_back(Effect::Write(write));
            }
            return;
        }
        match self.stage {
            Stage::Picked if !self.has_handle => self.end(),
            Stage::Reserved { until } if !self.has_handle && until <= now => self.end(),
            Stage::Reserved { .. } if self.has_handle && self.prolong_at <= now => {
                self.prolong_at = now + self.options.reserve_for / RENEWALS;
                self.on_call(now, Call::Reserve, false);
            }
            Stage::Spent { since } if since + self.linger() <= now => self.end(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn all(open: &mut Open) -> Vec<Effect> {
        std::iter::from_fn(|| open.poll_effect()).collect()
    }

    fn after(open: &mut Open, at: u32, event: Event) -> Vec<Effect> {
        open.handle(SECOND * at, event);
        all(open)
    }

    fn reserved() -> Open {
        let mut open = Open::picked(&SelectorOptions::default(), 7);
        assert_eq!(after(&mut open, 0, Event::Call(Call::Reserve)), [Effect::Write(Write::Reserved)]);
        assert_eq!(after(&mut open, 1, Event::Written), [Effect::Answer(Answer::Done)]);
        open
    }

    #[test]
    fn spent_locks_linger() {
        let mut open = reserved();
        let spent = after(&mut open, 2, Event::Call(Call::Spent(Vec::new())));
        assert_eq!(spent, [Effect::Write(Write::Spent(Vec::new()))]);
        assert_eq!(after(&mut open, 3, Event::Written), [Effect::Answer(Answer::Done)]);
        assert_eq!(after(&mut open, 4, Event::Dropped), []);
        assert_eq!(after(&mut open, 7, Event::Call(Call::Release)), [Effect::Answer(Answer::AlreadySpent)]);
        assert_eq!(open.deadline(), Some(SECOND * 8));
        assert_eq!(after(&mut open, 8, Event::Time), [Effect::LetGo, Effect::End]);
    }

    #[test]
    fn what_is_dropped_before_it_is_reserved_is_released_and_later_its_time_is_kept() {
        let mut open = Open::picked(&SelectorOptions::default(), 7);
        assert_eq!(after(&mut open, 0, Event::Dropped), [Effect::LetGo, Effect::End]);
        let mut open = reserved();
        assert_eq!(after(&mut open, 2, Event::Dropped), []);
        assert_eq!(open.deadline(), Some(SECOND * 180));
        assert_eq!(after(&mut open, 180, Event::Time), [Effect::LetGo, Effect::End]);
    }

    #[test]
    fn a_reservation_is_prolonged_while_somebody_has_it_open() {
        let mut open = reserved();
        assert_eq!(open.deadline(), Some(SECOND * 60));
        assert_eq!(after(&mut open, 60, Event::Time), [Effect::Write(Write::Reserved)]);
        assert_eq!(after(&mut open, 61, Event::Written), []);
        assert_eq!(open.deadline(), Some(SECOND * 120));
    }

    #[test]
    fn who_has_lost_the_locks_does_not_reserve() {
        let mut open = Open::picked(&SelectorOptions::default(), 7);
        assert_eq!(after(&mut open, 0, Event::Call(Call::Reserve)), [Effect::Write(Write::Reserved)]);
        let fenced = [Effect::LetGo, Effect::Answer(Answer::Fenced), Effect::End];
        assert_eq!(after(&mut open, 1, Event::NotWritten), fenced);
        let mut open = Open::picked(&SelectorOptions::default(), 7);
        assert_eq!(after(&mut open, 0, Event::Lost), [Effect::LetGo]);
        let fenced = [Effect::Answer(Answer::Fenced), Effect::End];
        assert_eq!(after(&mut open, 1, Event::Call(Call::Reserve)), fenced);
    }

    #[test]
    fn without_the_locks_they_are_taken_again_and_the_marks_decide() {
        let lock = Effect::Lock(Wait::AtMost(SECOND * 30));
        let locked = |mark| Event::Locked { fence: 9, marks: vec![MarkRead::Own, mark] };
        let spent = || {
            let mut open = reserved();
            let write = Effect::Write(Write::Spent(Vec::new()));
            assert_eq!(after(&mut open, 2, Event::Call(Call::Spent(Vec::new()))), [write]);
            assert_eq!(after(&mut open, 3, Event::NotWritten), [Effect::LetGo, lock.clone()]);
            open
        };
        for mark in [MarkRead::Own, MarkRead::None] {
            let mut open = spent();
            assert_eq!(after(&mut open, 4, locked(mark)), [Effect::Write(Write::Spent(Vec::new()))]);
            assert_eq!(open.fence(), 9);
        }
        let id = crate::selector_state::token::TokenId::new(&b"a"[..]).expect("it is an id");
        let other = MarkRead::Other(super::super::space::Change::Unreadable(id));
        let fenced = [Effect::Answer(Answer::Fenced), Effect::LetGo, Effect::End];
        assert_eq!(after(&mut spent(), 4, locked(other)), fenced);
        assert_eq!(
            after(&mut spent(), 4, Event::NotLocked { is_own: true }),
            [Effect::Answer(Answer::Taken)]
        );
        // A reservation of which a mark is gone is not made again.
        let mut open = reserved();
        assert_eq!(after(&mut open, 2, Event::Lost), [Effect::LetGo, Effect::Lock(Wait::AtMost(SECOND * 2))]);
        assert_eq!(after(&mut open, 3, locked(MarkRead::None)), [Effect::LetGo, Effect::End]);
    }

    #[test]
    fn what_the_source_denies_is_given_back() {
        let mut open = Open::picked(&SelectorOptions::default(), 7);
        assert_eq!(after(&mut open, 0, Event::Denied), [Effect::LetGo, Effect::End]);
        let mut open = reserved();
        assert_eq!(after(&mut open, 2, Event::Denied), [Effect::Write(Write::Spent(Vec::new()))]);
        assert_eq!(after(&mut open, 3, Event::Written), []);
        assert_eq!(after(&mut open, 8, Event::Time), [Effect::LetGo, Effect::End]);
    }
}
