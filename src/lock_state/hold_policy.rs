//! When a lock leaves a datacenter that keeps using it: the seam where policies differ.
//!
//! Moving a lock costs a WAN round trip and it will probably be used again where it is, so a datacenter keeps
//! parts for a while although another one asks:
//!
//! ```text
//! keep_until = min(last_used + patience, acquired_at + turn)
//! ```
//!
//! on this datacenter's monotonic clock: `last_used` is the last release of a grant that conflicts with the
//! request that asks (now, while one is held), `acquired_at` the first local grant since a part last came.
//! A lock not used since its parts came, or idle for its patience, leaves at once. These bounds limit how long
//! a datacenter keeps parts against others, never a holder.
//!
//! [`HoldPolicy::Fixed`] is told both. [`HoldPolicy::Adaptive`] finds both out, per lock, from what a move costs:
//!
//! - A lock that is always in use is used for `turn / (turn + cost)` of the time, wherever it is. So a turn is a multiple of the
//!   cost: ten times makes 10/11, and whoever waits elsewhere waits for no longer than that is worth.
//! - Waiting for somebody to come back is worth no more than the cost (as in ski rental, Karlin et al. 1988). So a
//!   lock leaves at once if who let it go usually stays away for longer, and else waits for as long as that rarely takes.

use std::time::Duration;

use super::returns::Returns;
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
    /// After that long without use, the parts of other datacenters go back to them: shared use is local everywhere again, and
    /// nobody has to remember the lock. Default 60 s, at least 1 s. Lower frees memory sooner; a lock that is used
    /// again here after it went home costs a round trip.
    pub go_home_after: Duration,
}

/// Default of [`HoldRule::go_home_after`].
pub const GO_HOME_AFTER: Duration = Duration::from_secs(60);

/// Most that [`HoldRule::request_delay`] may be.
pub const MAX_REQUEST_DELAY: Duration = Duration::from_millis(500);
/// Most that [`HoldPolicy::Adaptive`]'s `turn` may be: use for 999 of 1000.
pub const MAX_TURN: u32 = 1_000;

/// How long parts are kept against the requests of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HoldPolicy {
    /// `min_keep`: after the last use, default 250 ms; 0 hands over at once. `max_keep`: since the first use,
    /// default 1 s, at least `min_keep`; a waiter elsewhere waits up to that for each datacenter before it.
    Fixed { min_keep: Duration, max_keep: Duration },
    /// `turn`: how long a lock stays that is always in use, in multiples of what it costs to hand it to the datacenter that
    /// asks (its measured distance one way, and two syncs), 0 to 1000. `max_keep`: longest turn, whatever the distance.
    Adaptive { turn: u32, max_keep: Duration },
}

/// What a hand-over costs apart from the distance, about: the entry has to be on the disks of both ends. Measured: 0.7 to 2.1 ms.
const SYNCS: Duration = Duration::from_millis(1);
/// What counts as the distance of a datacenter that was not measured yet.
const UNKNOWN_DISTANCE: Duration = Duration::from_millis(25);

impl HoldPolicy {
    /// As much as possible of the time in use: turns of 30 hand-overs, up to 5 s.
    pub const THROUGHPUT: HoldPolicy = HoldPolicy::Adaptive { turn: 30, max_keep: Duration::from_secs(5) };
    /// Ten elevenths of the time in use, and nobody waits for longer than that takes: turns of ten hand-overs, up to 1 s.
    pub const FAIR: HoldPolicy = HoldPolicy::Adaptive { turn: 10, max_keep: Duration::from_secs(1) };
    /// Short waits elsewhere: turns of 3 hand-overs, up to 250 ms.
    pub const LATENCY: HoldPolicy = HoldPolicy::Adaptive { turn: 3, max_keep: Duration::from_millis(250) };
    /// As in Antidote: bounds that know nothing of distances.
    pub const FIXED: HoldPolicy =
        HoldPolicy::Fixed { min_keep: Duration::from_millis(250), max_keep: Duration::from_secs(1) };
}

impl Default for HoldPolicy {
    /// Fair: in mixed loads it does more than the fixed one with shorter waits, and of a lock that all want all the time it
    /// makes as much as any policy with the same waits (docs/performance.md).
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
            go_home_after: GO_HOME_AFTER,
        }
    }
}

/// How a lock was used here since a part of it last came, as a request of another datacenter sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Usage {
    /// The first grant since.
    pub acquired_at: Option<Instant>,
    /// The last release that conflicts with the request.
    pub last_release: Option<Instant>,
    /// A grant that conflicts with it is held now.
    pub held: bool,
    /// Somebody here waits for a grant that would conflict with it.
    pub wanted: bool,
    /// How soon such grants are usually wanted again here.
    pub returns: Returns,
    /// How far the datacenter is whose request comes first, one way.
    pub distance: Option<Duration>,
}

impl HoldPolicy {
    /// The longest that a lock is kept which is always in use.
    pub fn max_keep(&self) -> Duration {
        match self {
            HoldPolicy::Fixed { max_keep, .. } | HoldPolicy::Adaptive { max_keep, .. } => *max_keep,
        }
    }

    /// How long after its last use, and how long since its first.
    fn keep(&self, usage: &Usage) -> (Duration, Duration) {
        match self {
            HoldPolicy::Fixed { min_keep, max_keep } => (*min_keep, *max_keep),
            HoldPolicy::Adaptive { turn, max_keep } => {
                let cost = usage.distance.unwrap_or(UNKNOWN_DISTANCE) + SYNCS;
                (patience(usage, cost), (cost * *turn).min(*max_keep))
            }
        }
    }

    /// Until when parts are kept against a request; in the past when it is due.
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

    /// When to look again at a request that is not due: never later than when it becomes due if nothing
    /// else happens, and not over and over while a holder moves `last_used` along.
    pub(super) fn recheck_at(&self, usage: &Usage, now: Instant) -> Instant {
        match (usage.held, usage.acquired_at) {
            (true, Some(acquired_at)) => acquired_at + self.keep(usage).1,
            _ => self.keep_until(usage, now),
        }
    }

    /// After that long without use, a lock leaves at once whatever came before.
    pub(super) fn idle_after(&self) -> Duration {
        match self {
            HoldPolicy::Fixed { min_keep, .. } => *min_keep,
            // What is known of who comes back is worth keeping for a while.
            HoldPolicy::Adaptive { .. } => Duration::from_millis(250),
        }
    }
}

/// How long to wait for somebody here to come back. A hand-over costs `cost`; a small part of that is always worth waiting
/// for who is there already, or may be.
fn patience(usage: &Usage, cost: Duration) -> Duration {
    let least = cost / 20;
    match usage.returns.expected() {
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

    /// The index of the rule for a lock, for [`HoldRules::get`].
    pub fn find(&self, lock: &LockName) -> u32 {
        let index = self.0.iter().position(|rule| lock.as_bytes().starts_with(&rule.prefix));
        index.expect("the last rule has the empty prefix") as u32
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// After which time without use the first of all locks may go home.
    pub fn soonest_home(&self) -> Duration {
        self.0.iter().map(|rule| rule.go_home_after).min().expect("there is a rule")
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

    /// Used from `first` on, last let go at `last`.
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

    /// Comes back after so many milliseconds, to be handed 39 ms far.
    fn returning(millis: u64) -> Usage {
        let mut usage = Usage { distance: Some(Duration::from_millis(39)), ..used(100, 200) };
        for _ in 0..64 {
            usage.returns.note_release(false, at(0));
            usage.returns.note_request(at(millis));
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
        // Who is there is not sent away for what others did.
        assert_eq!(fair.keep_until(&Usage { wanted: true, ..returning(41) }, at(200)), at(202));
        let soon = fair.keep_until(&returning(20), at(200));
        assert!(soon > at(219) && soon <= at(240), "{soon:?}");
        assert_eq!(fair.keep_until(&returning(0), at(200)), at(202));
        let unknown = Usage { returns: Returns::default(), ..returning(0) };
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
