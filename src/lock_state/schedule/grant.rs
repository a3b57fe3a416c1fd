//! Grants of waiting requests: `docs/algorithm/ownership.md#24-local-grants`.

use super::Schedule;
use crate::base::time::Instant;
use crate::base::work;
use crate::lock_state::lock::{Lock, LockIndex};
use crate::lock_state::queue::{Class, Order, Waiter, earliest};
use crate::lock_state::request::RequestIndex;
use crate::lock_state::tables::Tables;
use geolock_api::names::Mode;

/// The local request that is first for a lock.
enum First {
    Exclusive(RequestIndex),
    /// A shared one; those after it may be granted with it.
    Shared,
}

/// Returns the local request that is first for a lock.
fn first_local(lock: &Lock) -> Option<First> {
    let exclusive = lock.queue.first(Class::LocalExclusive);
    match (exclusive, lock.queue.first(Class::LocalShared)) {
        (Some(first), shared) if shared.is_none_or(|shared| first < shared) => {
            Some(First::Exclusive(first.1))
        }
        (_, shared) => shared.map(|_| First::Shared),
    }
}

/// Returns at most `most` shared waiters up to the first request that blocks them, beginning at a place in
/// the order.
fn shared_run(lock: &Lock, from: Option<Order>, most: usize) -> Vec<Waiter> {
    let stops =
        earliest(lock.queue.first(Class::LocalExclusive), lock.queue.first(Class::RemoteExclusiveDue));
    let waiters = lock.queue.of_class_from(Class::LocalShared, from);
    waiters.take_while(|waiter| stops.is_none_or(|stop| waiter.0 < stop.0)).take(most).collect()
}

impl Schedule {
    /// Grants the first local waiters of a lock as far as all their locks are free.
    pub(super) fn grant_local(&mut self, tables: &mut Tables, index: LockIndex, now: Instant) {
        loop {
            match first_local(&tables.locks[index]) {
                Some(First::Exclusive(first)) => {
                    if !self.grant_if_free(tables, first, index, now) {
                        return;
                    }
                }
                Some(First::Shared) => return self.grant_shared_run(tables, index, now),
                None => return,
            }
        }
    }

    /// Grants local shared waiters up to the first request that blocks them. Walks them only after the end of
    /// something that may have blocked all of them, and only if the lock is free for them. A request that
    /// arrives is checked by `acquire` itself.
    fn grant_shared_run(&mut self, tables: &mut Tables, index: LockIndex, now: Instant) {
        let from = self.sweeps.readers_from(index);
        let (had_enough, most) = (self.sweeps.had_enough(index), self.sweeps.readers_left());
        let lock = &mut tables.locks[index];
        let is_free = tables.view.has_parts(lock, Mode::Shared) && !lock.is_held_against(Mode::Shared);
        if !is_free || had_enough {
            lock.recheck_shared |= from.is_some();
            return;
        }
        if from.is_none() && !std::mem::take(&mut lock.recheck_shared) {
            return;
        }
        let run = shared_run(lock, from, most + 1);
        let again = lock.recheck_shared;
        for (order, request) in run {
            let wants = tables.requests[request].wants.len();
            if !self.sweeps.takes_reader(wants) {
                return self.sweeps.read_later(index, order);
            }
            work::count(wants);
            self.grant_if_free(tables, request, index, now);
        }
        if again {
            tables.locks.mark(index);
        }
    }

    /// `index`: the lock that is scheduled, so the last one that blocked the request.
    fn grant_if_free(
        &mut self,
        tables: &mut Tables,
        request: RequestIndex,
        index: LockIndex,
        now: Instant,
    ) -> bool {
        let local = tables.requests[request].local();
        let needs_entry = local.is_some_and(|local| local.publication.is_published());
        if needs_entry && !tables.view.permissions.append {
            return false;
        }
        if tables.enough.has(request) {
            return self.examine_member(tables, request, index, now);
        }
        if !tables.is_free_at_last(request, now) {
            return false;
        }
        debug_assert!(!tables.requests[request].parked, "a parked request needs parts that are away");
        tables.dequeue(request);
        self.grant(tables, request, now);
        let local = tables.requests[request].local().expect("only local requests are granted");
        let waited = now.saturating_since(local.since);
        tables.hot_locks.granted(&tables.locks[index].name, waited);
        true
    }

    /// Grants a request that is in no queue any more.
    pub(in crate::lock_state) fn grant(&mut self, tables: &mut Tables, request: RequestIndex, now: Instant) {
        self.withdraw(tables, request);
        tables.hold(request, now);
        self.output.granted.push_back(request);
    }
}
