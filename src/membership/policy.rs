//! The policies and options that are agreed by decision.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::refused::Refused;
use crate::base::time::brief;

/// When a member that does not answer is evicted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub enum EvictPolicy {
    /// Never. Its locks wait until it is back.
    Wait,
    /// When an operator vouches that it does not run.
    #[default]
    Operator,
    /// Also when a majority of the voters has heard nothing of it for [`Policy::evict_after_ms`].
    Auto,
}

/// When a server may join.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum JoinPolicy {
    /// When an operator has invited it.
    #[default]
    Operator,
    /// When it has a certificate of the cluster.
    Auto,
}

/// The policy for evictions and joins, and the times that `auto` relies on. All times in milliseconds.
///
/// The policy `auto` is an epoch, and so are other times under `auto`. Voters count silence under the times
/// that are decided, and no member is evicted by silence before it has entered that epoch. A member enters it
/// only when no lease of its clients is longer than `max_lease_ttl_ms`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Policy {
    /// The policy for evictions.
    pub evict: EvictPolicy,
    /// For servers whose slot has no history, and for witnesses. Default `operator`.
    pub join: JoinPolicy,
    /// For the slot of a member that was evicted. Default `operator`; with `evict = auto`, `auto` is usual.
    pub rejoin: JoinPolicy,
    /// A member that a majority of the voters has not acknowledged for this long grants nothing. Default 10
    /// s, 1 s to 1 h. A lower value evicts sooner; a value that is too low stops grants on a hiccup.
    pub fence_after_ms: u32,
    /// A voter reports a member of which it has acknowledged nothing for this long. Default 30 s, 1 s to 1 d.
    pub evict_after_ms: u32,
    /// Longest time to live of a client's lease. Default 15 s, 1 s to 1 h. Locks of a lost member stay locked
    /// that long, because its clients may still rely on them.
    pub max_lease_ttl_ms: u32,
}

const SECOND: u32 = 1_000;
const HOUR: u32 = 3_600 * SECOND;
const DAY: u32 = 24 * HOUR;

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            evict: EvictPolicy::Operator,
            join: JoinPolicy::Operator,
            rejoin: JoinPolicy::Operator,
            fence_after_ms: 10 * SECOND,
            evict_after_ms: 30 * SECOND,
            max_lease_ttl_ms: 15 * SECOND,
        }
    }
}

/// The values of a policy that an operator sets. The others stay as they are when the change is decided, so
/// two operators who change different values at the same moment both get what they asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PolicyChange {
    /// See [`Policy::evict`].
    pub evict: Option<EvictPolicy>,
    /// See [`Policy::join`].
    pub join: Option<JoinPolicy>,
    /// See [`Policy::rejoin`].
    pub rejoin: Option<JoinPolicy>,
    /// See [`Policy::fence_after_ms`].
    pub fence_after_ms: Option<u32>,
    /// See [`Policy::evict_after_ms`].
    pub evict_after_ms: Option<u32>,
    /// See [`Policy::max_lease_ttl_ms`].
    pub max_lease_ttl_ms: Option<u32>,
}

impl PolicyChange {
    /// Returns the policy `now` after this change.
    pub fn of(&self, now: &Policy) -> Policy {
        Policy {
            evict: self.evict.unwrap_or(now.evict),
            join: self.join.unwrap_or(now.join),
            rejoin: self.rejoin.unwrap_or(now.rejoin),
            fence_after_ms: self.fence_after_ms.unwrap_or(now.fence_after_ms),
            evict_after_ms: self.evict_after_ms.unwrap_or(now.evict_after_ms),
            max_lease_ttl_ms: self.max_lease_ttl_ms.unwrap_or(now.max_lease_ttl_ms),
        }
    }
}

impl Policy {
    /// Returns the shortest [`Policy::evict_after_ms`] that is safe with the other times, in milliseconds:
    /// `(fence_after + max_lease_ttl) * 1.04 + 1 s`. Clocks may differ by 1.5 % each; the second covers
    /// messages and syncs in progress.
    pub fn min_evict_after_ms(&self) -> u64 {
        let both = u64::from(self.fence_after_ms) + u64::from(self.max_lease_ttl_ms);
        (both * 104).div_ceil(100) + u64::from(SECOND)
    }

    /// Returns the time after which a member that is not acknowledged grants nothing.
    pub fn fence_after(&self) -> Duration {
        Duration::from_millis(self.fence_after_ms.into())
    }

    /// Returns the time after which a voter is silent about a member.
    pub fn evict_after(&self) -> Duration {
        Duration::from_millis(self.evict_after_ms.into())
    }

    /// Returns the longest time to live of a client's lease.
    pub fn max_lease_ttl(&self) -> Duration {
        Duration::from_millis(self.max_lease_ttl_ms.into())
    }

    /// Returns an error if a time is out of its bounds or, under `auto`, if the times contradict each other.
    pub fn validate(&self) -> Result<(), Refused> {
        within("fence_after", self.fence_after_ms, SECOND, HOUR)?;
        within("evict_after", self.evict_after_ms, SECOND, DAY)?;
        within("max_lease_ttl", self.max_lease_ttl_ms, SECOND, HOUR)?;
        let least_ms = self.min_evict_after_ms();
        if self.evict == EvictPolicy::Auto && u64::from(self.evict_after_ms) < least_ms {
            return Err(Refused::TimesContradict {
                fence_after_ms: self.fence_after_ms,
                evict_after_ms: self.evict_after_ms,
                max_lease_ttl_ms: self.max_lease_ttl_ms,
                least_ms,
            });
        }
        Ok(())
    }
}

/// The options of `[cluster]` that all members have to agree on. All times in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AgreedOptions {
    /// Interval of heartbeats between members. Default 500 ms, 10 ms to 10 s.
    pub heartbeat_ms: u32,
    /// A member from which nothing new was heard for this long is unreachable. Default 3 s, at least 3
    /// heartbeats and at most 1 h.
    pub peer_timeout_ms: u32,
    /// An entry that is stamped further ahead than this is held back. Default 5 s, 100 ms to 1 h.
    pub max_clock_skew_ms: u32,
}

impl Default for AgreedOptions {
    fn default() -> AgreedOptions {
        AgreedOptions { heartbeat_ms: 500, peer_timeout_ms: 3 * SECOND, max_clock_skew_ms: 5 * SECOND }
    }
}

impl fmt::Display for EvictPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EvictPolicy::Wait => "wait",
            EvictPolicy::Operator => "operator",
            EvictPolicy::Auto => "auto",
        })
    }
}

impl fmt::Display for JoinPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JoinPolicy::Operator => "operator",
            JoinPolicy::Auto => "auto",
        })
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Policy { evict, join, rejoin, .. } = self;
        let [fence, after, ttl] = [self.fence_after(), self.evict_after(), self.max_lease_ttl()].map(brief);
        write!(
            f,
            "evict {evict}, join {join}, rejoin {rejoin}, fence after {fence}, evict after {after}, longest lease {ttl}"
        )
    }
}

impl fmt::Display for AgreedOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AgreedOptions { heartbeat_ms, peer_timeout_ms, max_clock_skew_ms } = self;
        let [heartbeat, timeout, skew] = [heartbeat_ms, peer_timeout_ms, max_clock_skew_ms]
            .map(|millis| brief(Duration::from_millis(u64::from(*millis))));
        write!(f, "heartbeat interval {heartbeat}, peer timeout {timeout}, max clock skew {skew}")
    }
}

impl AgreedOptions {
    /// Returns an error if an option is out of its bounds.
    pub fn validate(&self) -> Result<(), Refused> {
        within("heartbeat_interval", self.heartbeat_ms, 10, 10 * SECOND)?;
        within("peer_timeout", self.peer_timeout_ms, 3 * self.heartbeat_ms, HOUR)?;
        within("max_clock_skew", self.max_clock_skew_ms, 100, HOUR)
    }
}

fn within(option: &'static str, value_ms: u32, least_ms: u32, most_ms: u32) -> Result<(), Refused> {
    if (least_ms..=most_ms).contains(&value_ms) {
        return Ok(());
    }
    Err(Refused::OutOfBounds { option, value_ms, least_ms, most_ms })
}
