//! Requests for enough locks: any of a list of candidates, all exclusive, whose weights reach an amount
//! (`docs/algorithm/ownership.md#29-enough-of-many-locks`).
//!
//! While such a request waits it has a *target*: candidates that reach the amount. The row of the request
//! wants the target, and waits for it exactly as a request for all of it: the rules of queues, grants,
//! publishing and parking know no other. The other candidates have the request in their queues as an *offer*,
//! a class that counts in no rule. A candidate that becomes free takes the place of a member of the target
//! that is not free.
//!
//! `asked.rs` has the list of a client, `target.rs` the choices, which are pure, and `members.rs` the target
//! as it changes member by member. The tables of such requests are here; `waiting.rs` keeps them consistent
//! with the queues of the locks, and `schedule/enough.rs` applies the rules.

mod asked;
mod members;
mod target;
mod waiting;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::lock::LockIndex;
use super::queue::Order;
use super::request::{RequestIndex, Want};
use crate::base::deadlines::Deadlines;
use crate::base::time::Instant;
use crate::causal_log::Wants;
use geolock_api::names::LockName;

pub use asked::{AnyOf, AnyOfError};
pub(super) use members::Members;
pub(super) use target::{Limits, Member, Rank, Ranked, choose, trim};

/// After that time a request that waits for what is here looks for candidates that are elsewhere by now;
/// after twice as long each time, up to `1 << MAX_DOUBLED` of it.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
const MAX_DOUBLED: u32 = 5;

/// Candidates of requests that choose their targets again or ask again, which one step examines,
/// approximately: one request is always examined as a whole. The others follow in the next steps.
const LOOKED_AT: usize = 2_048;

/// The requests for enough locks, waiting or held.
#[derive(Default)]
pub(super) struct EnoughTable {
    rows: BTreeMap<RequestIndex, Enough>,
    /// Number of the candidates of all of them.
    candidates: usize,
    /// When waiting requests ask again, because what they asked for did not come.
    timers: Deadlines<RequestIndex>,
    /// Requests whose target is to be chosen again, because a member of it needs a datacenter that is away.
    /// A row of either list is void if the request does not say so itself.
    stranded: Vec<RequestIndex>,
    /// Published requests that are to be published again, under another id.
    to_ask_again: Vec<RequestIndex>,
    /// How much of [`LOOKED_AT`] this step has used.
    looked_at: usize,
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
    /// The candidate of each of these locks, sorted by lock.
    places: Vec<(LockIndex, u32)>,
    /// The target.
    pub members: Members,
    /// By candidate: an entry has asked for it.
    pub was_asked: Vec<bool>,
    /// By candidate: the log says that the request wants it, or will say so by the entry of this step.
    pub is_asked: Vec<bool>,
    /// The locks that the log says the request wants.
    pub published: Option<Wants>,
    /// How often it was published.
    pub rounds: u32,
    /// How often it has looked for other candidates without being published.
    pub looks: u32,
    timer: Option<Instant>,
    plans: Plans,
    /// The candidates that it holds, once it is granted.
    pub chosen: Vec<u32>,
}

/// Things to be done for the wait of a request, see the lists of [`EnoughTable`].
#[derive(Clone, Copy, Default, Debug)]
struct Plans {
    is_stranded: bool,
    asks_again: bool,
}

impl Enough {
    /// Returns the row of a request that holds nothing yet.
    pub fn new(of: Arc<AnyOf>, revision: u64, offered_as: Order, locks: Vec<LockIndex>) -> Enough {
        let (places, members) = (places_of(&locks), Members::new(locks.len(), of.limits()));
        let (was_asked, is_asked) = (vec![false; locks.len()], vec![false; locks.len()]);
        Enough {
            of,
            revision,
            offered_as,
            locks,
            places,
            members,
            was_asked,
            is_asked,
            published: None,
            rounds: 0,
            looks: 0,
            timer: None,
            plans: Plans::default(),
            chosen: Vec::new(),
        }
    }

    /// Returns the candidate of a lock.
    pub fn place_of(&self, lock: LockIndex) -> Option<u32> {
        let at = self.places.binary_search_by_key(&lock, |(lock, _)| *lock).ok()?;
        Some(self.places[at].1)
    }

    pub fn weight(&self, place: u32) -> u64 {
        self.of.weight(place)
    }

    /// Returns a candidate with its weight.
    pub fn candidate(&self, place: u32) -> (u32, u64) {
        (place, self.of.weight(place))
    }

    pub fn limits(&self) -> Limits {
        self.of.limits()
    }

    /// Returns the members of the target, in the client's order.
    pub fn target(&self) -> impl Iterator<Item = (u32, LockIndex)> {
        let all = self.locks.iter().enumerate().map(|(place, lock)| (place as u32, *lock));
        all.filter(|(place, _)| self.members.contains(*place))
    }

    /// Returns the candidates that are not members of the target.
    pub fn others(&self) -> impl Iterator<Item = LockIndex> {
        let all = self.locks.iter().enumerate();
        all.filter(|(place, _)| !self.members.contains(*place as u32)).map(|(_, lock)| *lock)
    }

    /// Sets the first members of its target: the locks of these wants.
    pub fn set_members(&mut self, wants: &[Want], ranked: &[Ranked]) {
        for (index, want) in wants.iter().enumerate() {
            let place = self.place_of(want.lock).expect("a member is a candidate");
            let is_free = ranked[place as usize].rank == Rank::Free;
            self.members.insert(self.candidate(place), is_free, index);
        }
    }

    /// Notes if a member is free.
    pub fn set_free(&mut self, place: u32, is_free: bool) {
        self.members.set_free(self.candidate(place), is_free);
    }

    /// It is granted these candidates: nothing of its wait is kept.
    pub fn granted(&mut self, chosen: Vec<u32>) {
        debug_assert!(self.timer.is_none(), "the timer of a granted request is removed before");
        self.chosen = chosen;
        (self.locks, self.places, self.members) = (Vec::new(), Vec::new(), Members::new(0, self.of.limits()));
        (self.was_asked, self.is_asked, self.published) = (Vec::new(), Vec::new(), None);
    }

    /// Records what the log is to say that the request wants: these candidates.
    pub fn ask_for(&mut self, asked: &[u32], wants: Wants) {
        self.published = Some(wants);
        if self.was_asked.iter().all(|was| *was) {
            self.was_asked.fill(false);
        }
        self.is_asked.fill(false);
        for place in asked {
            (self.was_asked[*place as usize], self.is_asked[*place as usize]) = (true, true);
        }
    }
}

fn places_of(locks: &[LockIndex]) -> Vec<(LockIndex, u32)> {
    let mut places: Vec<(LockIndex, u32)> =
        locks.iter().enumerate().map(|(place, lock)| (*lock, place as u32)).collect();
    places.sort_unstable();
    places
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
        let asked = row.published.as_ref().map(|wants| wants.locks()).unwrap_or_default();
        let is_asked = |name: &LockName| asked.binary_search_by(|(other, _)| other.cmp(name)).is_ok();
        row.is_asked = of.names().map(is_asked).collect();
        row.members = Members::new(locks.len(), of.limits());
        (row.of, row.revision, row.places) = (Arc::clone(of), revision, places_of(&locks));
        std::mem::replace(&mut row.locks, locks)
    }

    /// Removes a request that has ended. Returns its row.
    pub fn remove(&mut self, request: RequestIndex) -> Option<Enough> {
        self.set_timer(request, None);
        let row = self.rows.remove(&request)?;
        self.candidates -= row.of.candidates().len();
        Some(row)
    }

    /// Returns the number of the candidates of all requests.
    pub fn candidates(&self) -> usize {
        self.candidates
    }

    /// A lock of the target of a request was examined: notes if it is free.
    pub fn note_examined(&mut self, request: RequestIndex, lock: LockIndex, is_free: bool) {
        let Some(row) = self.rows.get_mut(&request) else { return };
        if let Some(place) = row.place_of(lock) {
            row.set_free(place, is_free);
        }
    }

    /// The request is granted: nothing is to be done for its wait.
    pub fn forget_plans(&mut self, request: RequestIndex) {
        self.set_timer(request, None);
        if let Some(row) = self.rows.get_mut(&request) {
            row.plans = Plans::default();
        }
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

    /// Takes a request whose timer has expired, if this step may examine one more.
    pub fn pop_expired(&mut self, now: Instant) -> Option<RequestIndex> {
        if !self.may_look() {
            return None;
        }
        let request = self.timers.pop_expired(now)?;
        if let Some(row) = self.rows.get_mut(&request) {
            row.timer = None;
            self.looked_at += row.locks.len();
        }
        Some(request)
    }

    /// Notes that a request is to be published again.
    pub fn ask_again(&mut self, request: RequestIndex) {
        let Some(row) = self.rows.get_mut(&request) else { return };
        if !std::mem::replace(&mut row.plans.asks_again, true) {
            self.to_ask_again.push(request);
        }
    }

    /// Notes that a member of the target of a request needs a datacenter that is away.
    pub fn strand(&mut self, request: RequestIndex) {
        let Some(row) = self.rows.get_mut(&request) else { return };
        if !std::mem::replace(&mut row.plans.is_stranded, true) {
            self.stranded.push(request);
        }
    }

    /// Takes a request that is to be published again, if this step may examine one more.
    pub fn next_to_ask_again(&mut self) -> Option<RequestIndex> {
        self.next_of(|table| &mut table.to_ask_again, |row| &mut row.plans.asks_again)
    }

    /// Takes a request whose target is to be chosen again, if this step may examine one more.
    pub fn next_stranded(&mut self) -> Option<RequestIndex> {
        self.next_of(|table| &mut table.stranded, |row| &mut row.plans.is_stranded)
    }

    fn next_of(
        &mut self,
        list: impl Fn(&mut EnoughTable) -> &mut Vec<RequestIndex>,
        flag: impl Fn(&mut Enough) -> &mut bool,
    ) -> Option<RequestIndex> {
        while self.may_look() {
            let request = list(self).pop()?;
            let Some(row) = self.rows.get_mut(&request) else { continue };
            if std::mem::take(flag(row)) {
                self.looked_at += row.locks.len();
                return Some(request);
            }
        }
        None
    }

    /// Returns true if this step may examine one more request.
    pub fn may_look(&self) -> bool {
        self.looked_at < LOOKED_AT
    }

    /// A new step begins.
    pub fn begin_step(&mut self) {
        self.looked_at = 0;
    }

    /// Returns true if requests are to ask again, and this step may examine one more.
    #[inline]
    pub fn has_to_ask_again(&self) -> bool {
        !self.to_ask_again.is_empty() && self.may_look()
    }

    /// Returns true if the targets of requests are to be chosen again.
    #[inline]
    pub fn has_stranded(&self) -> bool {
        !self.stranded.is_empty()
    }

    /// Returns true if the next step has more requests to examine.
    #[inline]
    pub fn has_work(&self) -> bool {
        !self.to_ask_again.is_empty() || self.has_stranded()
    }
}
