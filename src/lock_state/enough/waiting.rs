//! A request for enough locks in the queues of its locks: it waits for its target, and the other candidates
//! are offered to it.
//!
//! The target is in three places: the members of the row, the wants of the request, and the queues. A member
//! joins or leaves all three at once, at the cost of one lock.

use std::time::Duration;

use super::{Rank, Ranked};
use crate::base::bugs::Bug;
use crate::base::time::{Instant, Timestamp};
use crate::base::work;
use crate::lock_state::lock::LockIndex;
use crate::lock_state::lock_table::sort_by_name;
use crate::lock_state::queue::Order;
use crate::lock_state::request::{RequestIndex, Want};
use crate::lock_state::tables::Tables;
use geolock_api::names::{Mode, RequestId};
use smallvec::SmallVec;

/// The distance to a datacenter to which it was not measured.
const UNMEASURED: Duration = Duration::from_millis(100);

/// How soon the candidates of a request can be had.
impl Tables {
    pub(in crate::lock_state) fn order_of(&self, request: RequestIndex) -> Order {
        let order = self.requests[request].order();
        let is_first = self.view.bugs.has(Bug::EnoughFromTargets);
        if is_first { Order { at: Timestamp::ZERO, ..order } } else { order }
    }

    /// Returns true if the exclusive grant of a lock is possible for a request in this place of the order.
    pub fn is_free_lock(&mut self, lock: LockIndex, order: Order, now: Instant) -> bool {
        let Tables { view, policies, locks, .. } = self;
        work::count(1);
        locks.is_free_for(Want::new(lock, Mode::Exclusive), order, view, policies, now)
    }

    /// Returns all candidates of a waiting request, in the client's order, as they can be had now.
    pub fn ranked(&mut self, request: RequestIndex, now: Instant) -> Vec<Ranked> {
        let order = self.requests[request].order();
        let Some(row) = self.enough.get(request) else { return Vec::new() };
        let seen: Vec<(LockIndex, u64, bool)> = (0..row.locks.len())
            .map(|place| (row.locks[place], row.weight(place as u32), row.was_asked[place]))
            .collect();
        let ranked = seen.into_iter().enumerate().map(|(place, (lock, weight, was_asked))| Ranked {
            place: place as u32,
            weight,
            rank: self.rank(lock, order, was_asked, now),
        });
        ranked.collect()
    }

    /// Returns how soon a lock can be had by a request in this place of the order.
    pub fn rank(&mut self, lock: LockIndex, order: Order, was_asked: bool, now: Instant) -> Rank {
        if self.is_free_lock(lock, order, now) {
            return Rank::Free;
        }
        let Tables { view, policies, owners, locks, .. } = self;
        if view.has_parts(&locks[lock], Mode::Exclusive) {
            return Rank::Taken;
        }
        let name = &locks[lock].name;
        let mut distance = Duration::ZERO;
        for part in view.members.iter() {
            let owner = owners.owner(name, part);
            if view.away.contains(owner) {
                return Rank::Away;
            }
            if owner != view.me {
                distance = distance.max(policies.distance(owner).unwrap_or(UNMEASURED));
            }
        }
        Rank::Elsewhere { was_asked, distance }
    }
}

/// Changes of the target by one member.
impl Tables {
    /// Takes an offered lock, which is free for the request, into the target, in place of members that are
    /// not free, or of a lighter one. Nothing changes if the target would be no better.
    pub(in crate::lock_state) fn take_into_target(
        &mut self,
        request: RequestIndex,
        lock: LockIndex,
        now: Instant,
    ) {
        let Some(row) = self.enough.get(request) else { return };
        let Some(place) = row.place_of(lock).filter(|place| !row.members.contains(*place)) else { return };
        let weight = row.weight(place);
        let has_room = self.superfluous(request, weight, now).is_some()
            || self.enough.get(request).is_some_and(|row| row.members.has_room());
        let lightest = self.enough.get(request).and_then(|row| row.members.lightest_below(weight));
        if !has_room && lightest.is_none() {
            return;
        }
        self.insert_member(request, place, true);
        if let Some(lightest) = lightest.filter(|_| !has_room) {
            self.remove_member(request, lightest);
        }
        self.leave_out(request, now);
        // The member that left may have been the last one that needed a datacenter that is away.
        if self.requests[request].parked {
            self.follow_parking(request);
        }
    }

    /// Removes the members that are not free and not needed to reach the amount, the last ones first.
    pub(in crate::lock_state) fn leave_out(&mut self, request: RequestIndex, now: Instant) {
        while let Some(place) = self.superfluous(request, 0, now) {
            self.remove_member(request, place);
        }
    }

    /// Returns the last member that is not free and not needed to reach the amount, with a further member of
    /// this weight. A member whose lock became free is noticed only when its lock is scheduled: one that
    /// would leave is examined once more.
    fn superfluous(&mut self, request: RequestIndex, beside: u64, now: Instant) -> Option<u32> {
        let order = self.order_of(request);
        loop {
            let row = self.enough.get(request)?;
            let place = row.members.superfluous(beside)?;
            let lock = row.locks[place as usize];
            if !self.is_free_lock(lock, order, now) {
                return Some(place);
            }
            if let Some(row) = self.enough.get_mut(request) {
                row.set_free(place, true);
            }
        }
    }

    fn insert_member(&mut self, request: RequestIndex, place: u32, is_free: bool) {
        let Tables { locks, requests, enough, .. } = self;
        let Some(row) = enough.get_mut(request) else { return };
        let lock = row.locks[place as usize];
        locks.take_offer(lock, row.offered_as);
        let want = Want::new(lock, Mode::Exclusive);
        locks.enqueue_one(want, request, &requests[request]);
        let (candidate, want) = (row.candidate(place), requests.push_want(request, want));
        row.members.insert(candidate, is_free, want);
    }

    fn remove_member(&mut self, request: RequestIndex, place: u32) {
        let Tables { locks, requests, enough, .. } = self;
        let Some(row) = enough.get_mut(request) else { return };
        let lock = row.locks[place as usize];
        let want = row.members.remove(row.candidate(place));
        locks.dequeue_one(requests[request].wants[want], &requests[request]);
        if let Some(moved) = requests.swap_remove_want(request, want) {
            let moved = row.place_of(moved.lock).expect("a member is a candidate");
            row.members.set_want(moved, want);
        }
        locks.put_offer(lock, row.offered_as, request);
    }
}

/// Changes of the whole target: each costs as much as all candidates.
impl Tables {
    /// Changes the target of a waiting request to some of its candidates, which were ranked just now.
    pub fn set_target(&mut self, request: RequestIndex, ranked: &[Ranked], target: &[u32]) {
        let Some(row) = self.enough.get(request) else { return };
        let was_in: Vec<bool> = (0..ranked.len()).map(|place| row.members.contains(place as u32)).collect();
        let mut is_in = vec![false; ranked.len()];
        target.iter().for_each(|place| is_in[*place as usize] = true);
        // The new members come first, so that the request always waits for something.
        for place in target {
            let is_free = ranked[*place as usize].rank == Rank::Free;
            match self.enough.get_mut(request).filter(|_| was_in[*place as usize]) {
                Some(row) => row.set_free(*place, is_free),
                None => self.insert_member(request, *place, is_free),
            }
        }
        for place in (0..ranked.len()).filter(|place| was_in[*place] && !is_in[*place]) {
            self.remove_member(request, place as u32);
        }
        self.follow_parking(request);
    }

    /// Lets a request without a target, which is in no queue, wait for this one. Its candidates were ranked
    /// just now.
    pub fn enqueue_for_target(&mut self, request: RequestIndex, ranked: &[Ranked], target: &[u32]) {
        let Tables { locks, requests, enough, .. } = self;
        let Some(row) = enough.get_mut(request) else { return };
        let exclusive = |place: &u32| Want::new(row.locks[*place as usize], Mode::Exclusive);
        let mut wants: SmallVec<[Want; 1]> = target.iter().map(exclusive).collect();
        sort_by_name(locks, &mut wants);
        requests.set_wants(request, wants);
        row.set_members(&requests[request].wants, ranked);
        let parked = self.should_park(&self.requests[request]);
        if parked != self.requests[request].parked {
            self.requests.set_parked(request, parked);
        }
        self.enqueue(request);
    }

    /// Parks or unparks a waiting request after its target has changed, if it has to be, and marks its locks
    /// then.
    fn follow_parking(&mut self, request: RequestIndex) {
        // The next member that leaves does not let all be examined again.
        if let Some(away) = self.away_want(&self.requests[request]) {
            self.requests.set_stopped_at(request, away);
        }
        let parked = self.should_park(&self.requests[request]);
        if parked != self.requests[request].parked {
            self.dequeue(request);
            self.requests.set_parked(request, parked);
            self.enqueue(request);
        }
    }

    /// Inserts the offers of a request that begins to wait.
    pub fn put_offers(&mut self, request: RequestIndex) {
        let Tables { locks, enough, .. } = self;
        let Some(row) = enough.get(request) else { return };
        work::count(row.locks.len());
        row.others().for_each(|lock| locks.put_offer(lock, row.offered_as, request));
    }

    /// Removes all offers of a request, which does not wait any more.
    pub fn drop_offers(&mut self, request: RequestIndex, now: Instant) {
        self.take_offers(request);
        let Tables { locks, enough, policies, .. } = self;
        let Some(row) = enough.get(request) else { return };
        row.others().for_each(|lock| locks.note_idle(lock, policies, now));
    }

    /// Removes all offers of a request.
    pub fn take_offers(&mut self, request: RequestIndex) {
        let Tables { locks, enough, .. } = self;
        let Some(row) = enough.get(request) else { return };
        work::count(row.locks.len());
        row.others().for_each(|lock| locks.take_offer(lock, row.offered_as));
    }

    /// Gives a waiting request another id; its time stays.
    pub(in crate::lock_state) fn rename(&mut self, request: RequestIndex, id: RequestId, now: Instant) {
        self.dequeue(request);
        self.requests.rename(request, id);
        if self.view.bugs.has(Bug::EnoughAsksLater) {
            self.delay(request, now);
        }
        self.enqueue(request);
    }

    /// Deliberate bugs: gives a request for enough locks a later time, as one that begins to wait now.
    pub fn delay(&mut self, request: RequestIndex, now: Instant) {
        if let Some(since) = self.requests[request].local().map(|local| local.since) {
            let first = self.enough.get(request).map(|row| row.offered_as.at);
            let at = first.unwrap_or(self.requests[request].at);
            self.requests.set_at(request, at.plus(now.saturating_since(since)));
        }
    }
}
