//! The row of one lock in the lock table.

use std::time::Duration;

use smallvec::SmallVec;

use super::hold_policy::{HoldPolicy, Usage};
use super::policies::Distances;
use super::queue::{Class, Order, Queue};
use super::request::RequestIndex;
use super::use_history::UseHistory;
use crate::base::tables::row_index;
use crate::base::time::Instant;
use geolock_api::names::Position;
use geolock_api::names::{DcId, DcSet, LockName, Mode};

/// Index of a lock's row. It is reused after the lock was idle for a while.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct LockIndex(pub u32);

row_index!(LockIndex);

/// A lock that is held, waited for, or was so a moment ago.
#[derive(Debug)]
pub(super) struct Lock {
    pub name: LockName,
    /// Index of the hold rule that applies.
    pub rule: u32,
    /// The parts owned here; a copy from the ownership map.
    pub parts: DcSet,
    pub holders: Holders,
    pub queue: Queue,
    /// Position of the last record that this lock depends on. A grant is answered only when the journal is
    /// durable up to here (`docs/algorithm/log.md#13-output-commit`).
    pub position: Position,
    pub history: UseHistory,
    /// Time at which the requests that are not due are examined again.
    pub timer: Option<Instant>,
    /// True while the lock is in the list of marked locks.
    pub dirty: bool,
    /// A request or holder that may have blocked any number of shared waiters is gone.
    pub recheck_shared: bool,
    /// True while the lock is in the list of idle locks.
    pub in_idle_list: bool,
}

/// The holders of a lock here: any number of shared ones, or one exclusive one.
#[derive(Debug, Default)]
pub(super) struct Holders {
    pub mode: Option<Mode>,
    /// Each with the index of this lock among the wants of the request.
    pub requests: SmallVec<[(RequestIndex, u32); 2]>,
}

impl Lock {
    pub fn new(name: LockName, rule: u32, parts: DcSet) -> Lock {
        Lock {
            name,
            rule,
            parts,
            holders: Holders::default(),
            queue: Queue::default(),
            position: Position::default(),
            history: UseHistory::default(),
            timer: None,
            dirty: false,
            recheck_shared: false,
            in_idle_list: false,
        }
    }

    /// Returns true if the parts that a grant in `mode` needs are here.
    pub fn has_parts(&self, mode: Mode, me: DcId, members: DcSet) -> bool {
        match mode {
            Mode::Exclusive => self.parts == members,
            Mode::Shared => self.parts.contains(me),
        }
    }

    pub fn is_held_against(&self, mode: Mode) -> bool {
        self.holders.mode.is_some_and(|held| held.conflicts_with(mode))
    }

    /// Returns true if it is held or wanted exclusively here, or was so a moment ago.
    pub fn is_used_exclusively(&self) -> bool {
        self.holders.mode == Some(Mode::Exclusive)
            || self.history.last_exclusive_release.is_some()
            || self.queue.first_local_conflict(Mode::Shared).is_some()
    }

    /// Returns the usage of the lock, as seen by a request for `mode` of a datacenter at `distance`.
    pub fn usage(&self, mode: Mode, distance: Option<Duration>) -> Usage {
        let (last_release, reuse) = self.history.against(mode);
        Usage {
            acquired_at: self.history.acquired_at,
            last_release,
            held: self.is_held_against(mode),
            wanted: self.queue.first_local_conflict(mode).is_some(),
            reuse,
            distance,
        }
    }

    /// Records a release by a holder in `mode`.
    pub fn note_release(&mut self, mode: Mode, now: Instant) {
        debug_assert!(
            mode == Mode::Shared || self.holders.requests.is_empty(),
            "one exclusive holder leaves"
        );
        self.history.note_release(mode, now);
        if mode == Mode::Exclusive {
            self.recheck_shared = true;
        }
        if self.queue.is_empty() {
            return;
        }
        if self.holders.requests.is_empty() {
            let wanted = self.queue.first_local_conflict(Mode::Exclusive).is_some();
            self.history.reuse.note_release(wanted, now);
        }
        if mode == Mode::Exclusive {
            let wanted = self.queue.first_local_conflict(Mode::Shared).is_some();
            self.history.exclusive_reuse.note_release(wanted, now);
        }
    }

    /// Makes the exclusive hold a shared one. For remote readers it counts as the end of the exclusive use.
    pub fn downgrade(&mut self, now: Instant) {
        assert!(
            self.holders.mode == Some(Mode::Exclusive) && self.holders.requests.len() == 1,
            "lock {} has one exclusive holder that is downgraded",
            self.name
        );
        self.holders.mode = Some(Mode::Shared);
        self.history.note_release(Mode::Exclusive, now);
        self.recheck_shared = true;
        if !self.queue.is_empty() {
            let wanted = self.queue.first_local_conflict(Mode::Shared).is_some();
            self.history.exclusive_reuse.note_release(wanted, now);
        }
    }

    /// Makes remote requests due whose time has come.
    pub fn refresh_due(&mut self, policy: &HoldPolicy, distances: &Distances, now: Instant) {
        if self.queue.is_empty() || self.parts.is_empty() {
            return;
        }
        if let Some((order, _)) = self.queue.first(Class::RemoteExclusive) {
            let usage = self.usage(Mode::Exclusive, distances.to(order.id.dc));
            if policy.keep_until(&usage, now) <= now {
                self.queue.make_due(Class::RemoteExclusive, self.first_user(Mode::Exclusive));
            }
        }
        for dc in self.parts.iter() {
            if self.queue.first(Class::RemoteShared(dc)).is_some() {
                let usage = self.usage(Mode::Shared, distances.to(dc));
                if policy.keep_until(&usage, now) <= now {
                    self.queue.make_due(Class::RemoteShared(dc), self.first_user(Mode::Shared));
                }
            }
        }
    }

    /// Returns the first conflicting local waiter, if no local request was granted since parts came. That
    /// waiter is about to use the lock, so a remote request ordered after it is not due on the ground that
    /// the lock is unused (`docs/algorithm/ownership.md#25-remote-requests`).
    fn first_user(&self, against: Mode) -> Option<Order> {
        match self.history.acquired_at {
            None => self.queue.first_local_conflict(against),
            Some(_) => None,
        }
    }

    /// Returns the time at which the next remote request becomes due, if one waits for that.
    pub fn next_due(&self, policy: &HoldPolicy, distances: &Distances, now: Instant) -> Option<Instant> {
        if self.queue.is_empty() || self.parts.is_empty() || self.history.acquired_at.is_none() {
            return None;
        }
        let due = |mode, dc| policy.recheck_at(&self.usage(mode, distances.to(dc)), now);
        let exclusive =
            self.queue.first(Class::RemoteExclusive).map(|(order, _)| due(Mode::Exclusive, order.id.dc));
        let asks = |dc: &DcId| self.queue.first(Class::RemoteShared(*dc)).is_some();
        let shared = self.parts.iter().filter(asks).map(|dc| due(Mode::Shared, dc));
        exclusive.into_iter().chain(shared).min()
    }

    pub fn is_idle(&self) -> bool {
        self.holders.requests.is_empty() && self.queue.is_empty()
    }

    /// Adds a part that came. `acquired_at` is reset, so the turn begins anew.
    pub fn gain_part(&mut self, part: DcId, position: Position) {
        debug_assert!(
            self.holders.mode != Some(Mode::Exclusive),
            "lock {} is held with all parts",
            self.name
        );
        self.parts.insert(part);
        self.history.acquired_at = None;
        self.position = self.position.max(position);
        self.recheck_shared = true;
    }
}
