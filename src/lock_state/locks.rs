//! All locks of a datacenter: the owners of their parts, their holders here, and their waiters from all
//! datacenters.
//!
//! A change marks the locks that it touches. [`Locks::schedule`] then restores the rules of
//! `docs/algorithm.md#5-ordering` on each marked lock: it grants requests, transfers parts for due requests,
//! and publishes requests. The cost of a step depends on the locks that it touches, not on the number of
//! waiting requests elsewhere.
//!
//! `Locks` decides what an event changes. The tables know what there is, and the schedule decides what
//! follows from a change; it is given the tables.

use crate::base::bugs::Bugs;
use std::time::Duration;

use super::hold_policy::HoldRule;
use super::hot_locks::HotLocks;
use super::idle_return::{IdleReturn, MAX_AWAY_LOCKS};
use super::inspect::Inspect;
use super::lock_table::LockTable;
use super::owners::Owners;
use super::policies::Policies;
use super::request::{Request, RequestIndex};
use super::request_table::{Reading, RequestTable};
use super::requests::{RequestCounts, Requests};
use super::schedule::{MoveCounts, Schedule};
use super::tables::Tables;
use super::view::{Permissions, View};
use crate::base::time::Instant;
use crate::causal_log::Op;
use crate::crdt::Ownership;
use geolock_api::names::{DcId, DcSet, LockName, Mode, Position, RequestId};

/// The locks and requests of one datacenter.
pub(crate) struct Locks {
    pub(super) tables: Tables,
    pub(super) schedule: Schedule,
    idle_return: IdleReturn,
    /// The lock table or the table of requests became empty: its memory is being released.
    pub(super) gives_back: bool,
}

impl Locks {
    pub fn new(me: DcId, members: DcSet, rules: Vec<HoldRule>, hash_seed: u64) -> Locks {
        let policies = Policies::new(rules);
        let tables = Tables {
            view: View::new(me, members),
            owners: Owners::new(me, members, hash_seed),
            locks: LockTable::new(hash_seed, policies.len()),
            requests: Requests::new(me),
            request_table: RequestTable::default(),
            hot_locks: HotLocks::new(hash_seed),
            policies,
            homed_since: Position::default(),
            members_since: Position::default(),
        };
        let (schedule, idle_return) = (Schedule::default(), IdleReturn::new(MAX_AWAY_LOCKS));
        Locks { tables, schedule, idle_return, gives_back: false }
    }

    /// The same with another limit of locks with foreign parts here, see
    /// [`crate::replica::LocalConfig::max_away_locks`].
    pub fn with_max_away(mut self, max_away: usize) -> Locks {
        self.idle_return = IdleReturn::new(max_away);
        self
    }

    /// The same with a deliberate bug, in tests.
    pub fn with_bugs(mut self, bugs: Bugs) -> Locks {
        self.tables.view.bugs = bugs;
        self
    }

    /// The record at this position of the journal allows homed locks: their grants depend on it.
    pub fn set_homed_since(&mut self, position: Position) {
        self.tables.homed_since = position;
    }

    /// Returns the owners of all parts.
    pub fn owners(&self) -> &Owners {
        &self.tables.owners
    }

    /// Returns a view for descriptions and listings.
    pub fn inspect(&self) -> Inspect<'_> {
        Inspect(&self.tables)
    }

    /// Returns the readers of the ownership map and the request table.
    pub fn reading(&mut self) -> Reading<'_> {
        Reading { is_in_log: self.schedule.is_in_log(), tables: &mut self.tables }
    }

    /// Returns the numbers of requests now.
    #[inline]
    pub fn request_counts(&self) -> RequestCounts {
        self.tables.requests.counts()
    }

    /// Returns the numbers of moves so far.
    pub fn move_counts(&self) -> MoveCounts {
        self.schedule.counts()
    }

    #[inline]
    pub fn get(&self, request: RequestIndex) -> &Request {
        &self.tables.requests[request]
    }

    /// Returns the row of a request that is known here.
    #[inline]
    pub fn find(&self, id: RequestId) -> Option<RequestIndex> {
        self.tables.requests.find(id)
    }

    /// Returns the wants of a request, as the request gave them.
    pub fn wants(&self, request: RequestIndex) -> impl Iterator<Item = (&LockName, Mode)> {
        self.get(request).wants.iter().map(|want| (&self.tables.locks[want.lock].name, want.mode))
    }

    #[inline]
    pub fn next_deadline(&self) -> Instant {
        self.tables.locks.next_deadline()
    }

    /// Marks the locks whose timers have expired, and decays the weights of hot locks when a half-life is
    /// over.
    pub fn expire(&mut self, now: Instant) {
        let Tables { locks, hot_locks, .. } = &mut self.tables;
        locks.expire(now);
        if hot_locks.advance(now) {
            let find = |name: &LockName| locks.find(name);
            hot_locks.halve(|name| find(name).is_some_and(|index| !locks[index].queue.is_empty()));
        }
    }

    /// Sets the permissions and marks all locks if they changed. Returns true if they changed.
    pub fn permit(&mut self, permissions: Permissions) -> bool {
        let before = std::mem::replace(&mut self.tables.view.permissions, permissions);
        if before == permissions {
            return false;
        }
        if permissions.append {
            self.schedule.withdraw_orphans(&mut self.tables);
        }
        if before.is_alone() != permissions.is_alone() {
            self.schedule.repark_all();
        }
        self.schedule.mark_all(&mut self.tables);
        true
    }

    /// See [`Permissions::is_alone`].
    pub fn is_alone(&self) -> bool {
        self.tables.view.permissions.is_alone()
    }

    /// Sets the distance to `dc`, one way.
    pub fn set_distance(&mut self, dc: DcId, distance: Duration) {
        self.tables.policies.set_distance(dc, distance);
    }

    /// Sets the datacenters that are away. All requests are examined again, some of them in each of the next
    /// steps.
    pub fn set_unreachable(&mut self, away: DcSet) {
        if away != self.tables.view.away {
            self.tables.view.away = away;
            self.schedule.repark_all();
        }
    }

    /// Returns true if no lock was marked since the rules were last restored.
    pub fn is_scheduled(&self) -> bool {
        self.tables.locks.is_clean()
    }

    /// Grants, transfers and publishes until nothing more follows from the changes.
    #[inline]
    pub fn schedule(&mut self, now: Instant) {
        self.schedule.run(&mut self.tables, now);
    }

    /// Returns the next granted request that the caller has not taken yet, in order.
    #[inline]
    pub fn next_granted(&mut self) -> Option<RequestIndex> {
        self.schedule.next_granted()
    }

    /// Takes the operations of a step, in the order of an entry: withdrawals, transfers, requests. Until they
    /// are in the log, neither the ownership map nor the request table may be shown outside.
    #[inline]
    pub fn take_ops(&mut self) -> Vec<Op> {
        if self.schedule.is_in_log() { Vec::new() } else { self.schedule.take_ops(&self.tables) }
    }

    /// Sets the ownership map from a checkpoint, before anything is known of any lock.
    pub fn restore_ownership(&mut self, ownership: Ownership) {
        assert!(self.tables.locks.is_empty(), "ownership is restored before anything else");
        self.tables.owners.replace(ownership);
    }

    /// A fault, as by a bug or by broken memory: parts move without an entry.
    #[cfg(test)]
    pub fn corrupt_ownership(&mut self, to: DcId, moved: &crate::causal_log::LockParts) {
        self.tables.owners.move_parts(to, moved);
    }

    /// This datacenter leaves: all foreign parts are returned as soon as they are not in use.
    pub(super) fn return_all_idle(&mut self) {
        self.idle_return.keep_none();
    }

    /// Some rows of the ownership map may say nothing any more: the next rounds drop them.
    pub(super) fn scan_rows(&mut self) {
        self.idle_return.scan_all(&self.tables);
    }

    /// Drops the locks that became idle with the last entry, which was read from the journal. Otherwise a
    /// restart would keep a row for every lock that was in use since the last checkpoint.
    pub fn forget_replayed(&mut self, now: Instant) {
        let Tables { owners, locks, .. } = &mut self.tables;
        locks.forget_all_idle(|name| owners.note_used(name, super::idle_return::second(now)));
    }

    /// All that is durable was read: from now on the rules hold for every lock.
    pub fn end_replay(&mut self) {
        self.tables.locks.mark_all();
    }

    /// Begins a round of idle returns; the following steps examine its rows.
    pub fn begin_idle_return(&mut self, now: Instant) {
        self.idle_return.begin(&self.tables, now);
    }

    /// Returns true if the next step has more work of earlier steps to do.
    #[inline]
    pub fn has_work(&self, now: Instant) -> bool {
        self.schedule.is_sweeping()
            || self.idle_return.is_running()
            || self.gives_back
            || self.tables.locks.has_idle(now)
    }

    /// Returns true while requests are examined again, some in each step.
    pub fn is_examining(&self) -> bool {
        self.schedule.is_sweeping()
    }

    /// Continues the sweeps that earlier steps began.
    #[inline]
    pub fn sweep(&mut self) {
        self.schedule.sweep(&mut self.tables);
    }

    /// Does a part of a round of idle returns.
    #[inline]
    pub fn return_idle(&mut self, now: Instant) {
        if self.idle_return.is_running() {
            let schedule = &mut self.schedule;
            let give = |tables: &mut Tables, name: &LockName, parts, cause| {
                schedule.return_home(tables, name, parts, cause);
            };
            self.idle_return.run(&mut self.tables, now, give);
        }
    }

    /// Drops locks that have been idle for so long that nothing depends on their usage any more: at most
    /// `most` of them, unless more were inserted meanwhile.
    #[inline]
    pub fn forget_idle(&mut self, now: Instant, durable: Position, most: usize) {
        let Tables { policies, owners, locks, requests, .. } = &mut self.tables;
        let most = locks.begin_to_forget(most);
        if locks.is_idle_due(now) {
            let unused = |name: &LockName, since| owners.note_used(name, super::idle_return::second(since));
            locks.forget_idle(most, durable, policies, now, unused);
            self.gives_back |= locks.is_empty();
        }
        if self.gives_back {
            self.gives_back = locks.give_back() | requests.give_back();
        }
    }
}
