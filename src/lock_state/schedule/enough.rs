//! Requests for enough locks: offers, and grants (`docs/algorithm/ownership.md#29-enough-of-many-locks`).
//!
//! A change of one lock costs the request that waits for it a few look-ups, however many candidates it has:
//! its row knows which members of the target are missing. Only the grant and a new choice of the whole target
//! walk all of them.

use super::Schedule;
use crate::base::bugs::Bug;
use crate::base::time::Instant;
use crate::base::work;
use crate::lock_state::enough::{Enough, Member, choose, trim};
use crate::lock_state::lock::LockIndex;
use crate::lock_state::lock_table::sort_by_name;
use crate::lock_state::queue::Class;
use crate::lock_state::request::{RequestIndex, Want};
use crate::lock_state::tables::Tables;
use geolock_api::names::Mode;
use smallvec::SmallVec;

/// Most offers of one lock in one step. A request that cannot use the lock declines.
const OFFERS: usize = 64;

impl Schedule {
    /// Offers a lock to the requests that have it among their candidates, in their order, as far as no
    /// earlier request waits for it here. Before its waiters are granted: a later one may only gather it.
    pub(super) fn offer(&mut self, tables: &mut Tables, lock: LockIndex, now: Instant) {
        let offers = tables.locks[lock].queue.of_class(Class::Offer);
        let waiters: Vec<RequestIndex> = offers.map(|(_, request)| request).take(OFFERS).collect();
        for request in waiters {
            let order = tables.order_of(request);
            // An earlier one has it, or waits for it: so has, or so does, each that follows.
            if !tables.is_free_lock(lock, order, now) {
                return;
            }
            tables.take_into_target(request, lock, now);
            self.grant_if_enough(tables, request, now);
        }
    }

    /// The request is the first one that waits for a lock of its target here, and the lock may have become
    /// free, or not free any more. Returns true if the request was granted.
    pub(super) fn examine_member(
        &mut self,
        tables: &mut Tables,
        request: RequestIndex,
        lock: LockIndex,
        now: Instant,
    ) -> bool {
        let order = tables.order_of(request);
        let is_free = tables.is_free_lock(lock, order, now);
        tables.enough.note_examined(request, lock, is_free);
        if tables.view.bugs.has(Bug::EnoughTargetWalked) {
            for want in tables.requests[request].wants.clone() {
                let is_free = tables.is_free_lock(want.lock, order, now);
                tables.enough.note_examined(request, want.lock, is_free);
            }
        }
        tables.leave_out(request, now);
        self.grant_if_enough(tables, request, now)
    }

    /// Grants a waiting request if all members of its target are free. Returns true if it was granted.
    fn grant_if_enough(&mut self, tables: &mut Tables, request: RequestIndex, now: Instant) -> bool {
        let order = tables.order_of(request);
        while may_grant(tables, request) {
            // A member may have been taken by an earlier request since it was examined. The check begins with
            // the last one that was, so it does not begin anew for each of them.
            let Some(taken) = tables.first_not_free(request, order, now) else {
                self.grant_enough(tables, request, now);
                return true;
            };
            tables.enough.note_examined(request, taken, false);
            tables.leave_out(request, now);
        }
        false
    }

    /// Grants a waiting request those members of its target, all of which are free, that reach the amount.
    fn grant_enough(&mut self, tables: &mut Tables, request: RequestIndex, now: Instant) {
        let Some(row) = tables.enough.get(request) else { return };
        let (mut chosen, limits) = (needed(row), row.limits());
        debug_assert!(chosen.len() <= limits.most, "a target is not too large");
        if tables.view.bugs.has(Bug::EnoughBelowAmount) && chosen.len() > 1 {
            chosen.pop();
        }
        tables.drop_offers(request, now);
        tables.enough.forget_plans(request);
        tables.dequeue(request);
        self.withdraw(tables, request);
        let counts_more = tables.view.bugs.has(Bug::EnoughSpareHeld);
        let Tables { locks, requests, enough, .. } = tables;
        if let Some(row) = enough.get_mut(request) {
            let exclusive = |place: &u32| Want::new(row.locks[*place as usize], Mode::Exclusive);
            let mut wants: SmallVec<[Want; 1]> = chosen.iter().map(exclusive).collect();
            sort_by_name(locks, &mut wants);
            requests.set_wants(request, wants);
            let mut others = (0..row.locks.len() as u32).filter(|it| chosen.binary_search(it).is_err());
            let more = if counts_more { others.next() } else { None };
            chosen.extend(more);
            row.granted(chosen);
        }
        self.grant(tables, request, now);
    }
}

/// Returns true if all members of the target of a waiting request are free, as far as is known, and it may be
/// granted them.
fn may_grant(tables: &Tables, request: RequestIndex) -> bool {
    let row = &tables.requests[request];
    let needs_entry = row.local().is_some_and(|local| local.publication.is_published());
    let are_free = tables.enough.get(request).is_some_and(|row| row.members.are_free());
    are_free && !row.parked && (!needs_entry || tables.view.permissions.append)
}

/// A member of the target of a request needs a datacenter that is away: chooses others instead, if they reach
/// the amount.
pub(super) fn choose_again(tables: &mut Tables, request: RequestIndex, now: Instant) {
    let Some(row) = tables.enough.get(request).filter(|row| !row.locks.is_empty()) else { return };
    let limits = row.limits();
    let ranked = tables.ranked(request, now);
    let Some(target) = choose(ranked.clone(), limits) else { return };
    tables.set_target(request, &ranked, &target);
    let Tables { locks, requests, .. } = tables;
    work::count(target.len());
    requests[request].wants.iter().for_each(|want| locks.mark(want.lock));
}

/// Returns those members of a free target that are needed to reach the amount.
fn needed(row: &Enough) -> Vec<u32> {
    let members = row.target().map(|(place, _)| Member { place, weight: row.weight(place), is_free: true });
    work::count(row.locks.len());
    trim(members.collect(), row.limits())
}
