//! Holders of locks in this datacenter, sent to the watches of these locks as best effort.
//!
//! The bytes that a client may leave unread are bounded. Events beyond that bound are dropped; once the
//! client has read, its watch begins anew with all present holders, some per step, and new events in between.
//! So nobody waits for a client, and the memory for a client is bounded, however busy the locks are.
//!
//! ```text
//!  Behind --(client has read)--> Anew --> [ all holders, events ] --> Current --> events
//!     ^                                          |                                  |
//!     '---------------- too much unread ---------'----------------------------------'
//! ```
//!
//! A grant is sent when its reply may be sent, a release when it happens. The scan of the holders misses none
//! although holders change meanwhile: new ones are events, and the holders of a lock are scanned from the
//! last one down, because the last one moves to the place of one that is removed.

use std::collections::VecDeque;

use super::super::call::{CallId, Reply};
use super::super::effect::Effect;
use super::{Row, Watches, tell_lock};
use crate::lock_state::{HolderCursor, Locks, RequestIndex, Walk};
use crate::replica::call::watch::{Holding, LockEvent, Pattern, Subject};
use crate::replica::clients::grants::Requests;
use crate::replica::watches::WatchCalls;
use geolock_api::names::{LockName, Mode};

/// Most unread bytes of a client; further events are dropped.
const MAX_UNREAD: usize = 256 << 10;
/// Unread bytes at which a scan pauses, to leave room for events.
const PAUSE_AT: usize = MAX_UNREAD / 2;
/// After a drop the scan begins anew when no more than this is unread.
const ANEW_AT: usize = MAX_UNREAD / 4;
/// The reader acknowledges at least every so many bytes. Nothing waits for an acknowledgement of less.
pub(crate) const SAY_TAKEN_AT: usize = MAX_UNREAD / 8;
/// Most locks and holders that one step examines for watches.
const PER_STEP: usize = 512;

const _: () = assert!(ANEW_AT < PAUSE_AT && PAUSE_AT < MAX_UNREAD, "a scan leaves room for events");
const _: () = assert!(SAY_TAKEN_AT <= ANEW_AT, "nothing waits for an acknowledgement that does not come");

/// The state of the holder events of one watch.
#[derive(Default)]
pub(super) struct Holders {
    unread: usize,
    state: State,
    /// It is in [`Watches::scans`].
    is_queued: bool,
}

#[derive(Default)]
enum State {
    /// Events were dropped, or none was sent yet.
    #[default]
    Behind,
    /// The present holders are being sent: patterns from `pattern` on, that one from `cursor` on.
    Scanning {
        pattern: usize,
        cursor: HolderCursor,
    },
    Current,
}

impl Watches {
    /// Returns true if a watch follows locks.
    pub fn follow_holders(&self) -> bool {
        !self.followers.locks.is_empty()
    }

    /// Asserts that each scan goes on, or waits until its client has read.
    pub(super) fn check_scans(&self) {
        let queued = self.rows.values().filter(|row| row.holders.is_queued).count();
        assert!(queued <= self.scans.len(), "{queued} scans go on, {} are queued", self.scans.len());
        for (call, Row { holders, subject, .. }) in &self.rows {
            let is_scanning = matches!(holders.state, State::Scanning { .. });
            let goes_on = holders.is_queued || holders.unread >= PAUSE_AT;
            assert!(!is_scanning || goes_on, "the scan of {call:?} goes on");
            assert!(!is_scanning || *subject == Subject::Locks, "only watches of locks scan, not {call:?}");
        }
    }

    /// Returns true if a scan has more to do.
    #[inline]
    pub fn are_scanning(&self) -> bool {
        !self.scans.is_empty()
    }

    /// Begins to send a watch of locks the present holders.
    pub(super) fn begin_holders(&mut self, call: CallId, effects: &mut VecDeque<Effect>) {
        let Some(row) = self.rows.get_mut(&call) else { return };
        row.holders.state = State::Scanning { pattern: 0, cursor: HolderCursor::default() };
        row.holders.unread += LockEvent::HoldersReset.weight();
        tell_lock(call, LockEvent::HoldersReset, effects);
        self.queue_scan(call);
    }

    fn queue_scan(&mut self, call: CallId) {
        let Some(row) = self.rows.get_mut(&call) else { return };
        if !std::mem::replace(&mut row.holders.is_queued, true) {
            self.scans.push_back(call);
        }
    }

    /// Sends an event to a watch, unless events of it have been dropped or this one must be. Returns true if
    /// it was sent.
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

impl Requests<'_> {
    /// The reply to a grant may be sent: sends the grant to watches, too.
    pub(in crate::replica) fn tell_granted(&mut self, request: RequestIndex) {
        self.clients.client_requests.get_mut(request).is_told = true;
        if self.watches.follow_holders() {
            self.tell_holding(request, LockEvent::Granted);
        }
    }

    /// A held request ends.
    pub(in crate::replica) fn tell_released(&mut self, request: RequestIndex) {
        // If the grant was never sent, its release is not sent either.
        if self.watches.follow_holders() && self.clients.client_requests.get(request).is_told {
            self.tell_holding(request, LockEvent::Released);
        }
    }

    /// A lock of a held request was downgraded: sends the hold to watches once more, as it is now.
    pub(in crate::replica) fn tell_downgraded(&mut self, request: RequestIndex) {
        if self.watches.follow_holders() && self.clients.client_requests.get(request).is_told {
            self.tell_holding(request, LockEvent::Granted);
        }
    }

    fn tell_holding(&mut self, request: RequestIndex, event: fn(Holding) -> LockEvent) {
        let names = self.locks.inspect().wants(request).map(|(name, _)| (name.identity(), name.as_bytes()));
        let matches = self.watches.followers.locks.matches(names);
        if matches.is_empty() {
            return;
        }
        let all: Vec<_> =
            self.locks.inspect().wants(request).map(|(name, mode)| (name.clone(), mode)).collect();
        for (call, places) in matches {
            let locks = places.into_iter().map(|place| all[place].clone()).collect();
            let Some(holding) = holding(self.locks, request, locks) else { return };
            let told = self.watches.tell_holder(call, event(holding), &mut self.out.effects);
            self.out.counts.watch_events_dropped += u64::from(!told);
        }
    }
}

impl WatchCalls<'_> {
    /// The client of a watch has read `weight` of its holder events.
    pub(in crate::replica) fn on_watch_taken(&mut self, call: CallId, watch: u64, weight: usize) {
        self.out.reply(call, Reply::WatchTaken);
        let watch = CallId { session: call.session, tag: watch };
        let Some(row) = self.watches.rows.get_mut(&watch) else { return };
        let holders = &mut row.holders;
        holders.unread = holders.unread.saturating_sub(weight);
        match holders.state {
            State::Behind if row.subject == Subject::Locks && holders.unread <= ANEW_AT => {
                self.watches.begin_holders(watch, &mut self.out.effects);
            }
            State::Scanning { .. } if holders.unread < PAUSE_AT => self.watches.queue_scan(watch),
            _ => {}
        }
    }

    /// Resumes the scans of watches.
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

    /// Sends one watch more of the present holders, until all are sent, enough is unread, or the budget is
    /// used up.
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
                self.watches.tell_holder(call, LockEvent::HoldersSynced, &mut self.out.effects);
                if let Some(row) = self.watches.rows.get_mut(&call) {
                    row.holders.state = State::Current;
                }
                return;
            };
            let step = match of {
                Pattern::Lock(name) => {
                    *budget -= 1;
                    self.locks.inspect().next_holder_of(name, cursor)
                }
                // Of keys, which nothing holds.
                Pattern::Exactly(_) => Walk::Through,
                Pattern::BeginsWith(prefix) => self.locks.inspect().next_holder(prefix, cursor, budget),
            };
            match step {
                Walk::Holder { request, lock, mode } => {
                    if self.clients.client_requests.get(request).is_told
                        && let Some(holding) = holding(self.locks, request, vec![(lock, mode)])
                    {
                        self.watches.tell_holder(call, LockEvent::Granted(holding), &mut self.out.effects);
                    }
                }
                Walk::Paused => {}
                Walk::Through => (*pattern, *cursor) = (*pattern + 1, HolderCursor::default()),
            }
        }
    }
}

fn holding(locks: &Locks, request: RequestIndex, wants: Vec<(LockName, Mode)>) -> Option<Holding> {
    let (row, token) = (&locks.requests()[request], locks.requests()[request].token()?);
    Some(Holding { request: row.id, token, label: row.local()?.label.clone(), locks: wants })
}
