//! Locks that nobody uses go home: the parts of other datacenters that lie here idle for `go_home_after` are given back.
//!
//! Then every datacenter can grant such a lock shared again without asking, and nobody remembers anything of it. A few rows of
//! the ownership map are looked at with every heartbeat, in turn; what goes home goes in the entry of that step, so it
//! costs a fraction of a message a lock.

use std::time::Duration;

use super::locks::Locks;
use crate::causal_log::LockParts;
use crate::names::{DcSet, LockName};
use crate::time::Instant;

/// Rows that one call looks at, at least.
const LEAST_ROWS: usize = 256;
/// At most: some hundred microseconds of work.
const MOST_ROWS: usize = 4_096;
/// All rows are looked at in about so many calls, if that is no more at a time.
const CALLS: usize = 32;
/// Most locks that one call sends home: what is idle can wait.
const MOST_LOCKS: usize = 512;

/// A coarse clock for [`crate::crdt::Ownership::note_used`]; above 0, which stands for "never".
fn second(now: Instant) -> u32 {
    u32::try_from(now.as_nanos() / Duration::from_secs(1).as_nanos() as u64).unwrap_or(u32::MAX).max(1)
}

impl Locks {
    /// A lock that is away from home stops being used here.
    pub(super) fn note_unused(&mut self, name: &LockName, now: Instant) {
        self.ownership.note_used(name, second(now));
    }

    /// Sends home what has been idle for long, as far as the datacenters that it belongs to can be reached.
    pub fn go_home(&mut self, now: Instant) {
        if !(self.permissions.grant && self.permissions.append) {
            return;
        }
        let (rows, mut sent) = ((self.ownership.len() / CALLS).clamp(LEAST_ROWS, MOST_ROWS), 0);
        let soonest = self.rules.soonest_home();
        for _ in 0..rows.min(self.ownership.len()) {
            if self.go_home_at >= self.ownership.len() {
                self.go_home_at = 0;
            }
            match self.idle_row(self.go_home_at, soonest, now) {
                Some((name, parts)) => {
                    self.send_home(&name, parts);
                    sent += 1;
                    if sent == MOST_LOCKS {
                        return;
                    }
                    // If nothing of it is away any more, another lock has its place now.
                    if self.ownership.lock_at(self.go_home_at) == Some(&name) {
                        self.go_home_at += 1;
                    }
                }
                None => self.go_home_at += 1,
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
