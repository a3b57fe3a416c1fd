//! Who holds locks in this datacenter, told to who follows them: as well as it goes.
//!
//! A client may leave so much unread. What comes then is lost to it, and once it has read it begins anew: all who hold
//! the locks at that time, a bit with every step, and news meanwhile. So nobody waits for a client, and what waits for it
//! is bounded, whatever happens to the locks.
//!
//! ```text
//!  Behind --(client has read)--> Anew --> [ all holders, news ] --> Current --> news
//!     ^                                          |                               |
//!     '---------------- too much unread ---------'-------------------------------'
//! ```
//!
//! A grant is told when its client may be told, a release when it happens. Going through the holders while they come and
//! go misses none: new ones are news, and those of a lock are gone through from the last one down, because the last one
//! takes the place of one that leaves.

use std::collections::VecDeque;

use super::super::Replica;
use super::super::call::{CallId, Reply};
use super::super::effect::Effect;
use super::super::watch_call::{Holding, LockEvent, Pattern, Subject};
use super::{Watches, tell_lock};
use crate::lock_state::{HolderCursor, RequestIndex, Walk};
use crate::names::{LockName, Mode};

/// Most bytes that a client may leave unread before news get lost to it.
const MAX_UNREAD: usize = 256 << 10;
/// Going through holders pauses when so much is unread, so that there is room for news.
const PAUSE_AT: usize = MAX_UNREAD / 2;
/// A client to which something got lost has to have read all but that before it is told anew.
const ANEW_AT: usize = MAX_UNREAD / 4;
/// Whoever reads for a client says so when it has read that much, or more. What stays below is never waited for.
pub(crate) const SAY_TAKEN_AT: usize = MAX_UNREAD / 8;
/// Locks and holders that one step looks at for watches, at most.
const PER_STEP: usize = 512;

/// What a watch is told of holders.
#[derive(Default)]
pub(super) struct Holders {
    unread: usize,
    state: State,
    /// It stands in [`Watches::scans`].
    is_queued: bool,
}

#[derive(Default)]
enum State {
    /// Something got lost, or nothing was told yet.
    #[default]
    Behind,
    /// It is told who holds what: patterns from `pattern` on, at `cursor` of that one.
    Scanning {
        pattern: usize,
        cursor: HolderCursor,
    },
    Current,
}

impl Watches {
    /// Whether anybody wants to know who holds what.
    pub fn follow_holders(&self) -> bool {
        !self.followers.locks.is_empty()
    }

    /// Whether somebody is to be told more of who holds what.
    pub fn are_scanning(&self) -> bool {
        !self.scans.is_empty()
    }

    /// Begins to tell a watch of locks who holds them.
    pub(super) fn begin_holders(&mut self, call: CallId, effects: &mut VecDeque<Effect>) {
        let Some(row) = self.rows.get_mut(&call) else { return };
        row.holders.state = State::Scanning { pattern: 0, cursor: HolderCursor::default() };
        row.holders.unread += LockEvent::Anew.weight();
        tell_lock(call, LockEvent::Anew, effects);
        self.queue_scan(call);
    }

    fn queue_scan(&mut self, call: CallId) {
        let Some(row) = self.rows.get_mut(&call) else { return };
        if !std::mem::replace(&mut row.holders.is_queued, true) {
            self.scans.push_back(call);
        }
    }

    /// Tells a watch, unless it has something lost already or loses this. Answers whether it was told.
    fn tell_holder(&mut self, call: CallId, event: LockEvent, effects: &mut VecDeque<Effect>) -> bool {
        let Some(row) = self.rows.get_mut(&call) else { return false };
        if matches!(row.holders.state, State::Behind) {
            return false;
        }
        if row.holders.unread >= MAX_UNREAD {
            row.holders.state = State::Behind;
            return false;
        }
        row.holders.unread += event.weight();
        tell_lock(call, event, effects);
        true
    }
}

impl Replica {
    /// A grant may be told.
    pub(in crate::replica) fn tell_granted(&mut self, request: RequestIndex) {
        self.tickets.get_mut(request).is_told = true;
        if self.watches.follow_holders() {
            self.tell_holding(request, LockEvent::Granted);
        }
    }

    /// A held request ends.
    pub(in crate::replica) fn tell_released(&mut self, request: RequestIndex) {
        // Whose grant was never told was never there.
        if self.watches.follow_holders() && self.is_told(request) {
            self.tell_holding(request, LockEvent::Released);
        }
    }

    /// The world may know of a held request. By the journal alone that is not known: a grant may be told later the more
    /// others have ended since, and one that was told stays told.
    fn is_told(&self, request: RequestIndex) -> bool {
        self.tickets.get(request).is_told
    }

    fn tell_holding(&mut self, request: RequestIndex, event: fn(Holding) -> LockEvent) {
        let names = self.locks.wants(request).map(|(name, _)| name.as_bytes());
        let matches = self.watches.followers.locks.matches(names);
        if matches.is_empty() {
            return;
        }
        let all: Vec<_> = self.locks.wants(request).map(|(name, mode)| (name.clone(), mode)).collect();
        for (call, places) in matches {
            let locks = places.into_iter().map(|place| all[place].clone()).collect();
            let Some(holding) = self.holding(request, locks) else { return };
            let told = self.watches.tell_holder(call, event(holding), &mut self.effects);
            self.counts.watch_news_lost += u64::from(!told);
        }
    }

    fn holding(&self, request: RequestIndex, locks: Vec<(LockName, Mode)>) -> Option<Holding> {
        let (row, token) = (self.locks.get(request), self.locks.token(request)?);
        Some(Holding { request: row.id, token, label: row.local()?.label.clone(), locks })
    }

    /// The client of a watch has read so much of what it was told of holders.
    pub(in crate::replica) fn on_watch_taken(&mut self, call: CallId, watch: u64, weight: usize) {
        self.reply(call, Reply::WatchTaken);
        let watch = CallId { session: call.session, tag: watch };
        let Some(row) = self.watches.rows.get_mut(&watch) else { return };
        let holders = &mut row.holders;
        holders.unread = holders.unread.saturating_sub(weight);
        match holders.state {
            State::Behind if row.subject == Subject::Locks && holders.unread <= ANEW_AT => {
                self.watches.begin_holders(watch, &mut self.effects);
            }
            State::Scanning { .. } if holders.unread < PAUSE_AT => self.watches.queue_scan(watch),
            _ => {}
        }
    }

    /// Goes on telling watches who holds what.
    pub(in crate::replica) fn scan_some(&mut self) {
        let mut budget = PER_STEP;
        while budget > 0
            && let Some(call) = self.watches.scans.pop_front()
        {
            let Some(row) = self.watches.rows.get_mut(&call) else { continue };
            row.holders.is_queued = false;
            self.scan(call, &mut budget);
        }
    }

    /// Tells one watch of some more holders, until it is through, or has enough unread, or the budget is used up.
    fn scan(&mut self, call: CallId, budget: &mut usize) {
        while let Some(row) = self.watches.rows.get_mut(&call)
            && let State::Scanning { pattern, cursor } = &mut row.holders.state
        {
            if row.holders.unread >= PAUSE_AT {
                return;
            }
            if *budget == 0 {
                return self.watches.queue_scan(call);
            }
            let Some(of) = row.patterns.get(*pattern) else {
                self.watches.tell_holder(call, LockEvent::Current, &mut self.effects);
                if let Some(row) = self.watches.rows.get_mut(&call) {
                    row.holders.state = State::Current;
                }
                return;
            };
            let step = match of {
                Pattern::Exactly(name) => {
                    *budget -= 1;
                    self.locks.next_holder_of(name, cursor)
                }
                Pattern::BeginsWith(prefix) => self.locks.next_holder(prefix, cursor, budget),
            };
            match step {
                Walk::Holder { request, lock, mode } => {
                    if self.is_told(request)
                        && let Some(holding) = self.holding(request, vec![(lock, mode)])
                    {
                        self.watches.tell_holder(call, LockEvent::Granted(holding), &mut self.effects);
                    }
                }
                Walk::Paused => {}
                Walk::Through => (*pattern, *cursor) = (*pattern + 1, HolderCursor::default()),
            }
        }
    }
}
