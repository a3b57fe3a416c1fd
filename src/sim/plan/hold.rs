//! The choices of one seed about how long locks stay.

use std::time::Duration;

use crate::base::rng::Rng;
use crate::lock_state::{HoldPolicy, HoldRule, MAX_AWAY_LOCKS};
use crate::sim::plan::{MS, Plan};

/// Runs wait for idle returns if these take no longer.
pub(in crate::sim) const IDLE_RETURN_SOON: Duration = Duration::from_secs(3);

pub(super) fn general(rng: &mut Rng) -> Vec<HoldRule> {
    let fixed = |min_keep, max_keep| HoldPolicy::Fixed { min_keep, max_keep };
    let policies = [
        HoldPolicy::FIXED,
        fixed(Duration::ZERO, Duration::ZERO),
        fixed(50 * MS, 100 * MS),
        HoldPolicy::FAIR,
        HoldPolicy::LATENCY,
        HoldPolicy::Adaptive { turn: 1, max_keep: 20 * MS },
    ];
    let policy = rng.pick(&policies).clone();
    let request_delay = *rng.pick(&[Duration::ZERO, Duration::ZERO, 100 * MS]);
    let idle_return_after = *rng.pick(&[1_000 * MS, 3_000 * MS, 60_000 * MS]);
    vec![HoldRule { prefix: Vec::new(), policy, request_delay, idle_return_after }]
}

/// Picks the limit of locks that are away in one datacenter, from a random stream of its own. Most runs have
/// more locks than the small ones.
pub(super) fn max_away_locks(seed: u64) -> usize {
    *Rng::new(seed, 23).pick(&[1, 3, MAX_AWAY_LOCKS])
}

impl Plan {
    /// Returns true if a lock that was idle for that long may be returned, on a clock with a small error.
    pub fn may_return_idle(&self, idle: Duration) -> bool {
        self.hold.iter().any(|rule| idle >= rule.idle_return_after * 9 / 10)
    }

    /// Returns true if idle locks are returned within a time that a run waits for.
    pub fn returns_idle_locks(&self) -> bool {
        self.hold.iter().all(|rule| rule.idle_return_after <= IDLE_RETURN_SOON)
    }
}
