//! Locks that nobody uses go home: the parts of other datacenters that lie here idle for `go_home_after` are given back.
//!
//! Then every datacenter can grant such a lock shared again without asking, and nobody remembers anything of it. Each heartbeat
//! begins a round over some rows of the ownership map, in turn, and the steps that follow do a few of them each. The parts that
//! go home in one step share an entry, so a lock costs a fraction of a message.

use std::time::Duration;

use super::locks::Locks;
use crate::causal_log::LockParts;
use crate::names::{DcSet, LockName};
use crate::time::Instant;

/// Rows that one round looks at, at least.
const LEAST_ROWS: usize = 256;
/// At most: some hundred microseconds of work.
const MOST_ROWS: usize = 4_096;
/// All rows are looked at in about so many rounds, if that is no more at a time.
const ROUNDS: usize = 32;
/// Most locks that one round sends home: what is idle can wait.
const MOST_LOCKS: usize = 512;
/// Rows that one step looks at, at most.
const ROWS_PER_STEP: usize = 1_024;
/// A step that has sent so many parts home sends no more: it is about what one message of entries has.
const PARTS_PER_STEP: usize = 64;

/// How far the locks of the ownership map were looked at.
#[derive(Default)]
pub(super) struct GoHome {
    /// The row that comes next.
    next: usize,
    /// What is left of this round.
    rows: usize,
    locks: usize,
}

/// A coarse clock for [`crate::crdt::Ownership::note_used`]; above 0, which stands for "never".
fn second(now: Instant) -> u32 {
    u32::try_from(now.as_nanos() / Duration::from_secs(1).as_nanos() as u64).unwrap_or(u32::MAX).max(1)
}

impl Locks {
    /// A lock that is away from home stops being used here.
    pub(super) fn note_unused(&mut self, name: &LockName, now: Instant) {
        self.ownership.note_used(name, second(now));
    }

    /// Begins a round: the steps that follow look for locks that have been idle for long.
    pub fn begin_going_home(&mut self) {
        self.go_home.rows =
            (self.ownership.len() / ROUNDS).clamp(LEAST_ROWS, MOST_ROWS).min(self.ownership.len());
        self.go_home.locks = MOST_LOCKS;
    }

    /// Whether the next step has more of this round to look at.
    #[inline]
    pub fn is_going_home(&self) -> bool {
        self.go_home.rows > 0
    }

    /// Sends home what has been idle for long, as far as the datacenters that it belongs to can be reached: a part of a round.
    #[inline]
    pub fn go_home(&mut self, now: Instant) {
        if self.is_going_home() {
            self.go_home_some(now);
        }
    }

    fn go_home_some(&mut self, now: Instant) {
        if !(self.permissions.grant && self.permissions.append) {
            self.go_home.rows = 0;
            return;
        }
        let (soonest, mut sent) = (self.rules.soonest_home(), 0);
        for _ in 0..self.go_home.rows.min(ROWS_PER_STEP) {
            if self.go_home.next >= self.ownership.len() {
                self.go_home.next = 0;
            }
            let row = self.go_home.next;
            self.go_home.rows -= 1;
            let Some((name, parts)) = self.idle_row(row, soonest, now) else {
                self.go_home.next += 1;
                continue;
            };
            self.send_home(&name, parts);
            // If nothing of it is away any more, another lock has its place now.
            if self.ownership.lock_at(row) == Some(&name) {
                self.go_home.next += 1;
            }
            sent += parts.len();
            self.go_home.locks -= 1;
            if self.go_home.locks == 0 {
                self.go_home.rows = 0;
            }
            if sent >= PARTS_PER_STEP || !self.is_going_home() {
                return;
            }
        }
    }

    /// The lock of a row and the parts of it that should go, if any. None has to go before `soonest`.
    fn idle_row(&mut self, row: usize, soonest: Duration, now: Instant) -> Option<(LockName, DcSet)> {
        let name = self.ownership.lock_at(row)?;
        let mut parts = self.ownership.parts_of(name, self.me, self.members);
        parts.remove(self.me);
        parts = parts.difference(self.unreachable);
        // One that is known here at the moment is in use, or was so just now.
        let is_known = self.find_lock(name.as_bytes()).is_some();
        #[cfg(test)]
        let is_known = is_known && !self.mutated(crate::sim::Mutation::HeldGoesHome);
        if parts.is_empty() || is_known {
            return None;
        }
        let name = name.clone();
        let (used, this_second) = (self.ownership.used_at(row), second(now));
        if used == 0 {
            // Since before a restart, as far as is known.
            self.ownership.note_used(&name, this_second);
            return None;
        }
        // Both are rounded down.
        let idle = Duration::from_secs(this_second.saturating_sub(used).saturating_sub(1).into());
        // Looking the rule up may take a walk along a thousand of them.
        let is_over = idle >= soonest && idle >= self.rules.get(self.rules.find(&name)).go_home_after;
        is_over.then_some((name, parts))
    }

    fn send_home(&mut self, name: &LockName, parts: DcSet) {
        for part in parts.iter() {
            let version = self.ownership.register(name, part).version() + 1;
            let moved = LockParts { lock: name.clone(), parts: vec![(part, version)] };
            self.move_parts(part, &moved);
            self.output.transfers.push((part, moved));
        }
        self.counts.transfers_sent += parts.len() as u64;
        self.counts.gone_home += 1;
    }
}
