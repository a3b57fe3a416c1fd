//! Idle return: parts of other datacenters that are here and not in use are returned to their homes, by age
//! and by number (`docs/algorithm/ownership.md#14-idle-return`; `schedule/hand_over.rs` returns them when
//! another datacenter shares the lock).
//!
//! By age: parts that were not used here for `idle_return_after`. Each heartbeat begins a round over some
//! rows of the ownership map, in turn, and each of the following steps examines a few of them. There is no
//! round while the lock that was unused for longest is younger than every rule asks for.
//!
//! By number: while more than `max_away_locks` locks have such parts here, those that were unused for longest
//! go first. A lock with a long name counts as several. The map keeps its rows in the order of their use, so
//! a step finds them without a scan.
//!
//! The parts that are returned in one step share an entry, so a lock costs a fraction of a message.

use crate::base::bugs::Bug;
use std::num::NonZeroU32;
use std::time::Duration;

use super::owners::Owners;
use super::schedule::Cause;
use super::tables::Tables;
use crate::base::time::Instant;
use crate::base::work;
use crate::crdt::lock_weight;
use geolock_api::names::{DcId, DcSet, LockName};

/// Minimum number of rows that one round by age examines.
const LEAST_ROWS: usize = 256;
/// Maximum number of rows that one round by age examines: some hundred microseconds of work.
const MOST_ROWS: usize = 4_096;
/// A round by age examines about this fraction of all rows, within the bounds above.
const ROUNDS: usize = 32;
/// Maximum number of locks that one round returns by age: idle locks can wait. A round by number returns at
/// least as many, if there are more than the limit.
const MOST_LOCKS: usize = 512;
/// Maximum number of locks that one round returns by number.
const MOST_SURPLUS: usize = 16_384;
/// A round by number returns this fraction of the locks above the limit, within the bounds above: then a
/// limit is exceeded by the locks that come in some seconds, and parts do not leave in one great burst.
const SURPLUS_ROUNDS: usize = 4;
/// Maximum number of locks in use that one round by number passes over. Each of them is the most recently
/// used one afterwards.
const MOST_IN_USE: usize = 4_096;
/// Maximum number of rows that one step examines, by age or by number.
const ROWS_PER_STEP: usize = 1_024;
/// A step that has returned this number of parts returns no more: about as many as one message of entries
/// has.
const PARTS_PER_STEP: usize = 64;

/// Default of [`crate::replica::LocalConfig::max_away_locks`].
pub const MAX_AWAY_LOCKS: usize = 1_000_000;

/// Progress of the rounds over the ownership map.
pub(super) struct IdleReturn {
    /// See [`crate::replica::LocalConfig::max_away_locks`].
    max_away: usize,
    /// This datacenter leaves: none is kept.
    keeps_none: bool,
    /// Time of the first round. A lock of whose use nothing is known was unused since then, at least.
    first_round: Option<NonZeroU32>,
    /// Index of the next row to examine by age.
    next: usize,
    /// Rows and locks that are left of this round by age.
    rows: usize,
    locks: usize,
    /// Rows that are examined whatever their age: some may say nothing any more.
    scanned: usize,
    /// The weight of the locks that are left of this round by number, and locks in use that it may still pass
    /// over.
    surplus: usize,
    in_use: usize,
    /// Parts that this step has returned.
    sent: usize,
}

/// A coarse clock for [`crate::crdt::RegisterTable::note_used`], in seconds. It begins at 1.
pub(super) fn second(now: Instant) -> NonZeroU32 {
    let seconds = now.as_nanos() / Duration::from_secs(1).as_nanos() as u64;
    u32::try_from(seconds)
        .map_or(NonZeroU32::MAX, |seconds| NonZeroU32::new(seconds).unwrap_or(NonZeroU32::MIN))
}

impl IdleReturn {
    pub fn new(max_away: usize) -> IdleReturn {
        IdleReturn {
            max_away,
            keeps_none: false,
            first_round: None,
            next: 0,
            rows: 0,
            locks: 0,
            scanned: 0,
            surplus: 0,
            in_use: 0,
            sent: 0,
        }
    }

    /// From now on no foreign part is kept here that is not in use; or again as usual.
    pub fn keep_none(&mut self, keeps_none: bool) {
        self.keeps_none = keeps_none;
    }

    /// The next rounds examine all rows: those of locks that have fallen home leave.
    pub fn scan_all(&mut self, tables: &Tables) {
        self.scanned = tables.owners.map().len();
    }

    /// Begins a round.
    pub fn begin(&mut self, tables: &Tables, now: Instant) {
        let rows = tables.owners.map().len();
        self.first_round.get_or_insert(second(now));
        let is_time = tables.owners.map().recency().oldest().is_some_and(|oldest| {
            self.idle_time(&tables.owners, oldest, now) >= tables.policies.shortest_idle_return()
        });
        let round = (rows / ROUNDS).clamp(LEAST_ROWS, MOST_ROWS).min(rows);
        (self.rows, self.locks) = (if is_time || self.scanned > 0 { round } else { 0 }, MOST_LOCKS);
        let surplus = self.surplus_of(tables);
        self.surplus = (surplus / SURPLUS_ROUNDS).clamp(MOST_LOCKS, MOST_SURPLUS).min(surplus);
        self.in_use = MOST_IN_USE.min(tables.owners.away_here());
        debug_assert!(self.rows <= rows && self.surplus <= surplus, "a round examines each row once");
    }

    /// Returns true if the next step has more of this round to do.
    #[inline]
    pub fn is_running(&self) -> bool {
        self.rows > 0 || self.surplus > 0
    }

    /// Does a part of a round: finds parts that are to be returned.
    /// `give`: returns these parts of a lock to their homes.
    pub fn run(
        &mut self,
        tables: &mut Tables,
        now: Instant,
        mut give: impl FnMut(&mut Tables, &LockName, DcSet, Cause),
    ) {
        if !tables.view.permissions.can_transfer() {
            (self.rows, self.surplus) = (0, 0);
            return;
        }
        self.sent = 0;
        self.run_by_number(tables, now, &mut give);
        self.run_by_age(tables, now, &mut give);
    }

    /// Returns the weight of the locks above the limit.
    fn surplus_of(&self, tables: &Tables) -> usize {
        let counts_all = tables.view.bugs.has(Bug::AwayElsewhereCounted);
        let away =
            if counts_all { tables.owners.map().len() } else { tables.owners.map().recency().weight() };
        away.saturating_sub(if self.keeps_none { 0 } else { self.max_away })
    }

    fn run_by_number(
        &mut self,
        tables: &mut Tables,
        now: Instant,
        mut give: impl FnMut(&mut Tables, &LockName, DcSet, Cause),
    ) {
        // A row leaves the memory when all of its parts are home. While a member is away, nearly every lock
        // has a part of it and would stay; it would only lose the exclusive grants that still need nobody
        // else. No lock that was all home can gather meanwhile, so memory does not grow by that.
        if !tables.view.away.is_empty() {
            self.surplus = 0;
        }
        for _ in 0..ROWS_PER_STEP {
            self.surplus = self.surplus.min(self.surplus_of(tables));
            if self.surplus == 0 || self.sent >= PARTS_PER_STEP {
                return;
            }
            work::count(1);
            let map = tables.owners.map();
            let newest_first = tables.view.bugs.has(Bug::NewestReturned);
            let row = if newest_first { map.recency().newest() } else { map.recency().oldest() };
            let Some(name) = row.and_then(|row| map.lock_at(row)).cloned() else {
                self.surplus = 0;
                return;
            };
            let foreign = tables.owners.foreign_parts(&name);
            if foreign.is_empty() {
                // Its home has left, and its parts here are their own members' again.
                tables.owners.unlist(&name);
                continue;
            }
            let is_taken = |home: DcId| !tables.view.leaving.contains(home);
            let parts = returned(tables, &name, foreign, is_taken);
            if parts.is_empty() || is_in_use(tables, &name) {
                tables.owners.note_used(&name, second(now));
                self.in_use = self.in_use.saturating_sub(1);
                if self.in_use == 0 {
                    self.surplus = 0;
                }
                continue;
            }
            give(tables, &name, parts, Cause::Number);
            self.sent += parts.len();
            self.surplus = self.surplus.saturating_sub(lock_weight(&name).into());
            let is_left = tables.owners.foreign_parts(&name) != foreign.difference(parts);
            debug_assert!(!is_left, "all parts of {name} that can be are returned");
        }
    }

    /// Returns for how long the lock of a row has been idle, at least.
    fn idle_time(&self, owners: &Owners, row: usize, now: Instant) -> Duration {
        let used = owners.map().recency().used_at(row).or(self.first_round).unwrap_or(NonZeroU32::MIN);
        // Both times are rounded down.
        Duration::from_secs(second(now).get().saturating_sub(used.get()).saturating_sub(1).into())
    }

    /// Returns the lock of a row and those of its parts that are to be returned by age, if any. No
    /// lock is returned before `soonest`.
    fn idle_row(
        &self,
        tables: &Tables,
        row: usize,
        soonest: Duration,
        now: Instant,
    ) -> Option<(LockName, DcSet)> {
        let (owners, policies) = (&tables.owners, &tables.policies);
        let idle = self.idle_time(owners, row, now);
        if idle < soonest {
            return None;
        }
        let name = owners.map().lock_at(row)?;
        let is_taken = |home: DcId| !tables.view.takes_none(home);
        let parts = returned(tables, name, owners.foreign_parts(name), is_taken);
        if parts.is_empty() || is_in_use(tables, name) {
            return None;
        }
        let is_over = idle >= policies.idle_return_after(policies.find(name));
        is_over.then(|| (name.clone(), parts))
    }

    fn run_by_age(
        &mut self,
        tables: &mut Tables,
        now: Instant,
        mut give: impl FnMut(&mut Tables, &LockName, DcSet, Cause),
    ) {
        // Finding the shortest time, or the rule of a lock, may take a walk over a thousand rules.
        let soonest = tables.policies.shortest_idle_return();
        for _ in 0..self.rows.min(ROWS_PER_STEP) {
            if self.sent >= PARTS_PER_STEP || self.rows == 0 {
                return;
            }
            if self.next >= tables.owners.map().len() {
                self.next = 0;
            }
            work::count(1);
            let row = self.next;
            self.rows -= 1;
            self.scanned = self.scanned.saturating_sub(1);
            if tables.owners.drop_settled(row) {
                continue;
            }
            let Some((name, parts)) = self.idle_row(tables, row, soonest, now) else {
                self.next += 1;
                continue;
            };
            debug_assert!(self.locks > 0, "a round returns a bounded number of locks");
            give(tables, &name, parts, Cause::Age);
            // If no part of it is away from home any more, another lock has its row now.
            if tables.owners.map().lock_at(row) == Some(&name) {
                self.next += 1;
            }
            self.sent += parts.len();
            self.locks -= 1;
            if self.locks == 0 {
                self.rows = 0;
            }
        }
    }
}

/// Returns those of the foreign parts of a lock whose homes take them. One that is kept at its home here only
/// loses its register: that waits until nothing goes along with it, which would be named, and so go away from
/// its own home.
fn returned(tables: &Tables, name: &LockName, foreign: DcSet, is_taken: impl Fn(DcId) -> bool) -> DcSet {
    let (owners, me) = (&tables.owners, tables.view.me);
    let is_returned = |part: &DcId| match owners.default_owner(name, *part) {
        home if home == me => owners.going_along(name, DcSet::only(*part)).is_empty(),
        home => is_taken(home),
    };
    foreign.iter().filter(is_returned).collect()
}

/// Returns true if a lock has a row in the lock table: it is in use, or was so a moment ago.
fn is_in_use(tables: &Tables, name: &LockName) -> bool {
    tables.locks.find(name).is_some() && !tables.view.bugs.has(Bug::HeldGoesHome)
}
