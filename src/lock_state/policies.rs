//! The hold rules with the measured distances: how long a lock stays here against the requests of others.

use std::time::Duration;

use super::hold_policy::{HoldPolicy, HoldRule, HoldRules, cost};
use super::lock::Lock;
use crate::base::time::Instant;
use geolock_api::names::{DcId, LockName, MAX_DCS};

/// The rules of all locks, and what they have to know of the network.
pub(super) struct Policies {
    rules: HoldRules,
    distances: Distances,
}

impl Policies {
    pub fn new(rules: Vec<HoldRule>) -> Policies {
        Policies { rules: HoldRules::new(rules), distances: Distances::unknown() }
    }

    /// Returns the number of rules.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Returns the index of the rule for a lock. This may take a walk over a thousand rules.
    pub fn find(&self, lock: &LockName) -> u32 {
        self.rules.find(lock)
    }

    /// Sets the distance to `dc`, one way. Timers that were set with another distance are recomputed when
    /// they expire.
    pub fn set_distance(&mut self, dc: DcId, distance: Duration) {
        self.distances.set(dc, distance);
    }

    /// Returns the distance to `dc`, one way, if it was measured.
    pub fn distance(&self, dc: DcId) -> Option<Duration> {
        self.distances.to(dc)
    }

    /// Makes the remote requests for a lock due whose time has come.
    #[inline]
    pub fn refresh_due(&self, lock: &mut Lock, now: Instant) {
        lock.refresh_due(self.of(lock.rule), &self.distances, now);
    }

    /// Returns the time at which the next remote request for a lock becomes due, if one waits for that.
    pub fn next_due(&self, lock: &Lock, now: Instant) -> Option<Instant> {
        lock.next_due(self.of(lock.rule), &self.distances, now)
    }

    /// Returns true if the next exclusive request here is expected before a part of the lock could be at
    /// `home`.
    pub fn is_exclusive_sooner(&self, lock: &Lock, home: DcId) -> bool {
        lock.history.exclusive_reuse.is_sooner_than(cost(self.distances.to(home)))
    }

    /// Returns the time without use after which nothing depends on the usage of a lock any more.
    pub fn idle_after(&self, rule: u32) -> Duration {
        self.of(rule).idle_after()
    }

    /// Returns the delay that is added to the time of a request that lacks parts of a lock.
    pub fn request_delay(&self, rule: u32) -> Duration {
        self.rules.get(rule).request_delay
    }

    /// Returns the time after which the unused parts of a lock are returned to their homes.
    pub fn idle_return_after(&self, rule: u32) -> Duration {
        self.rules.get(rule).idle_return_after
    }

    /// Returns the shortest idle return time of all rules.
    pub fn shortest_idle_return(&self) -> Duration {
        self.rules.shortest_idle_return()
    }

    #[inline]
    fn of(&self, rule: u32) -> &HoldPolicy {
        &self.rules.get(rule).policy
    }
}

/// The measured distances to the other datacenters, one way; `None` for those that were not measured yet.
pub(super) struct Distances([Option<Duration>; MAX_DCS]);

impl Distances {
    fn unknown() -> Distances {
        Distances([None; MAX_DCS])
    }

    pub fn to(&self, dc: DcId) -> Option<Duration> {
        self.0[dc.index()]
    }

    fn set(&mut self, dc: DcId, distance: Duration) {
        self.0[dc.index()] = Some(distance);
    }
}
