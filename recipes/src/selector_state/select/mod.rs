//! The decisions of one selection.
//!
//! ```text
//!  --> listed? --no--> wait for the query          behind a need? --yes--> wait until it is gone
//!         | yes                                          |
//!         '----------------------------------------------'
//!         v
//!    best fit, free and here --> try --granted--> read marks --none--> Picked
//!         |    (twice)            | not free        | marked: give back, leave out
//!         v                       v                 '--> decide again
//!    read the record --> less listed than asked? --yes, read since--> Insufficient
//!         |    '--> Adopted                      '--no, read again
//!         v
//!    wait for enough of all candidates, amended with every change of the pool --granted--> read marks
//! ```

mod waiting;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::bugs::Bug;
use super::fit::{Rank, spares};
use super::options::{Backoff, SelectorOptions};
use super::record::{Record, TxId};
use super::space::{Change, NEED_LASTS, Space};
use super::verdict::{HeldBy, Limit, Verdict};
use crate::selector_state::token::{Pool, Token, TokenId};

/// Attempts without waiting, for what is here.
const TRIES: u32 = 2;
/// Spares of an attempt for each token of the choice.
const SPARES: usize = 4;
/// Pause after an attempt that failed for a reason that passes.
const AGAIN: Duration = Duration::from_secs(1);
/// The server tells the end of a wait; after this time longer it is taken to be silent.
const SILENT: Duration = Duration::from_secs(2);
/// Most bytes of all names of a request, and what the name of a lock has beside the id of its token.
const MAX_NAMES: usize = 1 << 20;
const AROUND_AN_ID: usize = 128;

/// The request for a selection.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub tx: TxId,
    pub pool: Pool,
    pub amount: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Try,
    AtMost(Duration),
}

/// An action for the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Request enough of these, at most so many. Places in the answer count these, then those of each
    /// [`Effect::Amend`].
    Request {
        tokens: Vec<Token>,
        most: usize,
        wait: Wait,
    },
    Amend {
        add: Vec<Token>,
        drop: Vec<Token>,
    },
    /// Give up the request that waits.
    Cancel,
    /// Read the marks of these under the locks, and the record of the transaction.
    ReadMarks(Vec<TokenId>),
    /// Read the record of the transaction.
    ReadRecord,
    GiveBack,
    /// Write the need, for [`NEED_LASTS`].
    Announce,
    Withdraw,
    Finish(Verdict),
}

/// A mark as it is under the locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MarkRead {
    None,
    Own,
    Other(Change),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The space has changed, or it is time.
    News,
    /// `chosen`: places in the request.
    Granted {
        chosen: Vec<usize>,
        fence: u64,
    },
    NotFree,
    /// `free`: the sum of what was free, as the server knows it.
    TimedOut {
        by: Vec<HeldBy>,
        free: Option<u64>,
    },
    /// The server says that the candidates do not reach the amount.
    NotEnough,
    /// For a reason that passes. Nothing is held.
    Failed,
    /// In the order of the tokens; `None`: it could not be read, and the locks may be lost.
    Marks(Option<(Vec<MarkRead>, Option<Record>)>),
    Record(Option<Record>),
}

#[derive(Debug)]
enum State {
    /// For a listing of that time or later.
    Listing {
        since: Duration,
    },
    Behind,
    Trying {
        asked: Vec<Token>,
    },
    Reading {
        chosen: Vec<Token>,
        fence: u64,
    },
    Record,
    Waiting(Waiting),
    Pausing {
        until: Duration,
    },
    /// Others have the tokens, and it pauses in place of a wait.
    BackingOff {
        until: Duration,
    },
    Over,
}

#[derive(Debug, Default)]
struct Waiting {
    /// A request waits. Otherwise the candidates do not reach the amount.
    is_asked: bool,
    /// It names no large token, because small ones serve.
    is_narrow: bool,
    /// All that the request ever named, in order.
    asked: Vec<Token>,
    /// Those that it names now.
    candidates: BTreeMap<TokenId, Token>,
    position: u64,
}

/// One selection.
#[derive(Debug)]
pub(crate) struct Select {
    ask: Ask,
    options: SelectorOptions,
    ttl: Duration,
    began: Duration,
    state: State,
    effects: VecDeque<Effect>,
    /// The tokens that it is about to have.
    claimed: Vec<TokenId>,
    tries: u32,
    pauses: u32,
    /// Since when less is listed than asked.
    short_since: Option<Duration>,
    has_read_record: bool,
    /// It has read the record because a token has a mark of its transaction.
    has_read_own: bool,
    /// It counts as a use of the cache.
    is_served: bool,
    /// It has asked before it knew of a need.
    is_in_front: bool,
    announced: Option<Duration>,
    seed: u64,
    bug: Option<Bug>,
}

impl Select {
    /// Begins a selection. `ttl`: that of a lease; `seed`: for pauses.
    pub fn new(now: Duration, ask: Ask, options: &SelectorOptions, ttl: Duration, seed: u64) -> Select {
        Select {
            ask,
            options: options.clone(),
            ttl,
            began: now,
            state: State::Pausing { until: now },
            effects: VecDeque::new(),
            claimed: Vec::new(),
            tries: 0,
            pauses: 0,
            short_since: Some(now),
            has_read_record: false,
            has_read_own: false,
            is_served: false,
            is_in_front: false,
            announced: None,
            seed,
            bug: None,
        }
    }

    #[cfg(test)]
    pub fn with_bug(mut self, bug: Option<Bug>) -> Select {
        self.bug = bug;
        self
    }

    fn has(&self, bug: Bug) -> bool {
        cfg!(test) && self.bug == Some(bug)
    }

    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn over_at(&self) -> Duration {
        self.began + self.options.wait
    }

    /// Returns when a selection that waits says again that it does.
    fn news_due(&self) -> Duration {
        match self.announced {
            Some(at) => at + NEED_LASTS / 3,
            None => self.began + self.options.patience,
        }
    }

    /// Returns when [`Event::News`] is due at the latest.
    pub fn deadline(&self, now: Duration, space: &Space) -> Option<Duration> {
        let over = self.over_at();
        Some(match &self.state {
            State::Over => return None,
            State::Pausing { until } | State::BackingOff { until } => (*until).min(over),
            State::Behind => space.need_ends(now, &self.ask.pool).map_or(over, |ends| ends.min(over)),
            State::Listing { .. } => over,
            State::Waiting(waiting) => {
                let news = self.news_due();
                let over = if waiting.is_asked { over + SILENT } else { over };
                if news < self.over_at() { news.min(over) } else { over }
            }
            State::Trying { .. } | State::Reading { .. } | State::Record => over + SILENT,
        })
    }

    /// The selection is given up: takes its claims back.
    pub fn give_up(&mut self, space: &mut Space) {
        self.unclaim(space);
        self.state = State::Over;
    }

    pub fn handle(&mut self, now: Duration, space: &mut Space, event: Event) {
        match event {
            Event::News => self.on_news(now, space),
            Event::Granted { chosen, fence } => self.on_granted(space, &chosen, fence),
            Event::NotFree => {
                self.unclaim(space);
                self.leave_asking();
                self.tries = TRIES;
                self.decide(now, space);
            }
            Event::TimedOut { by, free } => self.on_timed_out(now, space, by, free),
            Event::NotEnough => {
                self.unclaim(space);
                self.finish(
                    space,
                    Verdict::Limit { which: Limit::Examined, most: self.options.max_examined },
                );
            }
            Event::Failed => {
                self.unclaim(space);
                self.leave_asking();
                self.state = State::Pausing { until: now + AGAIN };
            }
            Event::Marks(read) => self.on_marks(now, space, read),
            Event::Record(Some(record)) => self.finish(space, Verdict::Adopted(record)),
            Event::Record(None) => {
                self.has_read_record = true;
                if matches!(self.state, State::Record) {
                    self.decide(now, space);
                }
            }
        }
    }

    fn finish(&mut self, space: &mut Space, verdict: Verdict) {
        self.leave_asking();
        if !matches!(verdict, Verdict::Picked { .. }) {
            self.unclaim(space);
        }
        if self.announced.take().is_some() {
            self.effects.push_back(Effect::Withdraw);
        }
        self.state = State::Over;
        self.effects.push_back(Effect::Finish(verdict));
    }

    /// Before another state: nothing waits for a request any more.
    fn leave_asking(&mut self) {
        if let State::Waiting(Waiting { is_asked, .. }) = &mut self.state
            && std::mem::take(is_asked)
        {
            self.effects.push_back(Effect::Cancel);
        }
    }

    /// Keeps other selections of this replica from these, and no longer from those before.
    fn claim(&mut self, space: &mut Space, ids: Vec<TokenId>) {
        self.unclaim(space);
        space.claim(&self.ask.tx, ids.iter().cloned());
        self.claimed = ids;
    }

    fn unclaim(&mut self, space: &mut Space) {
        space.unclaim(&self.ask.tx, std::mem::take(&mut self.claimed));
    }

    pub(super) fn on_time(&mut self, now: Duration, space: &mut Space) {
        let over = self.over_at();
        match &self.state {
            State::Over => {}
            State::Listing { .. } | State::Pausing { .. } if over <= now => {
                self.finish(space, Verdict::Timeout)
            }
            State::Behind | State::BackingOff { .. } if over <= now => {
                self.finish_locked(now, space, Vec::new(), None);
            }
            State::Waiting(Waiting { is_asked: false, .. }) if over <= now => {
                self.finish_locked(now, space, Vec::new(), None);
            }
            _ if over + SILENT <= now => {
                if matches!(self.state, State::Trying { .. }) {
                    self.effects.push_back(Effect::Cancel);
                } else if matches!(self.state, State::Reading { .. }) {
                    self.effects.push_back(Effect::GiveBack);
                }
                self.unclaim(space);
                self.finish(space, Verdict::Timeout);
            }
            State::Waiting(_) if self.news_due() <= now && now < over => {
                self.announced = Some(now);
                self.effects.push_back(Effect::Announce);
            }
            _ => {}
        }
    }

    /// Looks at the pool, and decides how to go on.
    fn decide(&mut self, now: Duration, space: &mut Space) {
        let since = match self.state {
            State::Listing { since } => since,
            _ => self.began,
        };
        let cache = space.pool(&self.ask.pool);
        if !std::mem::replace(&mut self.is_served, true) {
            cache.serve(now);
        }
        if !cache.is_usable(now) {
            if matches!(self.state, State::Listing { .. }) && cache.has_failed_since(since) {
                return self.finish(space, Verdict::SourceUnavailable);
            }
            // One query serves all that wait for it.
            let since = match self.state {
                State::Listing { .. } => since,
                _ => cache.under_way().unwrap_or(now),
            };
            return self.list(space, since);
        }
        if !self.is_in_front && space.has_need(now, &self.ask.pool, &self.ask.tx) {
            self.state = State::Behind;
            return;
        }
        if matches!(self.state, State::Behind) {
            // A listing of before is too old to say that there is too little.
            self.short_since = Some(now);
        }
        let room = self.options.max_locked.saturating_sub(space.locked(&self.ask.pool));
        let most = self.options.max_inputs.min(room);
        let free = space.pool(&self.ask.pool).free();
        let choice = free.fit(self.ask.amount, most);
        if choice.is_none() && free.fit(self.ask.amount, self.options.max_inputs).is_some() || most == 0 {
            let most = self.options.max_locked;
            return self.finish(space, Verdict::Limit { which: Limit::Locked, most });
        }
        match choice {
            Some(choice) if self.tries < TRIES && self.are_here(space, &choice) => {
                self.attempt(space, &choice, most);
            }
            choice => self.queue(now, space, choice.unwrap_or_default(), most),
        }
    }

    fn list(&mut self, space: &mut Space, since: Duration) {
        space.pool(&self.ask.pool).demand(since);
        self.state = State::Listing { since };
    }

    fn are_here(&self, space: &mut Space, choice: &[Rank]) -> bool {
        let cache = space.pool(&self.ask.pool);
        choice.iter().all(|rank| cache.is_here(&rank.id))
    }

    /// Asks for the choice, with spares, if they are free at this moment.
    fn attempt(&mut self, space: &mut Space, choice: &[Rank], most: usize) {
        self.tries += 1;
        let cache = space.pool(&self.ask.pool);
        let chosen: BTreeSet<&TokenId> = choice.iter().map(|rank| &rank.id).collect();
        let spare = spares(cache.here(), self.ask.amount);
        let spare = spare.filter(|rank| !chosen.contains(&rank.id));
        let all = choice.iter().chain(spare.take(SPARES * choice.len()));
        let asked = bounded(all.filter_map(|rank| cache.token(&rank.id).cloned()));
        let claimed: Vec<TokenId> = choice.iter().map(|rank| rank.id.clone()).collect();
        self.claim(space, claimed);
        self.effects.push_back(Effect::Request { tokens: asked.clone(), most, wait: Wait::Try });
        self.state = State::Trying { asked };
    }

    fn on_granted(&mut self, space: &mut Space, chosen: &[usize], fence: u64) {
        let asked = match &mut self.state {
            State::Trying { asked, .. } => std::mem::take(asked),
            State::Waiting(waiting) => {
                waiting.is_asked = false;
                std::mem::take(&mut waiting.asked)
            }
            // It comes too late.
            _ => return self.effects.push_back(Effect::GiveBack),
        };
        let chosen: Vec<Token> = chosen.iter().filter_map(|place| asked.get(*place).cloned()).collect();
        let ids: Vec<TokenId> = chosen.iter().map(|token| token.id.clone()).collect();
        self.claim(space, ids.clone());
        self.state = State::Reading { chosen, fence };
        self.effects.push_back(Effect::ReadMarks(ids));
    }

    fn on_timed_out(&mut self, now: Duration, space: &mut Space, by: Vec<HeldBy>, free: Option<u64>) {
        let State::Waiting(waiting) = &mut self.state else { return };
        waiting.is_asked = false;
        match self.options.backoff {
            Backoff::Random { .. } if now < self.over_at() => self.pause_or_end(now, space),
            _ => self.finish_locked(now, space, by, free),
        }
    }

    fn on_marks(&mut self, now: Duration, space: &mut Space, read: Option<(Vec<MarkRead>, Option<Record>)>) {
        let State::Reading { chosen, fence } = &self.state else { return };
        let (chosen, fence) = (chosen.clone(), *fence);
        let Some((marks, record)) = read else {
            self.unclaim(space);
            self.effects.push_back(Effect::GiveBack);
            self.state = State::Pausing { until: now + AGAIN };
            return;
        };
        self.has_read_record = true;
        if let Some(record) = record {
            self.unclaim(space);
            self.effects.push_back(Effect::GiveBack);
            return self.finish(space, Verdict::Adopted(record));
        }
        let mut is_marked = false;
        for mark in marks {
            if let MarkRead::Other(change) = mark {
                is_marked = true;
                // Nobody takes the mark away before the locks are given back.
                space.on_change(now, change);
            }
        }
        if is_marked && !self.has(Bug::MarksIgnored) {
            self.unclaim(space);
            self.effects.push_back(Effect::GiveBack);
            self.state = State::Pausing { until: now };
            return self.decide(now, space);
        }
        self.finish(space, Verdict::Picked { tokens: chosen, fence });
    }
}

/// Returns the largest sum of so many of these tokens.
fn reach<'a>(tokens: impl IntoIterator<Item = &'a Token>, most: usize) -> u128 {
    let mut amounts: Vec<u64> = tokens.into_iter().map(|token| token.amount).collect();
    amounts.sort_unstable_by(|a, b| b.cmp(a));
    amounts.iter().take(most).map(|amount| u128::from(*amount)).sum()
}

/// Returns as many of these as a request can name.
fn bounded(tokens: impl Iterator<Item = Token>) -> Vec<Token> {
    let mut bytes = 0;
    let mut fits = |token: &Token| {
        bytes += token.id.as_bytes().len() + AROUND_AN_ID;
        bytes <= MAX_NAMES
    };
    tokens.take_while(|token| fits(token)).collect()
}
