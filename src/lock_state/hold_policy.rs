//! Hold policies: they decide when a lock leaves a datacenter that keeps using it.
//!
//! Moving a lock costs a WAN round trip, and the lock will probably be used again where it is. So a
//! datacenter keeps parts for a while although another datacenter has requested them
//! (`docs/algorithm/ownership.md#26-hold-policies`):
//!
//! ```text
//! keep_until = min(last_used + patience, acquired_at + turn)
//! ```
//!
//! on this datacenter's monotonic clock. `last_used` is the last release of a grant that conflicts with the
//! remote request (now, while one is held); `acquired_at` is the first local grant since a part last came. A
//! lock that was not used since its parts came, or is unused for its patience, leaves at once. These bounds
//! limit how long a datacenter keeps parts against others; they never end a holder.
//!
//! [`HoldPolicy::Fixed`] has both bounds as options. [`HoldPolicy::Adaptive`] derives both, per lock, from
//! the cost of a move:
//!
//! - A lock in constant use is used for `turn / (turn + cost)` of the time, wherever it is. So a turn is a
//!   multiple of the cost: ten times the cost gives 10/11 and bounds the wait of other datacenters.
//! - Waiting for the next local use is worth no more than the cost (as in ski rental, Karlin et al. 1988). So
//!   a lock leaves at once if the next local request usually comes later than that. Otherwise it stays for a
//!   time that the next local request rarely exceeds.

use std::time::Duration;

use super::reuse_estimate::ReuseEstimate;
use crate::base::time::Instant;
use geolock_api::names::LockName;

/// Options for the locks whose names start with `prefix`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldRule {
    /// Prefix of the names.
    pub prefix: Vec<u8>,
    /// How long parts are kept.
    pub policy: HoldPolicy,
    /// Added to the time of a request that needs parts of other datacenters. It only changes the order:
    /// requests that others make meanwhile go first. Default 0, at most 500 ms.
    pub request_delay: Duration,
    /// Parts of other datacenters that were not used here for this time are returned to them (idle return).
    /// Then shared grants are local everywhere again, and no datacenter keeps the lock in memory. Default 24
    /// h, 1 s to 365 days. An exclusive use here after the return costs a round trip. With a lower value
    /// fewer locks are lost to others while this datacenter is down: those whose parts are here cannot be
    /// taken elsewhere, not even shared. Memory is bounded by
    /// [`crate::replica::LocalConfig::max_away_locks`] in any case.
    pub idle_return_after: Duration,
}

/// Default of [`HoldRule::idle_return_after`].
pub const IDLE_RETURN_AFTER: Duration = Duration::from_secs(24 * 3_600);

/// Maximum of [`HoldRule::request_delay`].
pub const MAX_REQUEST_DELAY: Duration = Duration::from_millis(500);
/// Maximum of `turn` in [`HoldPolicy::Adaptive`]: a lock in constant use is used for 1000/1001 of the time.
pub const MAX_TURN: u32 = 1_000;

/// How long parts are kept against the requests of others.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant explains its fields")]
pub enum HoldPolicy {
    /// Fixed bounds. `min_keep`: time after the last use, default 250 ms; 0 transfers at once. `max_keep`:
    /// time since the first use, default 1 s, at least `min_keep`. A remote waiter waits up to `max_keep` for
    /// each datacenter before it.
    Fixed { min_keep: Duration, max_keep: Duration },
    /// Bounds derived from the cost of a move. `turn`: how long a lock in constant use stays, in multiples of
    /// the cost of a transfer to the datacenter that requests it (its measured distance one way, and two
    /// syncs), 0 to 1000. `max_keep`: longest turn, whatever the distance.
    Adaptive { turn: u32, max_keep: Duration },
}

/// Approximate cost of a transfer apart from the distance: its entry has to be durable at both ends.
/// Measured: 0.7 to 2.1 ms.
const SYNCS: Duration = Duration::from_millis(1);
/// Assumed distance of a datacenter whose distance is not measured yet.
const UNKNOWN_DISTANCE: Duration = Duration::from_millis(25);

impl HoldPolicy {
    /// Highest throughput: turns of 30 transfers, up to 5 s.
    pub const THROUGHPUT: HoldPolicy = HoldPolicy::Adaptive { turn: 30, max_keep: Duration::from_secs(5) };
    /// Use for ten elevenths of the time with bounded waits elsewhere: turns of ten transfers, up to 1 s.
    pub const FAIR: HoldPolicy = HoldPolicy::Adaptive { turn: 10, max_keep: Duration::from_secs(1) };
    /// Short waits elsewhere: turns of 3 transfers, up to 250 ms.
    pub const LATENCY: HoldPolicy = HoldPolicy::Adaptive { turn: 3, max_keep: Duration::from_millis(250) };
    /// Bounds that do not depend on distances, as in Antidote.
    pub const FIXED: HoldPolicy =
        HoldPolicy::Fixed { min_keep: Duration::from_millis(250), max_keep: Duration::from_secs(1) };
}

impl Default for HoldPolicy {
    /// Returns [`HoldPolicy::FAIR`]: in mixed loads it grants more than the fixed policy with shorter waits,
    /// and for a lock in constant demand everywhere it grants as much as any policy with the same waits
    /// (docs/performance.md).
    fn default() -> HoldPolicy {
        HoldPolicy::FAIR
    }
}

impl Default for HoldRule {
    fn default() -> HoldRule {
        HoldRule {
            prefix: Vec::new(),
            policy: HoldPolicy::default(),
            request_delay: Duration::ZERO,
            idle_return_after: IDLE_RETURN_AFTER,
        }
    }
}

/// The usage of a lock here since a part of it last came, as seen by a remote request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Usage {
    /// Time of the first grant since then.
    pub acquired_at: Option<Instant>,
    /// Time of the last release that conflicts with the request.
    pub last_release: Option<Instant>,
    /// True if a grant that conflicts with the request is held now.
    pub held: bool,
    /// True if a local request waits for a grant that would conflict with the request.
    pub wanted: bool,
    /// Reuse estimate of such grants.
    pub reuse: ReuseEstimate,
    /// Distance to the datacenter of the first remote request, one way.
    pub distance: Option<Duration>,
}

impl HoldPolicy {
    /// Returns the maximum time for which a lock in constant use is kept.
    pub fn max_keep(&self) -> Duration {
        match self {
            HoldPolicy::Fixed { max_keep, .. } | HoldPolicy::Adaptive { max_keep, .. } => *max_keep,
        }
    }

    /// Returns patience and turn: the time after the last use, and the time since the first use.
    fn keep(&self, usage: &Usage) -> (Duration, Duration) {
        match self {
            HoldPolicy::Fixed { min_keep, max_keep } => (*min_keep, *max_keep),
            HoldPolicy::Adaptive { turn, max_keep } => {
                let cost = cost(usage.distance);
                (patience(usage, cost), (cost * *turn).min(*max_keep))
            }
        }
    }

    /// Returns the time until which parts are kept against a request; it is in the past if the request is
    /// due.
    pub(super) fn keep_until(&self, usage: &Usage, now: Instant) -> Instant {
        let last_used = if usage.held { Some(now) } else { usage.last_release };
        match (usage.acquired_at, last_used) {
            (Some(acquired_at), Some(last_used)) => {
                let (patience, turn) = self.keep(usage);
                (last_used + patience).min(acquired_at + turn)
            }
            _ => Instant::ZERO,
        }
    }

    /// Returns the time at which a request that is not due is examined again. It is never later than the time
    /// at which the request becomes due if nothing else happens, and it does not advance again and again
    /// while a holder advances `last_used`.
    pub(super) fn recheck_at(&self, usage: &Usage, now: Instant) -> Instant {
        match (usage.held, usage.acquired_at) {
            (true, Some(acquired_at)) => acquired_at + self.keep(usage).1,
            _ => self.keep_until(usage, now),
        }
    }

    /// Returns the time without use after which a lock leaves at once, whatever its usage before.
    pub(super) fn idle_after(&self) -> Duration {
        match self {
            HoldPolicy::Fixed { min_keep, .. } => *min_keep,
            // The reuse estimate is worth keeping for a while.
            HoldPolicy::Adaptive { .. } => Duration::from_millis(250),
        }
    }
}

/// Returns the approximate time that a transfer to a datacenter at this distance takes.
pub(super) fn cost(distance: Option<Duration>) -> Duration {
    distance.unwrap_or(UNKNOWN_DISTANCE) + SYNCS
}

/// Returns how long to wait for the next local use. `cost` is the cost of a transfer; a small fraction of it
/// is always spent on a local user that is present or may be.
fn patience(usage: &Usage, cost: Duration) -> Duration {
    let least = cost / 20;
    match usage.reuse.expected() {
        None => cost / 8,
        Some((mean, most)) if mean < cost => most.clamp(least, cost),
        Some(_) if usage.wanted || usage.held => least,
        Some(_) => Duration::ZERO,
    }
}

/// The rules, longest prefix first.
#[derive(Clone, Debug)]
pub(super) struct HoldRules(Vec<HoldRule>);

impl HoldRules {
    pub fn new(mut rules: Vec<HoldRule>) -> HoldRules {
        if !rules.iter().any(|rule| rule.prefix.is_empty()) {
            rules.push(HoldRule::default());
        }
        rules.sort_by_key(|rule| std::cmp::Reverse(rule.prefix.len()));
        HoldRules(rules)
    }

    /// Returns the index of the rule for a lock, for [`HoldRules::get`].
    pub fn find(&self, lock: &LockName) -> u32 {
        let index = self.0.iter().position(|rule| lock.as_bytes().starts_with(&rule.prefix));
        index.expect("the last rule has the empty prefix") as u32
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the shortest idle return time of all rules.
    pub fn shortest_idle_return(&self) -> Duration {
        self.0.iter().map(|rule| rule.idle_return_after).min().expect("there is a rule")
    }

    pub fn get(&self, index: u32) -> &HoldRule {
        &self.0[index as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    const POLICY: HoldPolicy = HoldPolicy::FIXED;

    /// Used since `first`, last released at `last`.
    fn used(first: u64, last: u64) -> Usage {
        Usage { acquired_at: Some(at(first)), last_release: Some(at(last)), ..Usage::default() }
    }

    #[test]
    fn an_unused_lock_is_not_kept() {
        assert_eq!(POLICY.keep_until(&Usage::default(), at(70)), Instant::ZERO);
        assert_eq!(HoldPolicy::FAIR.keep_until(&Usage::default(), at(70)), Instant::ZERO);
    }

    #[test]
    fn a_lock_is_kept_a_little_after_its_last_use_and_not_for_ever() {
        assert_eq!(POLICY.keep_until(&used(100, 200), at(210)), at(450));
        assert_eq!(POLICY.keep_until(&used(100, 1_000), at(1_010)), at(1_100));
    }

    #[test]
    fn a_held_lock_is_kept_until_max_keep() {
        let usage = Usage { acquired_at: Some(at(100)), held: true, ..Usage::default() };
        assert_eq!(POLICY.keep_until(&usage, at(600)), at(850));
        assert_eq!(POLICY.recheck_at(&usage, at(600)), at(1_100));
        assert_eq!(POLICY.keep_until(&usage, at(1_100)), at(1_100));
    }

    /// Requested again after this number of milliseconds; the remote request is 39 ms away.
    fn returning(millis: u64) -> Usage {
        let mut usage = Usage { distance: Some(Duration::from_millis(39)), ..used(100, 200) };
        for _ in 0..64 {
            usage.reuse.note_release(false, at(0));
            usage.reuse.note_request(at(millis));
        }
        usage
    }

    #[test]
    fn a_turn_is_as_long_as_ten_hand_overs() {
        let usage = Usage { held: true, ..returning(1) };
        assert_eq!(HoldPolicy::FAIR.recheck_at(&usage, at(300)), at(100 + 10 * 40));
        assert_eq!(HoldPolicy::LATENCY.recheck_at(&usage, at(300)), at(100 + 3 * 40));
        let far = Usage { distance: Some(Duration::from_millis(500)), ..usage };
        assert_eq!(HoldPolicy::FAIR.recheck_at(&far, at(300)), at(1_100));
        assert_eq!(HoldPolicy::FAIR.keep_until(&usage, at(700)), at(500));
    }

    #[test]
    fn nobody_waits_for_who_stays_away_longer_than_a_hand_over_takes() {
        let fair = HoldPolicy::FAIR;
        assert_eq!(fair.keep_until(&returning(41), at(200)), at(200));
        // A waiter that is present gets the least patience, although the estimate exceeds the cost.
        assert_eq!(fair.keep_until(&Usage { wanted: true, ..returning(41) }, at(200)), at(202));
        let soon = fair.keep_until(&returning(20), at(200));
        assert!(soon > at(219) && soon <= at(240), "{soon:?}");
        assert_eq!(fair.keep_until(&returning(0), at(200)), at(202));
        let unknown = Usage { reuse: ReuseEstimate::default(), ..returning(0) };
        assert_eq!(fair.keep_until(&unknown, at(200)), at(205));
    }

    #[test]
    fn the_longest_prefix_counts() {
        let rule = |prefix: &str, millis| HoldRule {
            prefix: prefix.into(),
            request_delay: Duration::from_millis(millis),
            ..HoldRule::default()
        };
        let rules = HoldRules::new(vec![rule("a", 1), rule("abc", 2)]);
        let delay =
            |name| rules.get(rules.find(&LockName::try_from(name).expect("valid"))).request_delay.as_millis();
        assert_eq!((delay("abcd"), delay("abd"), delay("x")), (2, 1, 0));
    }
}
