//! Requests for enough locks: offers, grants, publishing, asking again
//! (`docs/algorithm.md#59-enough-of-many-locks`).

use super::Schedule;
use crate::base::bugs::Bug;
use crate::base::time::{Instant, Timestamp};
use crate::base::work;
use crate::causal_log::Wants;
use crate::lock_state::enough::{Member, Rank, Ranked, choose, improve, trim};
use crate::lock_state::lock::LockIndex;
use crate::lock_state::queue::{Class, Order};
use crate::lock_state::request::{Publication, RequestIndex, Want};
use crate::lock_state::tables::Tables;
use geolock_api::names::{LockName, Mode, RequestId};
use std::time::Duration;

/// Most further candidates that are asked for beside a target.
const SPARES: usize = 64;
/// Most offers of one lock in one step. A request that cannot use the lock declines.
const OFFERS: usize = 64;
/// Candidates of requests that ask again, which one step examines, approximately: one request always asks as
/// a whole. The others follow in the next steps.
const LOOKED_AT: usize = 2_048;
/// Added to two round trips until a request asks again.
const MARGIN: Duration = Duration::from_millis(50);
/// The distance to a datacenter to which it was not measured.
const UNMEASURED: Duration = Duration::from_millis(100);
/// A request that has asked for all of its candidates asks again after a time that grows up to this factor.
const MAX_SLOWER: u32 = 8;

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
            self.improve(tables, request, Some(lock), now);
        }
    }

    /// Improves the target of a waiting request by what became free, and grants the request if enough is.
    /// Returns true if it was granted.
    pub(super) fn improve(
        &mut self,
        tables: &mut Tables,
        request: RequestIndex,
        offered: Option<LockIndex>,
        now: Instant,
    ) -> bool {
        let order = tables.order_of(request);
        let Some(row) = tables.enough.get(request) else { return false };
        let (limits, last) = (row.limits(), offered.and_then(|lock| row.place_of(lock)));
        let target: Vec<(u32, LockIndex, u64)> =
            row.target().map(|(place, lock)| (place, lock, row.weight(place))).collect();
        let last = last.map(|place| Member { place, weight: row.weight(place), is_free: true });
        work::count(target.len());
        let seen = target.iter().map(|(place, lock, weight)| {
            let is_free = tables.is_free_lock(*lock, order, now);
            Member { place: *place, weight: *weight, is_free }
        });
        let mut members: Vec<Member> = seen.collect();
        members.extend(last);
        let mut kept = improve(members.clone(), limits);
        members.retain(|member| kept.contains(&member.place));
        let is_granted = members.iter().all(|member| member.is_free) && self.may_grant(tables, request);
        if is_granted {
            kept = trim(members, limits);
        }
        if is_granted && tables.view.bugs.has(Bug::EnoughBelowAmount) && kept.len() > 1 {
            kept.pop();
        }
        tables.set_target(request, &kept);
        if is_granted {
            self.grant_enough(tables, request, kept, now);
        }
        is_granted
    }

    fn may_grant(&self, tables: &Tables, request: RequestIndex) -> bool {
        let row = &tables.requests[request];
        let needs_entry = row.local().is_some_and(|local| local.publication.is_published());
        !row.parked && (!needs_entry || tables.view.permissions.append)
    }

    /// Grants a waiting request its target, which is free and no more than enough.
    fn grant_enough(&mut self, tables: &mut Tables, request: RequestIndex, chosen: Vec<u32>, now: Instant) {
        tables.drop_offers(request, now);
        tables.enough.set_timer(request, None);
        tables.enough.forget_plans(request);
        tables.dequeue(request);
        self.withdraw(tables, request);
        let counts_more = tables.view.bugs.has(Bug::EnoughSpareHeld);
        if let Some(row) = tables.enough.get_mut(request) {
            let others = (0..row.locks.len() as u32).filter(|place| !chosen.contains(place));
            let more: Vec<u32> = others.filter(|_| counts_more).take(1).collect();
            row.granted(chosen.into_iter().chain(more).collect());
        }
        self.grant(tables, request, now);
    }

    /// A member of the target of a request needs a datacenter that is away: chooses others instead, if they
    /// reach the amount.
    pub(super) fn choose_again(&mut self, tables: &mut Tables, request: RequestIndex, now: Instant) {
        let Some(row) = tables.enough.get(request).filter(|row| !row.locks.is_empty()) else { return };
        let limits = row.limits();
        let Some(target) = choose(tables.ranked(request, now), limits) else { return };
        tables.set_target(request, &target);
        for (_, lock) in
            tables.enough.get(request).into_iter().flat_map(|row| row.target()).collect::<Vec<_>>()
        {
            tables.locks.mark(lock);
        }
    }

    /// Publishes a request that lacks a part of this lock, which it is first for.
    pub(super) fn publish_enough(
        &mut self,
        tables: &mut Tables,
        request: RequestIndex,
        lock: LockIndex,
        now: Instant,
    ) {
        let name = &tables.locks[lock].name;
        let Some(row) = tables.enough.get(request) else { return };
        let is_asked = |wants: &Wants| wants.locks().binary_search_by(|(other, _)| other.cmp(name)).is_ok();
        let is_asked = row.published.as_ref().is_some_and(is_asked);
        match tables.requests[request].local().map(|local| local.publication) {
            Some(Publication::Published { .. }) if !is_asked => tables.enough.ask_again(request),
            Some(Publication::InThisStep) if !is_asked => self.set_published(tables, request, now),
            Some(Publication::Unpublished) => {
                self.set_published(tables, request, now);
                let is_new = tables.requests.publish(request);
                debug_assert!(is_new, "it was not published");
                self.output.requests.push(request);
            }
            _ => {}
        }
    }

    /// Requests that have waited for too long for what they asked for ask for something else.
    pub fn expire_enough(&mut self, tables: &mut Tables, now: Instant) {
        let mut looked_at = 0;
        while looked_at < LOOKED_AT
            && let Some(request) = tables.enough.pop_expired(now)
        {
            looked_at += tables.enough.get(request).map_or(0, |row| row.locks.len());
            if !tables.view.permissions.append {
                tables.enough.look_again(request, now);
                continue;
            }
            self.choose_again(tables, request, now);
            match tables.requests[request].local().is_some_and(|it| it.publication.is_published()) {
                true => tables.enough.ask_again(request),
                // If it lacks a part now, it is published by the rules, and gets another timer.
                false => tables.enough.look_again(request, now),
            }
        }
    }

    /// Publishes a request again, under a new id and with its old time: one entry withdraws the old id and
    /// has the new one, so that no request overtakes it.
    pub fn ask_again(&mut self, tables: &mut Tables, request: RequestIndex, id: RequestId, now: Instant) {
        let row = &tables.requests[request];
        let (old, publication) = (row.id, row.local().map(|local| local.publication));
        if !matches!(publication, Some(Publication::Published { .. })) {
            return;
        }
        tables.note_before(old);
        tables.requests.withdraw(request);
        tables.request_table.remove(old);
        self.output.replaced.insert(request, old);
        tables.rename(request, id, now);
        self.set_published(tables, request, now);
        tables.requests.publish_again(request);
        self.output.requests.push(request);
    }

    /// Decides which locks a request asks for: its target, also what is here now, as an earlier request may
    /// take that away; and further candidates that are elsewhere.
    fn set_published(&mut self, tables: &mut Tables, request: RequestIndex, now: Instant) {
        let ranked = tables.ranked(request, now);
        let Some(row) = tables.enough.get(request) else { return };
        let mut asked: Vec<u32> = row.target().map(|(place, _)| place).collect();
        if tables.view.bugs.has(Bug::EnoughMissingOnly) {
            asked.retain(|place| matches!(ranked[*place as usize].rank, Rank::Elsewhere { .. }));
        }
        let is_spare =
            |it: &&Ranked| matches!(it.rank, Rank::Elsewhere { .. }) && !row.in_target[it.place as usize];
        let mut spares: Vec<&Ranked> = ranked.iter().filter(is_spare).collect();
        spares.sort_by_key(|it| (it.rank, it.place));
        let (mut more, amount) = (0_u128, row.limits().amount);
        for spare in spares.into_iter().take(SPARES) {
            if more >= amount {
                break;
            }
            more += u128::from(spare.weight);
            asked.push(spare.place);
        }
        let distance = asked.iter().filter_map(|place| match ranked[*place as usize].rank {
            Rank::Elsewhere { distance, .. } => Some(distance),
            _ => None,
        });
        let (distance, rounds) = (distance.max().unwrap_or_default(), row.rounds);
        let names: Vec<(LockName, Mode)> = asked
            .iter()
            .map(|place| (row.of.candidates()[*place as usize].0.clone(), Mode::Exclusive))
            .collect();
        let Ok(wants) = Wants::all(names) else {
            // Only with the deliberate bug above there may be none.
            debug_assert!(tables.view.bugs.has_any(), "a part of a list that was checked");
            return;
        };
        if let Some(row) = tables.enough.get_mut(request) {
            row.published = Some(wants);
            row.rounds = rounds.saturating_add(1);
            if row.was_asked.iter().all(|was| *was) {
                row.was_asked.fill(false);
            }
            asked.into_iter().for_each(|place| row.was_asked[place as usize] = true);
        }
        let slower = (1 + rounds / 4).min(MAX_SLOWER);
        tables.enough.set_timer(request, Some(now + (4 * distance + MARGIN) * slower));
    }
}

impl Tables {
    fn order_of(&self, request: RequestIndex) -> Order {
        let order = self.requests[request].order();
        let is_first = self.view.bugs.has(Bug::EnoughFromTargets);
        if is_first { Order { at: Timestamp::ZERO, ..order } } else { order }
    }

    /// Returns true if the exclusive grant of a lock is possible for a request in this place of the order.
    pub fn is_free_lock(&mut self, lock: LockIndex, order: Order, now: Instant) -> bool {
        let Tables { view, policies, locks, .. } = self;
        locks.is_free_for(Want::new(lock, Mode::Exclusive), order, view, policies, now)
    }

    /// Returns all candidates of a waiting request, in the client's order, as they can be had now.
    pub fn ranked(&mut self, request: RequestIndex, now: Instant) -> Vec<Ranked> {
        let order = self.requests[request].order();
        let Some(row) = self.enough.get(request) else { return Vec::new() };
        let seen: Vec<(LockIndex, u64, bool)> = (0..row.locks.len())
            .map(|place| (row.locks[place], row.weight(place as u32), row.was_asked[place]))
            .collect();
        work::count(seen.len());
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

    /// Changes the target of a waiting request.
    pub fn set_target(&mut self, request: RequestIndex, target: &[u32]) {
        let Some(row) = self.enough.get(request) else { return };
        let is_member = |place: usize| target.binary_search(&(place as u32)).is_ok();
        let changed: Vec<usize> =
            (0..row.locks.len()).filter(|place| row.in_target[*place] != is_member(*place)).collect();
        if changed.is_empty() {
            return;
        }
        self.dequeue(request);
        let Tables { locks, enough, .. } = self;
        let Some(row) = enough.get_mut(request) else { return };
        for place in changed {
            let (lock, is_in) = (row.locks[place], is_member(place));
            row.in_target[place] = is_in;
            match is_in {
                true => locks.take_offer(lock, row.offered_as),
                false => locks.put_offer(lock, row.offered_as, request),
            }
        }
        self.enqueue_for_target(request);
    }

    /// Lets a request, which is in no queue, wait for its target.
    pub fn enqueue_for_target(&mut self, request: RequestIndex) {
        let Tables { locks, requests, enough, .. } = self;
        let Some(row) = enough.get(request) else { return };
        let mut wants: Vec<Want> = row.target().map(|(_, lock)| Want::new(lock, Mode::Exclusive)).collect();
        wants.sort_by(|a, b| locks[a.lock].name.cmp(&locks[b.lock].name));
        requests.set_wants(request, wants.into());
        let parked = self.should_park(&self.requests[request]);
        if parked != self.requests[request].parked {
            self.requests.set_parked(request, parked);
        }
        self.enqueue(request);
    }

    /// Inserts the offers of a request that begins to wait.
    pub fn put_offers(&mut self, request: RequestIndex) {
        let Tables { locks, enough, .. } = self;
        let Some(row) = enough.get(request) else { return };
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
    fn rename(&mut self, request: RequestIndex, id: RequestId, now: Instant) {
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
