//! The lock table: a row for each lock that is held, waited for, or was so a moment ago.
//!
//! The table owns the lists that name its rows, each with a flag or a time in the row: the marked locks,
//! whose rules have to be restored; the timers, at which requests may become due; and the idle locks, which
//! are dropped after a while.

use crate::base::bugs::Bug;
use std::ops::{Index, IndexMut, Range};
use std::time::Duration;

use super::idle::IdleLocks;
use super::lock::{Lock, LockIndex};
use super::names::Names;
use super::policies::Policies;
use super::queue::{Class, Order};
use super::request::{Request, RequestIndex, Want};
use super::view::View;
use crate::base::deadlines::Deadlines;
use crate::base::tables::{RowIndex, Rows};
use crate::base::time::Instant;
use crate::base::work;
use geolock_api::names::{LockName, Mode, Position};

/// Maximum number of expired lock timers that one step handles; later steps handle the rest.
const TIMERS_PER_STEP: usize = 256;
/// Maximum number of inserted rows that one step makes up for by dropping twice as many idle ones. The
/// request of one step may insert 10 000.
const MADE_UP_FOR_PER_STEP: usize = 512;
/// Delay until an idle lock that could not be dropped is tried again.
const IDLE_RETRY: Duration = Duration::from_millis(100);

/// The locks that are in use here.
pub(super) struct LockTable {
    rows: Rows<Lock, LockIndex>,
    names: Names,
    marked: Vec<LockIndex>,
    timers: Deadlines<LockIndex>,
    idle: IdleLocks,
    /// The last step dropped some idle locks, so there may be more.
    forgets: bool,
    /// Number of inserted rows that no step has made up for yet.
    made: usize,
    /// Number of checks of one lock for one request.
    #[cfg(test)]
    pub looks: usize,
}

impl LockTable {
    /// `rules`: the number of hold rules.
    pub fn new(hash_seed: u64, rules: usize) -> LockTable {
        LockTable {
            rows: Rows::new(),
            names: Names::new(hash_seed),
            marked: Vec::new(),
            timers: Deadlines::default(),
            idle: IdleLocks::new(rules),
            forgets: false,
            made: 0,
            #[cfg(test)]
            looks: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns an upper bound: every row is below it.
    pub fn end(&self) -> usize {
        self.rows.end()
    }

    pub fn get(&self, index: LockIndex) -> Option<&Lock> {
        self.rows.get(index)
    }

    pub fn get_mut(&mut self, index: LockIndex) -> Option<&mut Lock> {
        self.rows.get_mut(index)
    }

    pub fn iter(&self) -> impl Iterator<Item = (LockIndex, &Lock)> {
        self.rows.iter()
    }

    /// Returns the row of a lock that is in the table.
    pub fn find(&self, name: &LockName) -> Option<LockIndex> {
        self.names.find(self.names.hash(name), name, &self.rows)
    }

    /// Returns the row of a lock, and inserts it if it is absent.
    pub fn find_or_insert(&mut self, name: &LockName, new: impl FnOnce() -> Lock) -> LockIndex {
        let hash = self.names.hash(name);
        match self.names.find(hash, name, &self.rows) {
            Some(index) => index,
            None => self.insert(hash, new()),
        }
    }

    fn insert(&mut self, hash: u32, lock: Lock) -> LockIndex {
        let index = self.rows.insert(lock);
        self.made += 1;
        self.names.insert(hash, index);
        debug_assert_eq!(self.find(&self.rows[index].name), Some(index), "a lock is found by its name");
        index
    }

    /// Marks a lock: its rules have to be restored.
    #[inline]
    pub fn mark(&mut self, index: LockIndex) {
        let lock = &mut self.rows[index];
        if !lock.dirty {
            lock.dirty = true;
            self.marked.push(index);
        }
    }

    /// Marks all locks.
    pub fn mark_all(&mut self) {
        for index in (0..self.end()).map(LockIndex::from_row) {
            if self.rows.get(index).is_some() {
                self.mark(index);
            }
        }
    }

    /// Marks the locks of these rows, and lets their shared waiters be examined.
    pub fn mark_rows(&mut self, rows: Range<usize>) {
        for index in rows.map(LockIndex::from_row) {
            if let Some(lock) = self.rows.get_mut(index) {
                lock.recheck_shared = true;
                self.mark(index);
            }
        }
    }

    /// Takes the lock that was marked last.
    #[inline]
    pub fn pop_marked(&mut self) -> Option<LockIndex> {
        let index = self.marked.pop()?;
        let was_dirty = std::mem::take(&mut self.rows[index].dirty);
        debug_assert!(was_dirty, "a marked lock says so");
        Some(index)
    }

    /// Returns true if no lock is marked.
    #[inline]
    pub fn is_clean(&self) -> bool {
        self.marked.is_empty()
    }

    #[inline]
    pub fn next_deadline(&self) -> Instant {
        self.timers.next_or_never()
    }

    /// Marks the locks whose timers have expired.
    pub fn expire(&mut self, now: Instant) {
        for _ in 0..TIMERS_PER_STEP {
            let Some(index) = self.timers.pop_expired(now) else { break };
            work::count(1);
            let timer = self.rows[index].timer.take();
            assert!(timer.is_some_and(|at| at <= now), "a timer that fires is that of its lock");
            self.mark(index);
        }
    }

    /// Sets the time at which the requests for a lock that are not due are examined again.
    pub fn set_timer(&mut self, index: LockIndex, next: Option<Instant>) {
        let lock = &mut self.rows[index];
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

    /// Inserts a request into the queues of its locks.
    pub fn enqueue(&mut self, request: RequestIndex, row: &Request) {
        work::count(row.wants.len());
        for want in &row.wants {
            self.enqueue_one(*want, request, row);
        }
    }

    /// Inserts a request into the queue of one of its locks.
    pub fn enqueue_one(&mut self, want: Want, request: RequestIndex, row: &Request) {
        debug_assert!(!row.is_held(), "request {} waits only while it holds nothing", row.id);
        self.rows[want.lock].queue.insert(row.class(want.mode), row.order(), request);
    }

    /// Removes a waiting request from the queues of its locks and marks these locks.
    pub fn dequeue(&mut self, row: &Request) {
        work::count(row.wants.len());
        for want in &row.wants {
            self.dequeue_one(*want, row);
        }
    }

    /// Removes a waiting request from the queue of one of its locks and marks this lock.
    pub fn dequeue_one(&mut self, want: Want, row: &Request) {
        let lock = &mut self.rows[want.lock];
        let was_there = lock.queue.remove(row.class(want.mode), row.order());
        assert!(was_there, "request {} waits for lock {} but is not in its queue", row.id, lock.name);
        lock.recheck_shared |= want.mode == Mode::Exclusive;
        self.mark(want.lock);
    }

    /// Inserts an offer, see [`Class::Offer`].
    pub fn put_offer(&mut self, lock: LockIndex, order: Order, request: RequestIndex) {
        self.rows[lock].queue.insert(Class::Offer, order, request);
    }

    /// Removes an offer.
    pub fn take_offer(&mut self, lock: LockIndex, order: Order) {
        let lock = &mut self.rows[lock];
        let was_there = lock.queue.remove(Class::Offer, order);
        assert!(was_there, "lock {} is offered to request {}", lock.name, order.id);
    }

    /// The rule of local grants for one lock: `docs/algorithm/ownership.md#24-local-grants`.
    pub fn is_free_for(
        &mut self,
        want: Want,
        order: Order,
        view: &View,
        policies: &Policies,
        now: Instant,
    ) -> bool {
        #[cfg(test)]
        {
            self.looks += 1;
        }
        let lock = &mut self.rows[want.lock];
        if !view.has_parts(lock, want.mode) || lock.is_held_against(want.mode) {
            return false;
        }
        if lock.queue.is_empty() {
            return true;
        }
        policies.refresh_due(lock, now);
        let first_local = lock.queue.first_local_conflict(want.mode);
        if first_local.is_some_and(|first| first < order) {
            return false;
        }
        if want.mode == Mode::Shared && view.bugs.has(Bug::ReaderOvertakesDueWriter) {
            return true;
        }
        lock.queue.first_due_conflict(want.mode, lock.parts).is_none_or(|first| order < first)
    }

    /// Makes a request a holder of its locks. Returns the position of the journal that its grant depends on.
    #[inline]
    pub fn enter(
        &mut self,
        request: RequestIndex,
        wants: &mut [Want],
        view: &View,
        now: Instant,
    ) -> Position {
        let mut ready = Position::default();
        for (i, want) in wants.iter_mut().enumerate() {
            let lock = &mut self.rows[want.lock];
            assert!(!lock.is_held_against(want.mode), "lock {} is granted in conflict", lock.name);
            assert!(view.has_parts(lock, want.mode), "lock {} is granted without its parts", lock.name);
            want.holder = lock.holders.requests.len() as u32;
            lock.holders.requests.push((request, i as u32));
            lock.holders.mode = Some(want.mode);
            assert!(
                want.mode == Mode::Shared || lock.holders.requests.len() == 1,
                "lock {} has one exclusive holder",
                lock.name
            );
            lock.history.acquired_at.get_or_insert(now);
            ready = ready.max(lock.position);
        }
        ready
    }

    /// Removes a holder of a lock. Returns the holder that took its place, if any, with the index of the lock
    /// among the wants of that one.
    #[inline]
    pub fn leave(
        &mut self,
        want: Want,
        position: Position,
        policies: &Policies,
        now: Instant,
    ) -> Option<(RequestIndex, u32)> {
        let lock: &mut Lock = &mut self.rows[want.lock];
        debug_assert_eq!(lock.holders.mode, Some(want.mode), "lock {} is held as it is released", lock.name);
        lock.holders.requests.swap_remove(want.holder as usize);
        let moved = lock.holders.requests.get(want.holder as usize).copied();
        if lock.holders.requests.is_empty() {
            lock.holders.mode = None;
        }
        lock.position = lock.position.max(position);
        lock.note_release(want.mode, now);
        if !lock.queue.is_empty() {
            self.mark(want.lock);
        } else if !lock.in_idle_list {
            self.note_idle(want.lock, policies, now);
        }
        moved
    }

    /// The exclusive holder of a lock is a shared one from now on. Its waiters are examined: shared requests
    /// up to the first exclusive one may be granted, here and elsewhere.
    pub fn downgrade(&mut self, index: LockIndex, now: Instant) {
        self.rows[index].downgrade(now);
        self.mark(index);
    }

    /// A holder has committed at this position of the journal.
    pub fn note_commit(&mut self, index: LockIndex, position: Position) {
        let lock: &mut Lock = &mut self.rows[index];
        lock.position = lock.position.max(position);
    }

    /// Puts an idle lock into the list of locks that are dropped when they have been idle for a while.
    pub fn note_idle(&mut self, index: LockIndex, policies: &Policies, now: Instant) {
        let lock = &mut self.rows[index];
        if !lock.in_idle_list && lock.is_idle() {
            lock.in_idle_list = true;
            self.idle.push(lock.rule, now + policies.idle_after(lock.rule), index);
        }
    }

    /// Returns true if idle locks may be dropped.
    #[inline]
    pub fn is_idle_due(&self, now: Instant) -> bool {
        self.idle.is_due(now)
    }

    /// Returns true if the next step has more idle locks to drop.
    #[inline]
    pub fn has_idle(&self, now: Instant) -> bool {
        self.forgets && self.idle.is_due(now)
    }

    /// Begins to drop idle locks. Returns how many rows this step may drop: at least `most`, and twice as
    /// many as were inserted meanwhile, so that no load inserts rows faster than they are dropped. Later
    /// steps make up for rows beyond [`MADE_UP_FOR_PER_STEP`].
    #[inline]
    pub fn begin_to_forget(&mut self, most: usize) -> usize {
        self.forgets = false;
        let made = self.made.min(MADE_UP_FOR_PER_STEP);
        self.made -= made;
        most.max(2 * made)
    }

    /// Drops at most `most` locks that have been idle for so long that nothing depends on their usage any
    /// more. `unused`: gets each with the time at which it stopped being used.
    pub fn forget_idle(
        &mut self,
        most: usize,
        durable: Position,
        policies: &Policies,
        now: Instant,
        mut unused: impl FnMut(&LockName, Instant),
    ) {
        for _ in 0..most {
            let Some(index) = self.idle.pop_due(now) else { break };
            let lock = &mut self.rows[index];
            let was_listed = std::mem::take(&mut lock.in_idle_list);
            assert!(was_listed, "lock {} is in the list of idle locks once", lock.name);
            if !lock.is_idle() {
                continue;
            }
            let idle_end =
                lock.history.last_release.unwrap_or(Instant::ZERO) + policies.idle_after(lock.rule);
            if idle_end > now || lock.position > durable || lock.dirty {
                lock.in_idle_list = true;
                self.idle.push(lock.rule, (now + IDLE_RETRY).max(idle_end), index);
                continue;
            }
            let lock = self.remove(index);
            self.forgets = true;
            unused(&lock.name, lock.history.last_release.unwrap_or(now));
        }
    }

    /// Drops all idle locks of the list, whenever they became idle, and takes all marks away. `unused`: gets
    /// each lock that is dropped.
    pub fn forget_all_idle(&mut self, mut unused: impl FnMut(&LockName)) {
        while self.pop_marked().is_some() {}
        while let Some(index) = self.idle.pop_due(Instant::FAR_FUTURE) {
            self.rows[index].in_idle_list = false;
            if self.rows[index].is_idle() {
                unused(&self.remove(index).name);
            }
        }
    }

    fn remove(&mut self, index: LockIndex) -> Lock {
        let lock = self.rows.remove(index);
        if let Some(timer) = lock.timer {
            self.timers.remove(timer, index);
        }
        self.names.remove(self.names.hash(&lock.name), index);
        debug_assert!(self.find(&lock.name).is_none(), "lock {} is forgotten", lock.name);
        lock
    }

    /// Releases some memory if there are no rows and there were many. Returns true if there is more to
    /// release.
    pub fn give_back(&mut self) -> bool {
        self.rows.give_back()
    }
}

/// Puts wants into the order of the names of their locks.
pub(super) fn sort_by_name(locks: &LockTable, wants: &mut [Want]) {
    wants.sort_by(|a, b| locks[a.lock].name.cmp(&locks[b.lock].name));
}

impl Index<LockIndex> for LockTable {
    type Output = Lock;

    #[inline]
    fn index(&self, index: LockIndex) -> &Lock {
        &self.rows[index]
    }
}

impl IndexMut<LockIndex> for LockTable {
    #[inline]
    fn index_mut(&mut self, index: LockIndex) -> &mut Lock {
        &mut self.rows[index]
    }
}
