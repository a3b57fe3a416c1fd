//! Requests for enough locks: any of a list of candidates, all exclusive, whose weights reach an amount
//! (`docs/algorithm.md#59-enough-of-many-locks`).
//!
//! While such a request waits it has a *target*: candidates that reach the amount. The row of the request
//! wants the target, and waits for it exactly as a request for all of it: the rules of queues, grants,
//! publishing and parking know no other. The other candidates have the request in their queues as an *offer*,
//! a class that counts in no rule. A candidate that becomes free takes the place of a member of the target
//! that is not free.
//!
//! `asked.rs` has the list of a client, `target.rs` the choices, which are pure. The tables of such requests
//! are here; `schedule/enough.rs` applies the rules to them.

mod asked;
mod target;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::lock::LockIndex;
use super::queue::Order;
use super::request::RequestIndex;
use crate::base::deadlines::Deadlines;
use crate::base::time::Instant;
use crate::causal_log::Wants;

pub use asked::{AnyOf, AnyOfError};
pub(super) use target::{Limits, Member, Rank, Ranked, choose, improve, trim};

/// After that time a request that waits for what is here looks for candidates that are elsewhere by now;
/// after twice as long each time, up to `1 << MAX_DOUBLED` of it.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
const MAX_DOUBLED: u32 = 5;

/// The requests for enough locks, waiting or held.
#[derive(Default)]
pub(super) struct EnoughTable {
    rows: BTreeMap<RequestIndex, Enough>,
    /// Number of the candidates of all of them.
    candidates: usize,
    /// When waiting requests ask again, because what they asked for did not come.
    timers: Deadlines<RequestIndex>,
    /// Requests whose target is to be chosen again, because a member of it needs a datacenter that is away.
    pub stranded: Vec<RequestIndex>,
    /// Published requests that are to be published again, under another id.
    pub to_ask_again: Vec<RequestIndex>,
}

/// One such request.
#[derive(Debug)]
pub(super) struct Enough {
    pub of: Arc<AnyOf>,
    /// The number of the last amendment of `of`.
    pub revision: u64,
    /// The place of the request in the queues of its offers; its id changes when it asks again.
    pub offered_as: Order,
    /// The locks of the candidates, in the client's order. Empty once it is granted.
    pub locks: Vec<LockIndex>,
    /// The candidate of each of these locks.
    places: BTreeMap<LockIndex, u32>,
    /// By candidate: it is a member of the target.
    pub in_target: Vec<bool>,
    /// By candidate: an entry has asked for it.
    pub was_asked: Vec<bool>,
    /// The locks that the log says the request wants.
    pub published: Option<Wants>,
    /// How often it was published.
    pub rounds: u32,
    /// How often it has looked for other candidates without being published.
    pub looks: u32,
    timer: Option<Instant>,
    /// The candidates that it holds, once it is granted.
    pub chosen: Vec<u32>,
}

impl Enough {
    /// Returns the row of a request that holds nothing yet.
    pub fn new(of: Arc<AnyOf>, revision: u64, offered_as: Order, locks: Vec<LockIndex>) -> Enough {
        let places = places_of(&locks);
        let (in_target, was_asked) = (vec![false; locks.len()], vec![false; locks.len()]);
        Enough {
            of,
            revision,
            offered_as,
            locks,
            places,
            in_target,
            was_asked,
            published: None,
            rounds: 0,
            looks: 0,
            timer: None,
            chosen: Vec::new(),
        }
    }

    /// Returns the candidate of a lock.
    pub fn place_of(&self, lock: LockIndex) -> Option<u32> {
        self.places.get(&lock).copied()
    }

    pub fn weight(&self, place: u32) -> u64 {
        self.of.weight(place)
    }

    pub fn limits(&self) -> Limits {
        self.of.limits()
    }

    /// Returns the members of the target, in the client's order.
    pub fn target(&self) -> impl Iterator<Item = (u32, LockIndex)> {
        let all = self.locks.iter().enumerate().map(|(place, lock)| (place as u32, *lock));
        all.filter(|(place, _)| self.in_target[*place as usize])
    }

    /// Returns the candidates that are not members of the target.
    pub fn others(&self) -> impl Iterator<Item = LockIndex> {
        let all = self.locks.iter().enumerate();
        all.filter(|(place, _)| !self.in_target[*place]).map(|(_, lock)| *lock)
    }

    /// It is granted these candidates: nothing of its wait is kept.
    pub fn granted(&mut self, chosen: Vec<u32>) {
        debug_assert!(self.timer.is_none(), "the timer of a granted request is removed before");
        self.chosen = chosen;
        (self.locks, self.places) = (Vec::new(), BTreeMap::new());
        (self.in_target, self.was_asked, self.published) = (Vec::new(), Vec::new(), None);
    }
}

fn places_of(locks: &[LockIndex]) -> BTreeMap<LockIndex, u32> {
    locks.iter().enumerate().map(|(place, lock)| (*lock, place as u32)).collect()
}

impl EnoughTable {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    #[inline]
    pub fn has(&self, request: RequestIndex) -> bool {
        !self.rows.is_empty() && self.rows.contains_key(&request)
    }

    pub fn get(&self, request: RequestIndex) -> Option<&Enough> {
        self.rows.get(&request)
    }

    pub fn get_mut(&mut self, request: RequestIndex) -> Option<&mut Enough> {
        self.rows.get_mut(&request)
    }

    pub fn iter(&self) -> impl Iterator<Item = (RequestIndex, &Enough)> {
        self.rows.iter().map(|(request, row)| (*request, row))
    }

    pub fn insert(&mut self, request: RequestIndex, row: Enough) {
        self.candidates += row.of.candidates().len();
        let before = self.rows.insert(request, row);
        assert!(before.is_none(), "a row of a request for enough locks ends with the request");
    }

    /// Replaces the candidates of a waiting request that is in no queue; it has no target then. Returns the
    /// locks of the former ones.
    pub fn replace(
        &mut self,
        request: RequestIndex,
        of: &Arc<AnyOf>,
        revision: u64,
        locks: Vec<LockIndex>,
    ) -> Vec<LockIndex> {
        let row = self.rows.get_mut(&request).expect("it waits for enough locks");
        debug_assert!(revision > row.revision && !row.locks.is_empty(), "revisions rise while it waits");
        self.candidates = self.candidates - row.of.candidates().len() + of.candidates().len();
        let was_asked =
            |lock: &LockIndex| row.place_of(*lock).is_some_and(|place| row.was_asked[place as usize]);
        row.was_asked = locks.iter().map(was_asked).collect();
        row.in_target = vec![false; locks.len()];
        (row.of, row.revision, row.places) = (Arc::clone(of), revision, places_of(&locks));
        std::mem::replace(&mut row.locks, locks)
    }

    /// Removes a request that has ended. Returns its row.
    pub fn remove(&mut self, request: RequestIndex) -> Option<Enough> {
        self.set_timer(request, None);
        self.forget_plans(request);
        let row = self.rows.remove(&request)?;
        self.candidates -= row.of.candidates().len();
        Some(row)
    }

    /// Returns the number of the candidates of all requests.
    pub fn candidates(&self) -> usize {
        self.candidates
    }

    /// The request is granted or over: nothing is to be done for its wait.
    pub fn forget_plans(&mut self, request: RequestIndex) {
        self.stranded.retain(|other| *other != request);
        self.to_ask_again.retain(|other| *other != request);
    }

    /// Sets the time at which a waiting request asks again.
    pub fn set_timer(&mut self, request: RequestIndex, at: Option<Instant>) {
        let Some(row) = self.rows.get_mut(&request) else { return };
        if let Some(before) = std::mem::replace(&mut row.timer, at) {
            self.timers.remove(before, request);
        }
        if let Some(at) = at {
            self.timers.insert(at, request);
        }
    }

    /// Lets a waiting request look for other candidates later.
    pub fn look_again(&mut self, request: RequestIndex, now: Instant) {
        let Some(row) = self.rows.get_mut(&request) else { return };
        let after = LOOK_AGAIN * (1 << row.looks.min(MAX_DOUBLED));
        row.looks = row.looks.saturating_add(1);
        self.set_timer(request, Some(now + after));
    }

    #[inline]
    pub fn next_deadline(&self) -> Instant {
        self.timers.next_or_never()
    }

    /// Takes a request whose timer has expired.
    pub fn pop_expired(&mut self, now: Instant) -> Option<RequestIndex> {
        let request = self.timers.pop_expired(now)?;
        if let Some(row) = self.rows.get_mut(&request) {
            row.timer = None;
        }
        Some(request)
    }

    /// Notes that a request is to be published again.
    pub fn ask_again(&mut self, request: RequestIndex) {
        if !self.to_ask_again.contains(&request) {
            self.to_ask_again.push(request);
        }
    }
}
