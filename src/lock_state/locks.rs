//! All locks of a datacenter: the owners of their parts, their holders here, and their waiters from all
//! datacenters.
//!
//! A change marks the locks that it touches. [`Locks::schedule`] then restores the rules of
//! `docs/algorithm.md#5-ordering` on each marked lock: it grants requests, transfers parts for due requests,
//! and publishes requests. The cost of a step depends on the locks that it touches, not on the number of
//! waiting requests elsewhere.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::distances::Distances;
use super::hold_policy::{HoldRule, HoldRules};
use super::hot_locks::HotLocks;
use super::id_index::IdIndex;
use super::idle::IdleLocks;
use super::idle_return::IdleReturn;
use super::lock::{Lock, LockIndex};
use super::names::Names;
use super::readers::Reader;
use super::request::{Local, Origin, Publication, Request, RequestIndex, RequestRow, State};
use super::sweep::Sweeps;
use crate::causal_log::Op;
use crate::crdt::Ownership;
use crate::deadlines::Deadlines;
use crate::names::{DcId, DcSet, LockName, Mode, Position, RequestId};
use crate::tables::Rows;
use crate::time::Instant;
use crate::work;

/// The actions that the phase allows at this moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Permissions {
    /// Grant, and transfer parts. False in the grace period.
    pub grant: bool,
    /// Make entries.
    pub append: bool,
}

impl Permissions {
    /// Returns true if the server grants from the parts that are here, and no part can arrive or leave.
    pub fn is_alone(self) -> bool {
        self.grant && !self.append
    }
}

/// Maximum of expired lock timers that one step handles; later steps handle the rest.
const TIMERS_PER_STEP: usize = 256;
/// Delay until an idle lock that could not be dropped is tried again.
const IDLE_RETRY: Duration = Duration::from_millis(100);

/// The lock table, the request table and the ownership map of one datacenter.
pub(crate) struct Locks {
    pub(super) me: DcId,
    pub(super) members: DcSet,
    pub(super) rules: HoldRules,
    pub(super) ownership: Ownership,
    /// [`Ownership::sum`] of `ownership`, kept up to date.
    pub(super) ownership_sum: u128,
    pub(super) names: Names,
    pub(super) locks: Rows<Lock, LockIndex>,
    pub(super) requests: Rows<Request, RequestIndex>,
    pub(super) id_index: IdIndex,
    pub(super) unreachable: DcSet,
    pub(super) distances: Distances,
    pub(super) permissions: Permissions,
    pub(super) dirty: Vec<LockIndex>,
    pub(super) sweeps: Sweeps,
    pub(super) timers: Deadlines<LockIndex>,
    idle: IdleLocks,
    /// The last step dropped some idle locks, so there may be more.
    forgets: bool,
    /// The lock table or the request table became empty: its memory is being released.
    gives_back: bool,
    /// Number of lock rows inserted since idle locks were last dropped.
    made: usize,
    pub(super) idle_return: IdleReturn,
    /// Published requests, each with the sequence number of the entry that published it. Own ones that no
    /// client waits for any more are in `orphans` instead.
    pub(super) published: BTreeMap<RequestId, (RequestIndex, u64)>,
    pub(super) orphans: BTreeMap<RequestId, RequestRow>,
    pub(super) readers: Vec<Reader>,
    pub(super) counts: LockCounts,
    pub(super) hot_locks: HotLocks,
    pub(super) output: LockOutput,
    #[cfg(test)]
    pub mutation: Option<crate::sim::Mutation>,
    /// Number of checks of one lock for one request.
    #[cfg(test)]
    pub looks: usize,
}

/// Gauges and counters, see [`crate::replica::call::Counts`].
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct LockCounts {
    pub held: u64,
    pub waiting: u64,
    pub published: u64,
    pub remote: u64,
    pub parked: u64,
    /// Number of locks that local requests want, not counting the first lock of each.
    pub further: u64,
    pub transfers_sent: u64,
    pub transfers_received: u64,
    /// Locks whose parts were returned to their homes because they were idle.
    pub idle_returns: u64,
    pub hand_offs_sent: u64,
    pub hand_offs_received: u64,
}

/// The results of a step: operations for one entry, and granted requests in order.
#[derive(Default)]
pub(crate) struct LockOutput {
    pub withdraws: Vec<Op>,
    /// By receiver; the parts of one lock are together.
    pub transfers: Vec<(DcId, crate::causal_log::LockParts)>,
    pub requests: Vec<RequestIndex>,
    pub granted: VecDeque<RequestIndex>,
}

impl LockOutput {
    /// Returns true if there are no operations to write.
    pub fn is_empty(&self) -> bool {
        self.withdraws.is_empty() && self.transfers.is_empty() && self.requests.is_empty()
    }
}

impl Locks {
    pub fn new(me: DcId, members: DcSet, rules: Vec<HoldRule>, hash_seed: u64) -> Locks {
        assert!(members.contains(me), "{me} is a member of its own cluster {members:?}");
        let rules = HoldRules::new(rules);
        let idle = IdleLocks::new(rules.len());
        Locks {
            me,
            members,
            rules,
            ownership: Ownership::new(hash_seed),
            ownership_sum: 0,
            names: Names::new(hash_seed),
            locks: Rows::new(),
            requests: Rows::new(),
            id_index: IdIndex::new(me),
            unreachable: DcSet::EMPTY,
            distances: Distances::unknown(),
            permissions: Permissions { grant: false, append: false },
            dirty: Vec::new(),
            sweeps: Sweeps::default(),
            timers: Deadlines::default(),
            idle,
            forgets: false,
            gives_back: false,
            made: 0,
            idle_return: IdleReturn::default(),
            published: BTreeMap::new(),
            orphans: BTreeMap::new(),
            readers: Vec::new(),
            counts: LockCounts::default(),
            hot_locks: HotLocks::new(hash_seed),
            output: LockOutput::default(),
            #[cfg(test)]
            mutation: None,
            #[cfg(test)]
            looks: 0,
        }
    }

    pub fn ownership(&self) -> &Ownership {
        &self.ownership
    }

    /// [`Ownership::sum`] of the ownership map.
    pub fn ownership_sum(&self) -> u128 {
        self.ownership_sum
    }

    pub fn counts(&self) -> LockCounts {
        self.counts
    }

    /// Number of rows in the lock table.
    pub fn active(&self) -> usize {
        self.locks.len()
    }

    pub fn get(&self, request: RequestIndex) -> &Request {
        &self.requests[request]
    }

    /// Returns the row of a request that is known here.
    #[inline]
    pub fn find(&self, id: RequestId) -> Option<RequestIndex> {
        self.id_index.get(id, |request| self.get(request).id)
    }

    #[inline]
    pub fn next_deadline(&self) -> Instant {
        self.timers.next_or_never()
    }

    /// Marks the locks whose timers have expired, and decays the weights of hot locks when a half-life is
    /// over.
    pub fn expire(&mut self, now: Instant) {
        for _ in 0..TIMERS_PER_STEP {
            let Some(index) = self.timers.pop_expired(now) else { break };
            work::count(1);
            self.lock_mut(index).timer = None;
            self.mark(index);
        }
        if self.hot_locks.advance(now) {
            let (names, locks) = (&self.names, &self.locks);
            let find = |name: &[u8]| names.find(names.hash(name), name, locks);
            let is_wanted = |index: LockIndex| !locks[index].queue.is_empty();
            self.hot_locks.halve(|name| find(name.as_bytes()).is_some_and(is_wanted));
        }
    }

    /// Sets the permissions and marks all locks if they changed. Returns true if they changed.
    pub fn permit(&mut self, permissions: Permissions) -> bool {
        if self.permissions == permissions {
            return false;
        }
        let was_alone = self.permissions.is_alone();
        self.permissions = permissions;
        if permissions.append {
            self.withdraw_orphans();
        }
        if was_alone != permissions.is_alone() {
            self.repark_all();
        }
        self.mark_all();
        true
    }

    /// See [`Permissions::is_alone`].
    pub fn is_alone(&self) -> bool {
        self.permissions.is_alone()
    }

    /// Sets the distance to `dc`, one way. Timers that were set with another distance are recomputed when
    /// they expire.
    pub fn set_distance(&mut self, dc: DcId, distance: Duration) {
        self.distances.set(dc, distance);
    }

    /// Returns the next granted request that the caller has not taken yet, in order.
    #[inline]
    pub fn next_granted(&mut self) -> Option<RequestIndex> {
        self.output.granted.pop_front()
    }

    /// Returns the wants of a request, as the request gave them.
    pub fn wants(&self, request: RequestIndex) -> impl Iterator<Item = (&LockName, Mode)> {
        self.get(request).wants.iter().map(|want| (&self.lock(want.lock).name, want.mode))
    }

    /// Returns true if a local holder uses this part: any part if the lock is held exclusively, only the own
    /// part of this datacenter if it is held shared.
    pub fn is_held_by(&self, name: &LockName, part: DcId) -> bool {
        let Some(index) = self.find_lock(name.as_bytes()) else { return false };
        match self.lock(index).holders.mode {
            Some(Mode::Exclusive) => true,
            Some(Mode::Shared) => part == self.me,
            None => false,
        }
    }

    pub(super) fn lock(&self, index: LockIndex) -> &Lock {
        &self.locks[index]
    }

    pub(super) fn lock_mut(&mut self, index: LockIndex) -> &mut Lock {
        &mut self.locks[index]
    }

    pub(super) fn request_mut(&mut self, request: RequestIndex) -> &mut Request {
        &mut self.requests[request]
    }

    pub(super) fn local_mut(&mut self, request: RequestIndex) -> &mut Local {
        self.request_mut(request).local_mut().expect("only local requests are granted, released or published")
    }

    /// Returns the row of a lock that is in the lock table.
    pub(super) fn find_lock(&self, name: &[u8]) -> Option<LockIndex> {
        self.names.find(self.names.hash(name), name, &self.locks)
    }

    /// Returns the row of a lock, and inserts it if it is absent.
    pub(super) fn activate(&mut self, name: &LockName) -> LockIndex {
        let hash = self.names.hash(name.as_bytes());
        match self.names.find(hash, name.as_bytes(), &self.locks) {
            Some(index) => index,
            None => self.insert_lock(name, hash),
        }
    }

    fn insert_lock(&mut self, name: &LockName, hash: u32) -> LockIndex {
        let parts = self.ownership.parts_of(name, self.me, self.members);
        let lock = Lock::new(name.clone(), self.rules.find(name), parts);
        let index = self.locks.insert(lock);
        self.made += 1;
        self.names.insert(hash, index);
        index
    }

    pub(super) fn mark(&mut self, index: LockIndex) {
        let lock = &mut self.locks[index];
        if !lock.dirty {
            lock.dirty = true;
            self.dirty.push(index);
        }
    }

    /// Returns true if, as seen here, `request` needs a datacenter that is away, or an entry that cannot be
    /// made.
    pub(super) fn should_park(&self, request: &Request) -> bool {
        if self.permissions.is_alone()
            && request.local().is_some_and(|local| local.publication.is_published())
        {
            return true;
        }
        if self.unreachable.is_empty() {
            return false;
        }
        let needs = |want: &super::request::Want| match want.mode {
            Mode::Shared => DcSet::only(request.dc()),
            Mode::Exclusive => self.members,
        };
        let is_away = self.unreachable.contains(request.dc());
        #[cfg(test)]
        if is_away && self.mutated(crate::sim::Mutation::PartsToUnreachable) {
            return false;
        }
        is_away
            || request.wants.iter().any(|want| {
                let name = &self.lock(want.lock).name;
                needs(want).iter().any(|part| self.unreachable.contains(self.ownership.owner(name, part)))
            })
    }

    /// Inserts a request into the queues of its locks.
    pub(super) fn enqueue(&mut self, request: RequestIndex) {
        let row = &self.requests[request];
        let order = row.order();
        for want in &row.wants {
            let lock = &mut self.locks[want.lock];
            lock.queue.insert(row.class(want.mode), order, request);
        }
    }

    /// Removes a waiting request from the queues of its locks and marks these locks.
    pub(super) fn dequeue(&mut self, request: RequestIndex) {
        let row = &self.requests[request];
        let order = row.order();
        for want in &row.wants {
            let lock = &mut self.locks[want.lock];
            let was_there = lock.queue.remove(row.class(want.mode), order);
            assert!(was_there, "request {} waits for lock {} but is not in its queue", row.id, lock.name);
            lock.recheck_shared |= want.mode == Mode::Exclusive;
            if !lock.dirty {
                lock.dirty = true;
                self.dirty.push(want.lock);
            }
        }
    }

    /// Drops a request that is in no queue and holds nothing.
    pub(super) fn forget(&mut self, request: RequestIndex) {
        let row = self.requests.remove(request);
        self.note_forgotten(request, &row);
    }

    /// Updates the indexes and counters after the row of this request was removed.
    pub(super) fn note_forgotten(&mut self, request: RequestIndex, row: &Request) {
        self.id_index.remove(row.id, request);
        self.gives_back |= self.requests.is_empty();
        if row.parked {
            self.counts.parked -= 1;
        }
        self.counts.further -= row.further();
    }

    pub(super) fn insert_row(&mut self, row: Request) -> RequestIndex {
        let id = row.id;
        self.counts.further += row.further();
        if row.parked {
            self.counts.parked += 1;
        }
        let index = self.requests.insert(row);
        self.id_index.insert(id, index);
        index
    }

    /// Withdraws a published request. The withdrawal is in the same step as the event that ends the wait, so
    /// it is in the log before any later transfer of the same parts.
    pub(super) fn withdraw(&mut self, request: RequestIndex) {
        let row = &mut self.requests[request];
        let id = row.id;
        let local = row.local_mut().expect("only own requests are withdrawn");
        match local.publication {
            Publication::Unpublished | Publication::Withdrawn => return,
            Publication::InThisStep => {
                local.publication = Publication::Unpublished;
                self.output.requests.retain(|other| *other != request);
            }
            Publication::Published { seq } => {
                local.publication = Publication::Withdrawn;
                self.note_before(id);
                self.published.remove(&id);
                if self.permissions.append {
                    self.output.withdraws.push(Op::Withdraw { id });
                } else {
                    self.orphan(request, seq);
                }
            }
        }
        self.counts.published -= 1;
    }

    /// Puts an idle lock into the list of locks that are dropped when they have been idle for a while.
    pub(super) fn note_idle(&mut self, index: LockIndex, now: Instant) {
        let lock = &mut self.locks[index];
        if !lock.in_idle_list && lock.is_idle() {
            lock.in_idle_list = true;
            let idle_after = self.rules.get(lock.rule).policy.idle_after();
            self.idle.push(lock.rule, now + idle_after, index);
        }
    }

    /// Drops locks that have been idle for so long that nothing depends on their usage any more. Drops at
    /// most `most` of them, or twice as many as were inserted meanwhile, so that no load inserts rows faster
    /// than they are dropped.
    #[inline]
    pub fn forget_idle(&mut self, now: Instant, durable: Position, most: usize) {
        let made = std::mem::take(&mut self.made);
        self.forgets = false;
        if self.idle.is_due(now) {
            self.forget_some(now, durable, most.max(2 * made));
        }
        if self.gives_back {
            self.gives_back = self.locks.give_back() | self.requests.give_back();
        }
    }

    /// Returns true if the next step has more idle locks to drop or more memory to release.
    #[inline]
    pub fn has_idle(&self, now: Instant) -> bool {
        self.gives_back || (self.forgets && self.idle.is_due(now))
    }

    fn forget_some(&mut self, now: Instant, durable: Position, most: usize) {
        for _ in 0..most {
            let Some(index) = self.idle.pop_due(now) else { break };
            let rule = self.lock(index).rule;
            let idle_after = self.rules.get(rule).policy.idle_after();
            let lock = self.lock_mut(index);
            lock.in_idle_list = false;
            if !lock.is_idle() {
                continue;
            }
            let idle_since = lock.last_release.unwrap_or(Instant::ZERO);
            if idle_since + idle_after > now || lock.position > durable || lock.dirty {
                lock.in_idle_list = true;
                self.idle.push(rule, (now + IDLE_RETRY).max(idle_since + idle_after), index);
                continue;
            }
            let lock = self.locks.remove(index);
            self.forgets = true;
            if let Some(timer) = lock.timer {
                self.timers.remove(timer, index);
            }
            self.names.remove(self.names.hash(lock.name.as_bytes()), index);
            self.note_unused(&lock.name, lock.last_release.unwrap_or(now));
        }
        self.gives_back |= self.locks.is_empty();
    }

    #[cfg(test)]
    pub(super) fn mutated(&self, mutation: crate::sim::Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// Returns the state of a local request, or `None` for a remote one.
    pub fn state(&self, request: RequestIndex) -> Option<State> {
        self.get(request).local().map(|local| local.state)
    }

    /// Returns true if the request is of a client of this datacenter. Other members know it only if it is
    /// published.
    pub fn is_local(&self, request: RequestIndex) -> bool {
        matches!(self.get(request).origin, Origin::Local(_))
    }
}
