//! Requests of this datacenter's clients: acquire, grant, release, cancel, reclaim.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::lock::{Lock, LockIndex};
use super::locks::Locks;
use super::queue::Order;
use super::request::{Local, Origin, Publication, Request, RequestIndex, State, Want};
use crate::causal_log::Wants;
use crate::names::{FencingToken, LeaseId, LockName, Position, RequestId};
use crate::tables::RowIndex;
use crate::time::{Instant, Timestamp};
use crate::work;

/// Maximum number of locks of one request that are examined to find those that block it.
const LOOKS_IN_THE_WAY: usize = 1_024;

/// A request of a client.
pub(crate) struct NewRequest<'a> {
    pub id: RequestId,
    /// Reading of the hybrid clock: the time of the request in the order, unless it needs another datacenter.
    pub at: Timestamp,
    pub wants: &'a Wants,
    pub lease: LeaseId,
    pub label: &'a Arc<str>,
}

/// A grant from before a restart, as its client reclaims it.
pub(crate) struct HeldRequest<'a> {
    pub request: NewRequest<'a>,
    pub token: FencingToken,
}

/// Decides if a request that is not granted at once stays in the queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IfNotFree {
    Wait,
    GiveUp,
}

/// A request that was granted just now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fresh {
    pub id: RequestId,
    /// See [`State::Granted`].
    pub ready: Position,
    pub since: Instant,
    pub was_published: bool,
}

/// Result of an acquire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Acquired {
    /// The request is in [`super::locks::LockOutput::granted`].
    Granted(RequestIndex),
    Waiting(RequestIndex),
    /// The request left no trace.
    NotFree,
}

impl Locks {
    /// Grants the request at once, or inserts it into the queues.
    pub fn acquire(&mut self, new: &NewRequest<'_>, if_not_free: IfNotFree, now: Instant) -> Acquired {
        let mut row = self.new_row(new, now);
        let mut learnt = false;
        for want in &row.wants {
            learnt |= self.lock_mut(want.lock).note_request(want.mode, now);
        }
        if self.permissions.grant && self.is_free(&row, now) {
            let index = self.insert_row(row);
            self.counts.waiting += 1;
            self.hold(index, now);
            return Acquired::Granted(index);
        }
        if learnt {
            row.wants.iter().for_each(|want| self.mark(want.lock));
        }
        if if_not_free == IfNotFree::GiveUp {
            row.wants.iter().for_each(|want| self.note_idle(want.lock, now));
            return Acquired::NotFree;
        }
        row.at = row.at.plus(self.request_delay(&row));
        row.parked = self.should_park(&row);
        let index = self.insert_row(row);
        self.counts.waiting += 1;
        self.enqueue(index);
        self.note_wait(index);
        for i in 0..self.get(index).wants.len() {
            let lock = self.get(index).wants[i].lock;
            self.publish(lock);
            self.note_idle(lock, now);
        }
        Acquired::Waiting(index)
    }

    /// Returns the holders that conflict with a reclaimed request. All have smaller tokens, and the caller
    /// ends them before the reclaim.
    ///
    /// Returns `None` if the request cannot be held: its parts are not here, or a conflicting holder has a
    /// higher token.
    pub fn conflicts_of(&mut self, held: &HeldRequest<'_>, now: Instant) -> Option<Vec<RequestId>> {
        let row = self.new_row(&held.request, now);
        row.wants.iter().for_each(|want| self.note_idle(want.lock, now));
        let here = row.wants.iter().all(|w| self.lock(w.lock).has_parts(w.mode, self.me, self.members));
        let rivals = self.rivals(&row);
        let stands = rivals.iter().all(|rival| self.token(*rival).is_none_or(|token| token < held.token));
        #[cfg(test)]
        let stands = stands || self.mutated(crate::sim::Mutation::StaleReclaim);
        (here && stands).then(|| rivals.iter().map(|rival| self.get(*rival).id).collect())
    }

    /// Holds a request again that was held before a restart. No holder conflicts, see
    /// [`Locks::conflicts_of`].
    pub fn reclaim(&mut self, held: &HeldRequest<'_>, now: Instant) -> RequestIndex {
        let row = self.new_row(&held.request, now);
        let index = self.insert_row(row);
        self.counts.waiting += 1;
        self.hold(index, now);
        self.output.granted.retain(|granted| *granted != index);
        self.set_token(index, held.token);
        index
    }

    /// Returns the holders that conflict with a request.
    fn rivals(&self, row: &Request) -> Vec<RequestIndex> {
        let mut rivals: Vec<RequestIndex> = Vec::new();
        for want in &row.wants {
            let lock = self.lock(want.lock);
            if lock.is_held_against(want.mode) {
                rivals.extend(lock.holders.requests.iter().map(|(holder, _)| *holder));
            }
        }
        rivals.sort_unstable();
        rivals.dedup();
        rivals
    }

    /// Returns the token of a holder, or `None` if it was granted in this step and has none yet.
    pub fn token(&self, request: RequestIndex) -> Option<FencingToken> {
        match self.state(request) {
            Some(State::Held { token, .. }) => Some(token),
            _ => None,
        }
    }

    /// Sets the token of a fresh grant. Returns the facts that the caller needs to answer it.
    pub fn set_token(&mut self, request: RequestIndex, token: FencingToken) -> Fresh {
        let row = self.request_mut(request);
        let id = row.id;
        let local = row.local_mut().expect("only local requests are granted");
        let State::Granted { since, ready } = local.state else {
            unreachable!("a request gets one token, in the step in which it is granted")
        };
        local.state = State::Held { token, since, ready };
        Fresh { id, ready, since: local.since, was_published: local.publication.was_published() }
    }

    /// Ends a held request. `position`: the record of that, if there is one. A later grant is answered only
    /// when the journal is durable up to there.
    pub fn release(&mut self, request: RequestIndex, position: Position, now: Instant) {
        let row = self.requests.remove(request);
        assert!(row.is_held(), "only held requests are released");
        for want in &row.wants {
            self.leave_holders(*want, position, now);
        }
        self.counts.held -= 1;
        self.note_forgotten(request, &row);
    }

    /// Ends a waiting request.
    pub fn cancel(&mut self, request: RequestIndex, now: Instant) {
        assert_eq!(self.state(request), Some(State::Waiting), "only waiting requests are cancelled");
        self.withdraw(request);
        self.dequeue(request);
        for i in 0..self.get(request).wants.len() {
            let lock = self.get(request).wants[i].lock;
            self.note_idle(lock, now);
        }
        self.counts.waiting -= 1;
        self.forget(request);
    }

    /// Returns up to `most` locks that block a request: held in conflict, with missing parts, or wanted by
    /// earlier requests. If none blocks it at this moment, returns its first locks. Of a request for
    /// thousands of locks only [`LOOKS_IN_THE_WAY`] are examined, beginning with the one that blocked it
    /// last.
    pub fn in_the_way(&self, request: RequestIndex, most: usize) -> Vec<LockName> {
        let row = self.get(request);
        let wants = &row.wants;
        let from = row.local().map_or(0, |local| local.stopped_at as usize);
        let keeps_waiting = |want: &Want| {
            let lock = self.lock(want.lock);
            lock.is_held_against(want.mode)
                || !lock.has_parts(want.mode, self.me, self.members)
                || self.first_waiter(want.lock).is_some_and(|(_, _, first)| first != request)
        };
        let count = wants.len().min(LOOKS_IN_THE_WAY);
        work::count(count);
        let looked_at = (0..count).map(|i| (from + i) % wants.len());
        let mut found: Vec<usize> = looked_at.filter(|at| keeps_waiting(&wants[*at])).take(most).collect();
        if found.is_empty() {
            found = (0..wants.len().min(most)).collect();
        }
        found.sort_unstable();
        found.into_iter().map(|at| self.lock(wants[at].lock).name.clone()).collect()
    }

    /// Counts the beginning of a wait for the hot locks: for the first lock of the request that is held in
    /// conflict or lacks parts.
    pub(super) fn note_wait(&mut self, request: RequestIndex) {
        let row = &self.requests[request];
        let is_in_the_way = |want: &&Want| {
            let lock = &self.locks[want.lock];
            lock.is_held_against(want.mode)
                || (row.local().is_some() && !lock.has_parts(want.mode, self.me, self.members))
        };
        if let Some(want) = row.wants.iter().find(is_in_the_way).or(row.wants.first()) {
            self.hot_locks.waits(&self.locks[want.lock].name);
        }
    }

    /// Returns true if all locks that a request wants are free for it now.
    pub(super) fn is_free(&mut self, row: &Request, now: Instant) -> bool {
        let order = row.order();
        row.wants.iter().all(|want| self.is_lock_free(*want, order, now))
    }

    /// The rule of local grants for one lock: `docs/algorithm.md#54-local-grants`.
    pub(super) fn is_lock_free(&mut self, want: Want, order: Order, now: Instant) -> bool {
        #[cfg(test)]
        {
            self.looks += 1;
        }
        let lock = &mut self.locks[want.lock];
        if !lock.has_parts(want.mode, self.me, self.members) || lock.is_held_against(want.mode) {
            return false;
        }
        if lock.queue.is_empty() {
            return true;
        }
        lock.refresh_due(&self.rules.get(lock.rule).policy, &self.distances, now);
        let first_local = lock.queue.first_local_conflict(want.mode);
        if first_local.is_some_and(|first| first < order) {
            return false;
        }
        #[cfg(test)]
        if want.mode == crate::names::Mode::Shared
            && self.mutation == Some(crate::sim::Mutation::ReaderOvertakesDueWriter)
        {
            return true;
        }
        let lock = &self.locks[want.lock];
        lock.queue.first_due_conflict(want.mode, lock.parts).is_none_or(|first| order < first)
    }

    /// Grants a request that is in no queue any more.
    pub(super) fn hold(&mut self, request: RequestIndex, now: Instant) {
        self.withdraw(request);
        let mut ready = Position::default();
        let row = &mut self.requests[request];
        for (i, want) in row.wants.iter_mut().enumerate() {
            let lock = &mut self.locks[want.lock];
            assert!(!lock.is_held_against(want.mode), "lock {} is granted in conflict", lock.name);
            assert!(
                lock.has_parts(want.mode, self.me, self.members),
                "lock {} is granted without its parts",
                lock.name
            );
            want.holder = lock.holders.requests.len() as u32;
            lock.holders.requests.push((request, i as u32));
            lock.holders.mode = Some(want.mode);
            lock.acquired_at.get_or_insert(now);
            ready = ready.max(lock.position);
        }
        let local = row.local_mut().expect("only local requests are granted");
        local.state = State::Granted { since: now, ready };
        self.counts.waiting -= 1;
        self.counts.held += 1;
        self.output.granted.push_back(request);
    }

    fn leave_holders(&mut self, want: Want, position: Position, now: Instant) {
        let lock: &mut Lock = &mut self.locks[want.lock];
        lock.holders.requests.swap_remove(want.holder as usize);
        if let Some((moved, place)) = lock.holders.requests.get(want.holder as usize).copied() {
            self.requests[moved].wants[place as usize].holder = want.holder;
        }
        if lock.holders.requests.is_empty() {
            lock.holders.mode = None;
        }
        lock.position = lock.position.max(position);
        lock.note_release(want.mode, now);
        if !lock.queue.is_empty() {
            self.mark(want.lock);
        } else if !lock.in_idle_list {
            self.note_idle(want.lock, now);
        }
    }

    fn new_row(&mut self, new: &NewRequest<'_>, now: Instant) -> Request {
        let mut wants = SmallVec::with_capacity(new.wants.locks().len());
        for (name, mode) in new.wants.locks() {
            wants.push(Want { lock: self.activate(name), mode: *mode, holder: 0 });
        }
        let local = Local {
            lease: new.lease,
            label: new.label.clone(),
            state: State::Waiting,
            since: now,
            publication: Publication::Unpublished,
            stopped_at: 0,
        };
        Request { id: new.id, at: new.at, wants, origin: Origin::Local(local), parked: false }
    }

    /// Returns the delay that is added to the time of a request that lacks parts.
    fn request_delay(&self, row: &Request) -> Duration {
        let delay = |want: &Want| {
            let lock = self.lock(want.lock);
            let lacks = !lock.has_parts(want.mode, self.me, self.members);
            if lacks { self.rules.get(lock.rule).request_delay } else { Duration::ZERO }
        };
        row.wants.iter().map(delay).max().unwrap_or_default()
    }

    /// Returns rows of locks for listings, beginning at index `from`; examines at most `most` rows.
    pub(super) fn lock_rows(&self, from: usize, most: usize) -> impl Iterator<Item = (LockIndex, &Lock)> {
        let end = self.locks.end().min(from.saturating_add(most));
        (from..end).map(LockIndex::from_row).filter_map(|index| Some((index, self.locks.get(index)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Permissions, Published};
    use super::*;
    use crate::names::{DcId, DcSet, LockName, Mode};

    fn dc(id: u8) -> DcId {
        DcId::new(id).expect("a small id")
    }

    fn wants(wants: &[(&str, Mode)]) -> Wants {
        let named = |(name, mode): &(&str, Mode)| (LockName::try_from(*name).expect("valid"), *mode);
        Wants::all(wants.iter().map(named).collect()).expect("some locks")
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn acquire(locks: &mut Locks, n: u64, wants: &Wants, now: Instant) -> Acquired {
        ask(locks, n, wants, IfNotFree::GiveUp, now)
    }

    fn ask(locks: &mut Locks, n: u64, wants: &Wants, if_not_free: IfNotFree, now: Instant) -> Acquired {
        let (lease, label) = (LeaseId::new(dc(0), 1), "test".into());
        let (id, at) = (RequestId { dc: dc(0), n }, Timestamp::from_millis(100 + n));
        let acquired = locks.acquire(&NewRequest { id, at, wants, lease, label: &label }, if_not_free, now);
        locks.schedule(now);
        acquired
    }

    /// Locks of a cluster with one datacenter.
    fn alone() -> Locks {
        let mut locks = Locks::new(dc(0), DcSet::only(dc(0)), Vec::new(), 0);
        locks.permit(Permissions { grant: true, append: true });
        locks
    }

    fn granted(acquired: Acquired) -> RequestIndex {
        match acquired {
            Acquired::Granted(request) => request,
            other => panic!("it is free, and {other:?}"),
        }
    }

    #[test]
    fn a_request_for_many_locks_is_not_looked_at_whole_for_each_of_them() {
        const MANY: usize = 1_000;
        let names: Vec<String> = (0..MANY).map(|n| format!("lock {n:04}")).collect();
        let of = |names: &[String]| {
            wants(&names.iter().map(|name| (&**name, Mode::Exclusive)).collect::<Vec<_>>())
        };
        let mut locks = alone();
        let most = granted(acquire(&mut locks, 0, &of(&names[..MANY - 1]), at(0)));
        let last = granted(acquire(&mut locks, 1, &of(&names[MANY - 1..]), at(0)));
        let Acquired::Waiting(all) = ask(&mut locks, 2, &of(&names), IfNotFree::Wait, at(0)) else {
            panic!("all are held");
        };
        locks.looks = 0;
        locks.release(most, Position::default(), at(1));
        locks.schedule(at(1));
        assert!(locks.looks <= 3 * MANY, "{} looks at {MANY} locks", locks.looks);
        locks.release(last, Position::default(), at(2));
        locks.schedule(at(2));
        assert!(locks.get(all).is_held());
    }

    #[test]
    fn the_first_waiters_are_shown_in_order_whatever_they_want() {
        let mut locks = alone();
        granted(acquire(&mut locks, 0, &wants(&[("a", Mode::Exclusive)]), at(0)));
        for n in 1..=20 {
            let mode = if n % 3 == 0 { Mode::Exclusive } else { Mode::Shared };
            ask(&mut locks, n, &wants(&[("a", mode)]), IfNotFree::Wait, at(0));
        }
        for most in [1, 7, 20, 30] {
            let (rows, count) = locks.waiters(&LockName::try_from("a").expect("valid"), most);
            let shown: Vec<u64> = rows.iter().map(|row| row.id.n).collect();
            assert_eq!((shown, count), ((1..=20).take(most).collect(), 20));
        }
    }

    /// A refused request still shows how soon the lock is wanted here: remote requests become due by the new
    /// estimate, not by the old timer.
    #[test]
    fn what_a_request_tells_of_a_lock_counts_at_once_even_if_it_is_refused() {
        let mut locks = Locks::new(dc(0), DcSet::from_iter([dc(0), dc(1)]), Vec::new(), 0);
        locks.permit(Permissions { grant: true, append: true });
        let (reader, writer) = (wants(&[("a", Mode::Shared)]), wants(&[("a", Mode::Exclusive)]));
        for turn in 0..3 {
            let now = at(10 * turn);
            let Acquired::Granted(request) = acquire(&mut locks, turn, &reader, now) else {
                panic!("our own part is here");
            };
            if turn == 0 {
                let id = RequestId { dc: dc(1), n: 1 };
                locks.apply_request(&Published {
                    id,
                    at: Timestamp::from_millis(150),
                    wants: &writer,
                    seq: 1,
                });
            }
            // Held for 8 ms, so the lock is unused for 2 ms.
            let now = at(10 * turn + 8);
            locks.expire(now);
            locks.schedule(now);
            locks.release(request, Position::default(), now);
            locks.schedule(now);
        }
        let before = locks.next_deadline();
        let both = wants(&[("a", Mode::Shared), ("b", Mode::Exclusive)]);
        assert_eq!(acquire(&mut locks, 3, &both, at(30)), Acquired::NotFree, "a part of b is elsewhere");
        let due = locks.next_deadline();
        assert!(due < before, "two milliseconds once more: it is expected with more confidence");
        locks.expire(due);
        locks.schedule(due);
        assert_eq!(locks.take_ops().len(), 1, "the writer elsewhere gets our part");
    }
}
