//! All locks of a datacenter: the owners of their parts, their holders here, and their waiters from all
//! datacenters.
//!
//! A change marks the locks that it touches. [`Locks::schedule`] then restores the rules of
//! `docs/algorithm/ownership.md#2-ordering` on each marked lock: it grants requests, transfers parts for due
//! requests, and publishes requests. The cost of a step depends on the locks that it touches, not on the
//! number of waiting requests elsewhere.
//!
//! The tables know what there is, and the schedule decides what follows from a change. `Locks` owns both and
//! has the order of a step: timers, sweeps, consequences, rows that are dropped. What an event changes is
//! decided by the sub-machine for its kind, which borrows the parts that it may change: [`LocalRequests`],
//! [`LogOperations`], [`MemberChanges`], and [`Replay`] at a start.

use crate::base::bugs::{Bug, Bugs};
use std::time::Duration;

use super::acquire::LocalRequests;
use super::apply::LogOperations;
use super::enough::EnoughTable;
use super::hold_policy::HoldRule;
use super::hot_locks::HotLocks;
use super::idle_return::{IdleReturn, MAX_AWAY_LOCKS, second};
use super::inspect::Inspect;
use super::lock_table::LockTable;
use super::member_changes::MemberChanges;
use super::owners::Owners;
use super::policies::Policies;
use super::replay::Replay;
use super::request::RequestIndex;
use super::request_table::{Reading, RequestTable};
use super::requests::Requests;
use super::schedule::{MoveCounts, Schedule};
use super::tables::Tables;
use super::use_walk::MOST_UNHELD;
use super::view::{Permissions, View};
use crate::base::time::Instant;
use crate::causal_log::Op;
use geolock_api::names::{DcId, DcSet, LockName, Position};

/// The locks and requests of one datacenter.
pub(crate) struct Locks {
    pub(super) tables: Tables,
    pub(super) schedule: Schedule,
    idle_return: IdleReturn,
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
            enough: EnoughTable::default(),
            hot_locks: HotLocks::new(hash_seed),
            policies,
            homed_since: Position::default(),
            members_since: Position::default(),
            gives_back: false,
        };
        let (schedule, idle_return) = (Schedule::default(), IdleReturn::new(MAX_AWAY_LOCKS));
        Locks { tables, schedule, idle_return }
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

    /// Returns the cluster as this datacenter sees it.
    #[inline]
    pub fn view(&self) -> &View {
        &self.tables.view
    }

    /// Returns the requests that are known here.
    #[inline]
    pub fn requests(&self) -> &Requests {
        &self.tables.requests
    }

    /// Returns the owners of all parts.
    pub fn owners(&self) -> &Owners {
        &self.tables.owners
    }

    /// Returns the reader of the tables.
    pub fn inspect(&self) -> Inspect<'_> {
        Inspect(&self.tables)
    }

    /// Returns the readers of the ownership map and the request table.
    pub fn reading(&mut self) -> Reading<'_> {
        Reading { is_in_log: self.schedule.is_in_log(), tables: &mut self.tables }
    }

    /// Lends what a call of a client changes.
    #[inline]
    pub fn local_requests(&mut self) -> LocalRequests<'_> {
        LocalRequests { tables: &mut self.tables, schedule: &mut self.schedule }
    }

    /// Lends what an operation of the log changes.
    pub fn log_operations(&mut self) -> LogOperations<'_> {
        LogOperations { tables: &mut self.tables, schedule: &mut self.schedule }
    }

    /// Lends what a change of the members changes.
    pub fn member_changes(&mut self) -> MemberChanges<'_> {
        let Locks { tables, schedule, idle_return } = self;
        MemberChanges { tables, schedule, idle_return }
    }

    /// Lends what is read from the disk at a start.
    pub fn replay(&mut self) -> Replay<'_> {
        Replay(&mut self.tables)
    }

    /// Returns the numbers of moves so far.
    pub fn move_counts(&self) -> MoveCounts {
        self.schedule.counts()
    }

    #[inline]
    pub fn next_deadline(&self) -> Instant {
        self.tables.locks.next_deadline().min(self.tables.enough.next_deadline())
    }

    /// Marks the locks whose timers have expired, and decays the weights of hot locks when a half-life is
    /// over.
    pub fn expire(&mut self, now: Instant) {
        if self.tables.enough.next_deadline() <= now {
            self.schedule.expire_enough(&mut self.tables, now);
        }
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
            self.schedule.withdraw_abandoned(&mut self.tables);
        }
        if before.is_alone() != permissions.is_alone() {
            self.schedule.repark_all();
        }
        self.schedule.mark_all(&mut self.tables);
        true
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

    /// Returns true if the rules are restored on all locks that were marked, or on as many as one step may
    /// restore them on.
    pub fn is_scheduled(&self) -> bool {
        self.tables.locks.is_clean() || !self.schedule.may_restore()
    }

    /// Grants, transfers and publishes until nothing more follows from the changes, or until this step has
    /// done its share; later steps do the rest. Returns true if there are grants, requests to publish again
    /// or operations that the caller has not taken.
    #[inline]
    pub fn schedule(&mut self, now: Instant) -> bool {
        if !self.tables.locks.is_clean() || self.tables.enough.has_stranded() {
            self.schedule.run(&mut self.tables, now);
        }
        self.schedule.has_results() || self.tables.enough.has_to_ask_again()
    }

    /// Returns the next granted request that the caller has not taken yet, in order.
    #[inline]
    pub fn next_granted(&mut self) -> Option<RequestIndex> {
        self.schedule.next_granted()
    }

    /// Returns the next request that is to be published again, under another id
    /// ([`LocalRequests::ask_again`]), if this step may publish one more.
    #[inline]
    pub fn next_to_ask_again(&mut self) -> Option<RequestIndex> {
        self.tables.enough.next_to_ask_again()
    }

    /// Takes the operations of a step, in the order of an entry: withdrawals, transfers, requests. Until they
    /// are in the log, neither the ownership map nor the request table may be shown outside.
    #[inline]
    pub fn take_ops(&mut self) -> Vec<Op> {
        if self.schedule.is_in_log() { Vec::new() } else { self.schedule.take_ops(&self.tables) }
    }

    /// A fault, as by a bug or by broken memory: parts move without an entry.
    #[cfg(test)]
    pub fn corrupt_ownership(&mut self, to: DcId, moved: &crate::causal_log::LockParts) {
        self.tables.owners.move_parts(to, moved);
    }

    /// Begins a round of idle returns; the following steps examine its rows.
    pub fn begin_idle_return(&mut self, now: Instant) {
        self.idle_return.begin(&self.tables, now);
    }

    /// Returns true if the next step has more work of earlier steps to do.
    #[inline]
    pub fn has_work(&self, now: Instant) -> bool {
        self.schedule.is_sweeping()
            || !self.tables.locks.is_clean()
            || self.tables.enough.has_work()
            || self.idle_return.is_running()
            || self.tables.gives_back
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
    /// `most` of them, unless more were inserted meanwhile. While a member joins, those that were used since
    /// stay, up to a bound: so its part of them does not go to that member, which does not serve yet.
    #[inline]
    pub fn forget_idle(&mut self, now: Instant, durable: Position, most: usize) {
        let Tables { policies, owners, locks, requests, gives_back, view, .. } = &mut self.tables;
        let most = locks.begin_to_forget(most);
        let is_joining = !owners.sponsors().is_empty() && !view.bugs.has(Bug::UseForgotten);
        if locks.is_idle_due(now) && !(is_joining && locks.len() <= MOST_UNHELD) {
            let unused = |name: &LockName, since| owners.note_used(name, second(since));
            locks.forget_idle(most, durable, policies, now, unused);
            *gives_back |= locks.is_empty();
        }
        if *gives_back {
            *gives_back = locks.give_back() | requests.give_back();
        }
    }
}
