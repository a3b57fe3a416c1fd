//! The invariants of the locks of one datacenter.

use std::collections::BTreeMap;

use super::enough::Enough;
use super::lock::LockIndex;
use super::locks::Locks;
use super::queue::{Class, Order};
use super::request::{Origin, Publication, RequestIndex, State};
use super::tables::Tables;
use geolock_api::names::Mode;

impl Locks {
    /// Asserts the invariants that hold after every step. Walks all rows: for tests and the simulator.
    pub fn check(&self) {
        let Tables { view, owners, locks, requests, hot_locks, .. } = &self.tables;
        assert!(self.is_scheduled(), "every step settles what it touched, or does its share of that");
        hot_locks.check();
        owners.check();
        let mut first_local = FirstLocal::new();
        for (index, lock) in locks.iter() {
            let first = |class| lock.queue.first(class).map(|(order, _)| order);
            first_local.insert(index, (first(Class::LocalExclusive), first(Class::LocalShared)));
            let found = locks.find(&lock.name);
            assert_eq!(found, Some(index), "lock {} is found by its name", lock.name);
            let parts = owners.parts_here(&lock.name);
            assert_eq!(lock.parts, parts, "the copy of who owns lock {}", lock.name);
            let exclusive = lock.holders.mode == Some(Mode::Exclusive);
            assert!(
                !exclusive || lock.holders.requests.len() == 1,
                "lock {} has one exclusive holder",
                lock.name
            );
            for (request, place) in &lock.holders.requests {
                let want = requests[*request].wants[*place as usize];
                assert_eq!(want.lock, index, "a holder of lock {} wants it", lock.name);
                assert!(view.has_parts(lock, want.mode), "lock {} is held with its parts", lock.name);
            }
            for (class, order, request) in lock.queue.iter() {
                let row = &requests[request];
                if class == Class::Offer {
                    let of =
                        self.tables.enough.get(request).expect("a lock is offered to a request for enough");
                    let place = of.place_of(index).expect("a candidate is offered");
                    assert!(of.offered_as == order && !of.members.contains(place), "the offer to {}", row.id);
                    continue;
                }
                assert_eq!(row.order(), order, "the place of {} in the queue of lock {}", row.id, lock.name);
                assert_eq!(
                    class.is_parked(),
                    row.parked,
                    "{} is parked in the queue of lock {}",
                    row.id,
                    lock.name
                );
                assert!(!row.is_held(), "{} holds and waits", row.id);
            }
            if lock.is_idle() && !lock.dirty {
                assert!(lock.in_idle_list, "idle lock {} will be forgotten", lock.name);
            }
        }
        check_requests(self, &first_local);
        check_enough(self, &first_local);
    }
}

/// The first local waiters of each lock: the exclusive one and the shared one.
type FirstLocal = BTreeMap<LockIndex, (Option<Order>, Option<Order>)>;

/// Checks the rows of requests, with the indexes and counts.
fn check_requests(locks: &Locks, first_local: &FirstLocal) {
    let (requests, table) = (&locks.tables.requests, &locks.tables.request_table);
    let (mut held, mut waiting, mut published, mut remote, mut parked) = (0, 0, 0, 0, 0);
    let mut in_log = 0;
    let further: u64 = requests.iter().map(|(_, row)| row.further()).sum();
    assert_eq!(further, requests.counts().further, "the count of locks beyond the first of requests");
    for (index, row) in requests.iter() {
        assert_eq!(locks.tables.requests.find(row.id), Some(index), "request {} is found by its id", row.id);
        parked += u64::from(row.parked);
        let seq = match &row.origin {
            Origin::Remote { seq } => Some(*seq),
            Origin::Local(local) => match local.publication {
                Publication::Published { seq } => Some(seq),
                _ => None,
            },
        };
        if let Some(seq) = seq {
            in_log += 1;
            assert_eq!(table.published().get(&row.id), Some(&(index, seq)), "{} is in the log", row.id);
        }
        match &row.origin {
            Origin::Remote { .. } => remote += 1,
            Origin::Local(local) => {
                assert!(
                    !matches!(local.state, State::Granted { .. }),
                    "{} has its token at the end of the step",
                    row.id
                );
                held += u64::from(local.state != State::Waiting);
                waiting += u64::from(local.state == State::Waiting);
                published += u64::from(local.publication.is_published());
                assert!(
                    local.state == State::Waiting || !local.publication.is_published(),
                    "{} is held and asked for",
                    row.id
                );
                check_published(locks, index, first_local);
            }
        }
    }
    let counts = (held, waiting, published, remote, parked);
    let counted = requests.counts();
    let expected = (counted.held, counted.waiting, counted.published, counted.remote, counted.parked);
    assert_eq!(counts, expected, "the counts of held, waiting, published, remote and parked requests");
    assert_eq!(in_log, table.published().len(), "only these requests are in the log");
}

/// Checks the requests for enough of many locks.
fn check_enough(locks: &Locks, first_local: &FirstLocal) {
    let Tables { view, enough, requests, locks: table, .. } = &locks.tables;
    let candidates: usize = enough.iter().map(|(_, of)| of.of.candidates().len()).sum();
    assert_eq!(candidates, enough.candidates(), "the number of candidates");
    assert!(
        !enough.has_work() || !enough.may_look(),
        "what has to be done is done, or one step's share of it"
    );
    for (request, of) in enough.iter().filter(|(request, _)| !requests[*request].is_held()) {
        let row = &requests[request];
        of.members.check(|place| of.weight(place));
        assert_eq!(of.target().count(), row.wants.len(), "{} waits for its target", row.id);
        for (place, lock) in of.target() {
            let want = of.members.want_of(place).map(|want| row.wants[want].lock);
            assert_eq!(want, Some(lock), "{} waits for its target", row.id);
        }
        let may_wait_for_a_step = !table.is_clean() || enough.has_work() || locks.schedule.is_sweeping();
        if row.parked || !view.permissions.grant || !view.permissions.append || may_wait_for_a_step {
            continue;
        }
        if !view.bugs.has_any() {
            check_members(locks, (request, of), first_local);
        }
    }
}

/// Checks the target of a request that is not parked, after all rules were restored.
fn check_members(locks: &Locks, (request, of): (RequestIndex, &Enough), first_local: &FirstLocal) {
    let Tables { view, requests, locks: table, .. } = &locks.tables;
    let row = &requests[request];
    let is_published = row.local().is_some_and(|local| local.publication.is_published());
    for (place, index) in of.target() {
        let lock = &table[index];
        let (exclusive, shared) = first_local[&index];
        let is_first = exclusive.is_none_or(|first| first >= row.order());
        if !view.has_parts(lock, Mode::Exclusive) {
            assert!(
                !is_published || of.is_asked[place as usize] || !is_first,
                "{} lacks a part of {} and has not asked for it",
                row.id,
                lock.name
            );
            continue;
        }
        let due = lock.queue.first_due_conflict(Mode::Exclusive, lock.parts);
        let is_free = is_first
            && !lock.is_held_against(Mode::Exclusive)
            && [shared, due].into_iter().flatten().all(|first| row.order() < first);
        assert!(!is_free || !of.members.is_missing(place), "{} knows that {} is free", row.id, lock.name);
    }
}

/// The rule of publishing: `docs/algorithm/ownership.md#22-publishing`.
fn check_published(locks: &Locks, request: RequestIndex, first_local: &FirstLocal) {
    let (row, view) = (&locks.tables.requests[request], &locks.tables.view);
    let Some(local) = row.local() else { return };
    if local.state != State::Waiting
        || row.parked
        || !view.permissions.append
        || local.publication.is_published()
        || locks.schedule.is_sweeping()
        || !locks.tables.locks.is_clean()
    {
        return;
    }
    if view.bugs.has_any() {
        return;
    }
    for want in &row.wants {
        let lock = &locks.tables.locks[want.lock];
        if view.has_parts(lock, want.mode) {
            continue;
        }
        let (exclusive, shared) = first_local[&want.lock];
        let shared = shared.filter(|_| want.mode == Mode::Shared);
        let earlier = exclusive.into_iter().chain(shared).any(|order| order < row.order());
        assert!(earlier, "{} is first for a part of lock {} and not published", row.id, lock.name);
    }
}
