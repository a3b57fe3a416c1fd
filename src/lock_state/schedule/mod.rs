//! The schedule: restores the rules of `docs/algorithm/ownership.md#2-ordering` on the locks that a step
//! touched.
//!
//! `grant.rs` grants requests of local clients, `enough.rs` those for enough of many locks, `hand_over.rs`
//! transfers parts for due requests of other datacenters, and `publish.rs` decides which requests the others
//! have to know, `asking.rs` those for enough of many locks. `parking.rs` and `sweep.rs` spread changes that
//! concern many locks or requests over several steps.

mod asking;
mod enough;
mod grant;
mod hand_over;
mod parking;
mod publish;
mod sweep;

use crate::base::bugs::Bug;
use std::collections::{BTreeMap, VecDeque};

use super::lock::LockIndex;
use super::request::RequestIndex;
use super::tables::Tables;
use crate::base::time::Instant;
use crate::base::work;
use crate::causal_log::{LockParts, Op};
use enough::choose_again;
use geolock_api::names::{DcId, RequestId};
use sweep::Sweeps;

/// Maximum number of locks on which one step restores the rules. A request may have 10 000 locks, and a lease
/// many such requests: when it ends, all of these locks are marked at once.
const RESTORED_PER_STEP: usize = 1_024;

/// The consequences of the changes of a step, and the work that is left for later steps.
#[derive(Default)]
pub(super) struct Schedule {
    sweeps: Sweeps,
    output: Output,
    counts: MoveCounts,
    /// How much of [`RESTORED_PER_STEP`] this step has used.
    restored: usize,
}

/// The results of a step: operations for one entry, and granted requests in order.
#[derive(Default)]
struct Output {
    withdraws: Vec<Op>,
    /// By receiver; the parts of one lock are together.
    transfers: Vec<(DcId, LockParts)>,
    /// Parts that are kept here whatever their home will be.
    kept: Vec<LockParts>,
    requests: Vec<RequestIndex>,
    /// The ids that requests had before, which are withdrawn together with these requests.
    replaced: BTreeMap<RequestIndex, RequestId>,
    granted: VecDeque<RequestIndex>,
}

/// Numbers of parts and locks that moved, see [`crate::replica::call::Counts`].
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct MoveCounts {
    pub part_transfers_sent: u64,
    pub part_transfers_received: u64,
    /// Locks whose parts were returned to their homes because they were idle.
    pub idle_returns: IdleReturns,
    pub hand_offs_sent: u64,
    pub hand_offs_received: u64,
}

/// Numbers of idle returns, by cause.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct IdleReturns {
    pub age: u64,
    pub number: u64,
    pub shared: u64,
}

/// The cause of an idle return.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::lock_state) enum Cause {
    /// The lock was not used here for `idle_return_after`.
    Age,
    /// More locks than `max_away_locks` have foreign parts here.
    Number,
    /// Another datacenter got its own part for a shared request.
    Shared,
}

impl Schedule {
    #[inline]
    pub fn counts(&self) -> MoveCounts {
        self.counts
    }

    /// Returns true if the log contains all changes of ownership and of the request table.
    #[inline]
    pub fn is_in_log(&self) -> bool {
        let Output { withdraws, transfers, kept, requests, replaced: _, granted: _ } = &self.output;
        withdraws.is_empty() && transfers.is_empty() && kept.is_empty() && requests.is_empty()
    }

    /// Returns true if there are grants or operations that the caller has not taken yet.
    #[inline]
    pub fn has_results(&self) -> bool {
        !self.output.granted.is_empty() || !self.is_in_log()
    }

    /// Returns the next granted request that the caller has not taken yet, in order.
    #[inline]
    pub fn next_granted(&mut self) -> Option<RequestIndex> {
        self.output.granted.pop_front()
    }

    /// Grants, transfers and publishes until nothing more follows from the changes, or until this step has
    /// done its share. A lock that stays marked has its state from before the change; nothing wrong follows
    /// from that, see `sweep.rs`. Not inline: most steps change nothing.
    #[inline(never)]
    pub fn run(&mut self, tables: &mut Tables, now: Instant) {
        loop {
            while self.may_restore()
                && let Some(index) = tables.locks.pop_marked()
            {
                self.restored += 1;
                work::count(1);
                self.restore(tables, index, now);
            }
            let Some(request) = tables.enough.next_stranded() else { break };
            choose_again(tables, request, now);
        }
    }

    /// Returns true if this step may restore the rules on one more lock.
    pub fn may_restore(&self) -> bool {
        self.restored < RESTORED_PER_STEP
    }

    /// Restores the rules on one lock.
    fn restore(&mut self, tables: &mut Tables, index: LockIndex, now: Instant) {
        let permissions = tables.view.permissions;
        tables.policies.refresh_due(&mut tables.locks[index], now);
        if permissions.grant {
            if !tables.enough.is_empty() {
                self.offer(tables, index, now);
            }
            self.grant_local(tables, index, now);
            if permissions.append {
                self.serve_remote(tables, index);
            }
        }
        let publishes = !tables.view.bugs.has(Bug::PublishFirstOnly);
        if publishes {
            self.publish(tables, index, now);
        }
        let can_transfer = permissions.can_transfer();
        let next = if can_transfer { tables.policies.next_due(&tables.locks[index], now) } else { None };
        tables.locks.set_timer(index, next);
        tables.locks.note_idle(index, &tables.policies, now);
    }
}
