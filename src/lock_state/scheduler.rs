//! The scheduler: restores the rules of `docs/algorithm.md#5-ordering` on the locks that a step touched.

use super::lock::LockIndex;
use super::locks::Locks;
use super::queue::{Class, Due, Waiter, earliest};
use super::request::{Publication, RequestIndex};
use crate::causal_log::LockParts;
use crate::names::{DcId, DcSet, Mode};
use crate::time::Instant;
use crate::work;

impl Locks {
    /// Returns true if no lock was marked since the rules were last restored.
    pub fn is_scheduled(&self) -> bool {
        self.dirty.is_empty()
    }

    /// Grants, transfers and publishes until nothing more follows from the changes.
    #[inline]
    pub fn schedule(&mut self, now: Instant) {
        while let Some(index) = self.dirty.pop() {
            self.lock_mut(index).dirty = false;
            self.schedule_lock(index, now);
        }
    }

    fn schedule_lock(&mut self, index: LockIndex, now: Instant) {
        let lock = &mut self.locks[index];
        lock.refresh_due(&self.rules.get(lock.rule).policy, &self.distances, now);
        if self.permissions.grant {
            self.grant_local(index, now);
            if self.permissions.append {
                self.serve_remote(index);
            }
        }
        #[cfg(test)]
        let index_to_publish = (!self.mutated(crate::sim::Mutation::PublishFirstOnly)).then_some(index);
        #[cfg(not(test))]
        let index_to_publish = Some(index);
        index_to_publish.into_iter().for_each(|index| self.publish(index));
        self.set_timer(index, now);
        self.note_idle(index, now);
    }

    /// Grants the first local waiters of a lock as far as all their locks are free.
    fn grant_local(&mut self, index: LockIndex, now: Instant) {
        loop {
            let queue = &self.lock(index).queue;
            let exclusive = queue.first(Class::LocalExclusive);
            let shared = queue.first(Class::LocalShared);
            match (exclusive, shared) {
                (Some(first), shared) if shared.is_none_or(|shared| first < shared) => {
                    if !self.grant_if_free(first.1, index, now) {
                        return;
                    }
                }
                (_, Some(_)) => return self.grant_shared_run(index, now),
                (_, None) => return,
            }
        }
    }

    /// Grants local shared waiters up to the first request that blocks them. Walks them only after the end of
    /// something that may have blocked all of them, and only if the lock is free for them. A request that
    /// arrives is checked by `acquire` itself.
    fn grant_shared_run(&mut self, index: LockIndex, now: Instant) {
        let (me, members) = (self.me, self.members);
        let from = self.sweeps.readers_from(index);
        let (had_enough, most) = (self.sweeps.had_enough(index), self.sweeps.readers_left());
        let lock = self.lock_mut(index);
        let is_free = lock.has_parts(Mode::Shared, me, members) && !lock.is_held_against(Mode::Shared);
        if !is_free || had_enough {
            lock.recheck_shared |= from.is_some();
            return;
        }
        if from.is_none() && !std::mem::take(&mut lock.recheck_shared) {
            return;
        }
        let stops =
            earliest(lock.queue.first(Class::LocalExclusive), lock.queue.first(Class::RemoteExclusiveDue));
        let run: Vec<Waiter> = lock
            .queue
            .of_class_from(Class::LocalShared, from)
            .take_while(|waiter| stops.is_none_or(|stop| waiter.0 < stop.0))
            .take(most + 1)
            .collect();
        let again = lock.recheck_shared;
        for (order, request) in run {
            let wants = self.get(request).wants.len();
            if !self.sweeps.takes_reader(wants) {
                return self.sweeps.read_later(index, order);
            }
            work::count(wants);
            self.grant_if_free(request, index, now);
        }
        if again {
            self.mark(index);
        }
    }

    /// `index`: the lock that is scheduled, so the last one that blocked the request.
    fn grant_if_free(&mut self, request: RequestIndex, index: LockIndex, now: Instant) -> bool {
        let needs_entry = self.get(request).local().is_some_and(|local| local.publication.is_published());
        if needs_entry && !self.permissions.append {
            return false;
        }
        if !self.is_free_at_last(request, now) {
            return false;
        }
        self.dequeue(request);
        self.hold(request, now);
        let waited = now.saturating_since(self.local_mut(request).since);
        self.hot_locks.granted(&self.locks[index].name, waited);
        true
    }

    /// Returns true if all locks that a waiting request wants are free for it. The check begins with the lock
    /// that blocked it last and goes round: the others mostly still are free, so a request for thousands of
    /// locks is not checked whole whenever one of them changes.
    fn is_free_at_last(&mut self, request: RequestIndex, now: Instant) -> bool {
        let row = self.get(request);
        let (order, count) = (row.order(), row.wants.len());
        let first = row.local().map_or(0, |local| local.stopped_at as usize);
        for i in 0..count {
            let at = (first + i) % count;
            let want = self.get(request).wants[at];
            if !self.is_lock_free(want, order, now) {
                self.local_mut(request).stopped_at = at as u32;
                return false;
            }
        }
        true
    }

    /// Transfers parts to remote requests that can be served, are due, and are not blocked by a holder.
    fn serve_remote(&mut self, index: LockIndex) {
        let lock = self.lock(index);
        if lock.parts.is_empty() || lock.queue.is_empty() {
            return;
        }
        let remote_exclusive = lock.queue.first_remote_exclusive();
        let first_exclusive =
            earliest(lock.queue.first(Class::LocalExclusive), remote_exclusive.map(|(w, _)| w));
        #[cfg(test)]
        let first_exclusive =
            if self.mutated(crate::sim::Mutation::SharedPastExclusive) { None } else { first_exclusive };
        if !lock.is_held_against(Mode::Shared) {
            self.serve_shared_run(index, first_exclusive);
        }

        let Some((writer, Due::Due)) = remote_exclusive else { return };
        let lock = self.lock(index);
        let held = lock.is_held_against(Mode::Exclusive);
        #[cfg(test)]
        let held = held && !self.mutated(crate::sim::Mutation::TransferWhileHeld);
        if held || lock.queue.first_local_conflict(Mode::Exclusive).is_some_and(|first| first < writer.0) {
            return;
        }
        let stopped = |dc| lock.queue.first_remote_shared(dc).is_some_and(|(reader, _)| reader < writer);
        if !lock.parts.iter().any(stopped) {
            let to = writer.0.id.dc;
            self.transfer(index, lock.parts, to);
        }
    }

    /// Serves the shared requests of others together, up to the first exclusive one.
    fn serve_shared_run(&mut self, index: LockIndex, first_exclusive: Option<Waiter>) {
        let lock = self.lock(index);
        let served = |dc: &DcId| match lock.queue.first_remote_shared(*dc) {
            Some((reader, Due::Due)) => first_exclusive.is_none_or(|exclusive| reader.0 < exclusive.0),
            _ => false,
        };
        let parts: DcSet = lock.parts.iter().filter(served).collect();
        for part in parts.iter() {
            self.transfer(index, DcSet::only(part), part);
        }
    }

    fn transfer(&mut self, index: LockIndex, parts: DcSet, to: DcId) {
        assert!(to != self.me, "parts are handed to others");
        // Requests of a datacenter that went away just now may not be parked yet.
        if parts.is_empty() || (self.sweeps.is_reparking() && self.unreachable.contains(to)) {
            return;
        }
        let lock = &mut self.locks[index];
        let mut moved = Vec::with_capacity(parts.len());
        for part in parts.iter() {
            let version = self.ownership.register(&lock.name, part).version() + 1;
            moved.push((part, version));
        }
        lock.parts = lock.parts.difference(parts);
        let lock = LockParts { lock: lock.name.clone(), parts: moved };
        self.counts.transfers_sent += parts.len() as u64;
        self.counts.hand_offs_sent += 1;
        self.hot_locks.moved(&lock.lock);
        self.move_parts(to, &lock);
        self.repark_lock(index, self.me, to);
        self.output.transfers.push((to, lock));
    }

    /// Publishes the waiters that must be in the log: those that lack a part of this lock and have no earlier
    /// local waiter for it in the same or a stronger mode. So any number of waiters costs one published
    /// request, or two (`docs/algorithm.md#52-publishing`).
    pub(super) fn publish(&mut self, index: LockIndex) {
        if !self.permissions.append {
            return;
        }
        let lock = self.lock(index);
        let exclusive = lock.queue.first(Class::LocalExclusive);
        let shared = lock
            .queue
            .first(Class::LocalShared)
            .filter(|shared| exclusive.is_none_or(|first| *shared < first));
        let lacks = |mode| !lock.has_parts(mode, self.me, self.members);
        let exclusive = exclusive.filter(|_| lacks(Mode::Exclusive));
        let shared = shared.filter(|_| lacks(Mode::Shared));
        for (_, request) in shared.into_iter().chain(exclusive) {
            let local = self.local_mut(request);
            if local.publication == Publication::Unpublished {
                local.publication = Publication::InThisStep;
                self.counts.published += 1;
                self.output.requests.push(request);
            }
        }
    }

    fn set_timer(&mut self, index: LockIndex, now: Instant) {
        let lock = &mut self.locks[index];
        let next = if self.permissions.grant && self.permissions.append {
            lock.next_due(&self.rules.get(lock.rule).policy, &self.distances, now)
        } else {
            None
        };
        if next == lock.timer {
            return;
        }
        if let Some(before) = std::mem::replace(&mut lock.timer, next) {
            self.timers.remove(before, index);
        }
        if let Some(next) = next {
            self.timers.insert(next, index);
        }
    }
}
