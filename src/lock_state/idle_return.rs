//! Idle return: parts of other datacenters that were not used here for `idle_return_after` are returned to
//! their homes.
//!
//! Then every datacenter can grant such a lock shared without a WAN round trip, and no memory remembers the
//! lock (`docs/algorithm.md#34-idle-return`). Each heartbeat begins a round over some rows of the ownership
//! map, in turn, and each of the following steps examines a few of them. The parts that are returned in one
//! step share an entry, so a lock costs a fraction of a message.

use crate::base::bugs::Bug;
use std::num::NonZeroU32;
use std::time::Duration;

use super::tables::Tables;
use crate::base::time::Instant;
use crate::crdt::default_owner;
use geolock_api::names::{DcSet, LockName};

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
pub(super) fn second(now: Instant) -> NonZeroU32 {
    let seconds = now.as_nanos() / Duration::from_secs(1).as_nanos() as u64;
    u32::try_from(seconds)
        .map_or(NonZeroU32::MAX, |seconds| NonZeroU32::new(seconds).unwrap_or(NonZeroU32::MIN))
}

impl IdleReturn {
    /// Begins a round over some of `rows` rows.
    pub fn begin(&mut self, rows: usize) {
        self.rows = (rows / ROUNDS).clamp(LEAST_ROWS, MOST_ROWS).min(rows);
        self.locks = MOST_LOCKS;
    }

    /// Returns true if the next step has more rows of this round to examine.
    #[inline]
    pub fn is_running(&self) -> bool {
        self.rows > 0
    }

    /// Does a part of a round: finds parts that have been idle for long, as far as their homes are not away.
    /// `give`: returns these parts of a lock to their homes.
    pub fn run(
        &mut self,
        tables: &mut Tables,
        now: Instant,
        mut give: impl FnMut(&mut Tables, &LockName, DcSet),
    ) {
        if !tables.view.permissions.can_transfer() {
            self.rows = 0;
            return;
        }
        let (soonest, mut sent) = (tables.policies.shortest_idle_return(), 0);
        for _ in 0..self.rows.min(ROWS_PER_STEP) {
            if self.next >= tables.owners.map().len() {
                self.next = 0;
            }
            let row = self.next;
            self.rows -= 1;
            let Some((name, parts)) = idle_row(tables, row, soonest, now) else {
                self.next += 1;
                continue;
            };
            give(tables, &name, parts);
            // If no part of it is away from home any more, another lock has its row now.
            if tables.owners.map().lock_at(row) == Some(&name) {
                self.next += 1;
            }
            sent += parts.len();
            self.locks -= 1;
            if self.locks == 0 {
                self.rows = 0;
            }
            if sent >= PARTS_PER_STEP || !self.is_running() {
                return;
            }
        }
    }
}

/// Returns the lock of a row and those of its parts that are to be returned, if any. No lock is returned
/// before `soonest`.
fn idle_row(tables: &mut Tables, row: usize, soonest: Duration, now: Instant) -> Option<(LockName, DcSet)> {
    let map = tables.owners.map();
    let name = map.lock_at(row)?;
    let stays = |home| home == tables.view.me || tables.view.away.contains(home);
    let here = tables.owners.parts_here(name);
    let parts: DcSet = here.iter().filter(|part| !stays(default_owner(name, *part))).collect();
    // A lock with a row in the lock table is in use, or was so a moment ago.
    let is_known = tables.locks.find(name).is_some();
    let is_known = is_known && !tables.view.bugs.has(Bug::HeldGoesHome);
    if parts.is_empty() || is_known {
        return None;
    }
    let (name, used, this_second) = (name.clone(), map.used_at(row), second(now));
    let Some(used) = used else {
        // Unused since before a restart, as far as is known.
        tables.owners.note_used(&name, this_second);
        return None;
    };
    // Both times are rounded down.
    let idle = Duration::from_secs(this_second.get().saturating_sub(used.get()).saturating_sub(1).into());
    // Finding the rule may take a walk over a thousand of them.
    let policies = &tables.policies;
    let is_over = idle >= soonest && idle >= policies.idle_return_after(policies.find(&name));
    is_over.then_some((name, parts))
}
