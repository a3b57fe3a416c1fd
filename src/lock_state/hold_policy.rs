//! When a lock leaves a datacenter that keeps using it: the seam where policies differ.
//!
//! Moving a lock costs a WAN round trip and it will probably be used again where it is, so a datacenter keeps
//! parts for a while although another one asks. `Fixed` keeps them until
//!
//! ```text
//! keep_until = min(last_used + min_keep, acquired_at + max_keep)
//! ```
//!
//! on this datacenter's monotonic clock: `last_used` is the last release of a grant that conflicts with the
//! request that asks (now, while one is held), `acquired_at` the first local grant since a part last came.
//! A lock not used since its parts came, or idle for `min_keep`, leaves at once. These bounds limit how long
//! a datacenter keeps parts against others, never a holder.

use std::time::Duration;

use crate::names::LockName;
use crate::time::Instant;

/// Options for the locks whose names start with `prefix`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldRule {
    pub prefix: Vec<u8>,
    pub policy: HoldPolicy,
    /// Added to the time of a request that has to ask other datacenters; it only orders, and lets others'
    /// requests made meanwhile go first. Default 0, at most 500 ms.
    pub request_delay: Duration,
}

/// Most that [`HoldRule::request_delay`] may be.
pub const MAX_REQUEST_DELAY: Duration = Duration::from_millis(500);

/// How long parts are kept against the requests of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HoldPolicy {
    /// `min_keep`: after the last use, default 250 ms; 0 hands over at once. `max_keep`: since the first use,
    /// default 1 s, at least `min_keep`; a waiter elsewhere waits up to that for each datacenter before it.
    Fixed { min_keep: Duration, max_keep: Duration },
}

impl Default for HoldPolicy {
    fn default() -> HoldPolicy {
        HoldPolicy::Fixed { min_keep: Duration::from_millis(250), max_keep: Duration::from_secs(1) }
    }
}

impl Default for HoldRule {
    fn default() -> HoldRule {
        HoldRule { prefix: Vec::new(), policy: HoldPolicy::default(), request_delay: Duration::ZERO }
    }
}

/// How a lock was used here since a part of it last came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Usage {
    /// The first grant since.
    pub acquired_at: Option<Instant>,
    /// The last release that conflicts with the request that asks.
    pub last_release: Option<Instant>,
    /// A grant that conflicts with it is held now.
    pub held: bool,
}

impl HoldPolicy {
    /// Until when parts are kept against a request; in the past when it is due.
    pub(super) fn keep_until(&self, usage: Usage, now: Instant) -> Instant {
        let HoldPolicy::Fixed { min_keep, max_keep } = self;
        let last_used = if usage.held { Some(now) } else { usage.last_release };
        match (usage.acquired_at, last_used) {
            (Some(acquired_at), Some(last_used)) => (last_used + *min_keep).min(acquired_at + *max_keep),
            _ => Instant::ZERO,
        }
    }

    /// When to look again at a request that is not due: never later than when it becomes due if nothing
    /// else happens, and not over and over while a holder moves `last_used` along.
    pub(super) fn recheck_at(&self, usage: Usage, now: Instant) -> Instant {
        let HoldPolicy::Fixed { max_keep, .. } = self;
        match (usage.held, usage.acquired_at) {
            (true, Some(acquired_at)) => acquired_at + *max_keep,
            _ => self.keep_until(usage, now),
        }
    }

    /// After that long without use, a lock leaves at once whatever came before.
    pub(super) fn idle_after(&self) -> Duration {
        let HoldPolicy::Fixed { min_keep, .. } = self;
        *min_keep
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

    /// The index of the rule for a lock, for [`HoldRules::get`].
    pub fn find(&self, lock: &LockName) -> u32 {
        let index = self.0.iter().position(|rule| lock.as_bytes().starts_with(&rule.prefix));
        index.expect("the last rule has the empty prefix") as u32
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

    const POLICY: HoldPolicy =
        HoldPolicy::Fixed { min_keep: Duration::from_millis(250), max_keep: Duration::from_secs(1) };

    #[test]
    fn an_unused_lock_is_not_kept() {
        let usage = Usage { acquired_at: None, last_release: None, held: false };
        assert_eq!(POLICY.keep_until(usage, at(70)), Instant::ZERO);
    }

    #[test]
    fn a_lock_is_kept_a_little_after_its_last_use_and_not_for_ever() {
        let used =
            |first, last| Usage { acquired_at: Some(at(first)), last_release: Some(at(last)), held: false };
        assert_eq!(POLICY.keep_until(used(100, 200), at(210)), at(450));
        assert_eq!(POLICY.keep_until(used(100, 1_000), at(1_010)), at(1_100));
    }

    #[test]
    fn a_held_lock_is_kept_until_max_keep() {
        let usage = Usage { acquired_at: Some(at(100)), last_release: None, held: true };
        assert_eq!(POLICY.keep_until(usage, at(600)), at(850));
        assert_eq!(POLICY.recheck_at(usage, at(600)), at(1_100));
        assert_eq!(POLICY.keep_until(usage, at(1_100)), at(1_100));
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
