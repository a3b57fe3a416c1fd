//! Idle return: parts of other datacenters that were not used here for `idle_return_after` are returned to
//! their homes.
//!
//! Then every datacenter can grant such a lock shared without a WAN round trip, and no memory remembers the
//! lock (`docs/algorithm.md#34-idle-return`). Each heartbeat begins a round over some rows of the ownership
//! map, in turn, and each of the following steps examines a few of them. The parts that are returned in one
//! step share an entry, so a lock costs a fraction of a message.

use std::num::NonZeroU32;
use std::time::Duration;

use super::locks::Locks;
use crate::causal_log::LockParts;
use crate::names::{DcSet, LockName};
use crate::time::Instant;

/// Minimum number of rows that one round examines.
const LEAST_ROWS: usize = 256;
/// Maximum number of rows that one round examines: some hundred microseconds of work.
const MOST_ROWS: usize = 4_096;
/// A round examines about this fraction of all rows, within the bounds above.
const ROUNDS: usize = 32;
/// Maximum number of locks that one round returns: idle locks can wait.
const MOST_LOCKS: usize = 512;
/// Maximum number of rows that one step examines.
const ROWS_PER_STEP: usize = 1_024;
/// A step that has returned this number of parts returns no more: about as many as one message of entries
/// has.
const PARTS_PER_STEP: usize = 64;

/// Progress of the rounds over the ownership map.
#[derive(Default)]
pub(super) struct IdleReturn {
    /// Index of the next row.
    next: usize,
    /// Rows and locks that are left of this round.
    rows: usize,
    locks: usize,
}

/// A coarse clock for [`crate::crdt::Ownership::note_used`], in seconds. It begins at 1.
fn second(now: Instant) -> NonZeroU32 {
    let seconds = now.as_nanos() / Duration::from_secs(1).as_nanos() as u64;
    u32::try_from(seconds)
        .map_or(NonZeroU32::MAX, |seconds| NonZeroU32::new(seconds).unwrap_or(NonZeroU32::MIN))
}

impl Locks {
    /// Records the time at which a lock with parts away from home stopped being used here.
    pub(super) fn note_unused(&mut self, name: &LockName, now: Instant) {
        self.ownership.note_used(name, second(now));
    }

    /// Begins a round; the following steps examine its rows.
    pub fn begin_idle_return(&mut self) {
        self.idle_return.rows =
            (self.ownership.len() / ROUNDS).clamp(LEAST_ROWS, MOST_ROWS).min(self.ownership.len());
        self.idle_return.locks = MOST_LOCKS;
    }

    /// Returns true if the next step has more rows of this round to examine.
    #[inline]
    pub fn is_returning_idle(&self) -> bool {
        self.idle_return.rows > 0
    }

    /// Does a part of a round: returns parts that have been idle for long to their homes, as far as these are
    /// not away.
    #[inline]
    pub fn return_idle(&mut self, now: Instant) {
        if self.is_returning_idle() {
            self.return_some_idle(now);
        }
    }

    fn return_some_idle(&mut self, now: Instant) {
        if !(self.permissions.grant && self.permissions.append) {
            self.idle_return.rows = 0;
            return;
        }
        let (soonest, mut sent) = (self.rules.shortest_idle_return(), 0);
        for _ in 0..self.idle_return.rows.min(ROWS_PER_STEP) {
            if self.idle_return.next >= self.ownership.len() {
                self.idle_return.next = 0;
            }
            let row = self.idle_return.next;
            self.idle_return.rows -= 1;
            let Some((name, parts)) = self.idle_row(row, soonest, now) else {
                self.idle_return.next += 1;
                continue;
            };
            self.return_parts(&name, parts);
            // If no part of it is away from home any more, another lock has its row now.
            if self.ownership.lock_at(row) == Some(&name) {
                self.idle_return.next += 1;
            }
            sent += parts.len();
            self.idle_return.locks -= 1;
            if self.idle_return.locks == 0 {
                self.idle_return.rows = 0;
            }
            if sent >= PARTS_PER_STEP || !self.is_returning_idle() {
                return;
            }
        }
    }

    /// Returns the lock of a row and those of its parts that are to be returned, if any. No lock is returned
    /// before `soonest`.
    fn idle_row(&mut self, row: usize, soonest: Duration, now: Instant) -> Option<(LockName, DcSet)> {
        let name = self.ownership.lock_at(row)?;
        let mut parts = self.ownership.parts_of(name, self.me, self.members);
        parts.remove(self.me);
        parts = parts.difference(self.unreachable);
        // A lock with a row in the lock table is in use, or was so a moment ago.
        let is_known = self.find_lock(name.as_bytes()).is_some();
        #[cfg(test)]
        let is_known = is_known && !self.mutated(crate::sim::Mutation::HeldGoesHome);
        if parts.is_empty() || is_known {
            return None;
        }
        let name = name.clone();
        let (used, this_second) = (self.ownership.used_at(row), second(now));
        let Some(used) = used else {
            // Unused since before a restart, as far as is known.
            self.ownership.note_used(&name, this_second);
            return None;
        };
        // Both times are rounded down.
        let idle = Duration::from_secs(this_second.get().saturating_sub(used.get()).saturating_sub(1).into());
        // Finding the rule may take a walk over a thousand of them.
        let is_over = idle >= soonest && idle >= self.rules.get(self.rules.find(&name)).idle_return_after;
        is_over.then_some((name, parts))
    }

    fn return_parts(&mut self, name: &LockName, parts: DcSet) {
        for part in parts.iter() {
            let version = self.ownership.register(name, part).version() + 1;
            let moved = LockParts { lock: name.clone(), parts: vec![(part, version)] };
            self.move_parts(part, &moved);
            self.output.transfers.push((part, moved));
        }
        self.counts.transfers_sent += parts.len() as u64;
        self.counts.idle_returns += 1;
    }
}
