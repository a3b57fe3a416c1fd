//! The state that concerns the other datacenters: links, reachability, clocks, and comparisons of data.
//!
//! # Decisions
//!
//! - **Heartbeats are numbered by their clock, and a report about a third datacenter carries that clock**
//!   (`reachability.rs`). A bare "heard 200 ms ago" circulates between two survivors and can keep a dead
//!   datacenter alive; a higher clock comes only from the datacenter itself. When a link comes up or
//!   breaks, its ends report this to their other peers at once, so relaying starts without waiting for a
//!   heartbeat.
//! - **The first heartbeat on a link carries the vectors, the members, and the options that must be equal**
//!   (`terms.rs`). The hello of the link cannot: it belongs to `interdc`, which knows no log. The heartbeat
//!   follows on the same stream without another round trip. Digests of the access rules have a message of
//!   their own (`access_rules.rs`), because they change at a reload.
//! - **Entries wait until the peer that sends them has announced its heads** (`awaits_heads`,
//!   `docs/algorithm/recovery.md#6-two-histories`). A peer that has just started sends no heartbeat yet; it
//!   announces its heads with its wall clock.
//! - **A clock that is behind isolates its datacenter and does not stop it** (`clock_skew.rs`,
//!   `docs/algorithm/grants.md#23-clock-skew`). Rejected: advancing it by the stamps of others, because one
//!   fast clock would then advance all. A forward step is followed at once only if most members confirm it: a
//!   wrong time server often has several clients.
//! - **Replicas are compared at vectors that both passed** (`sums.rs`). With writers in several places two
//!   replicas may pass no common vector for a while; each pause of some round trips produces one. A
//!   mismatch is an alarm, never a repair.

pub(super) mod access_rules;
pub(super) mod anti_entropy;
mod check;
pub(super) mod clock_skew;
pub(super) mod copies;
pub(super) mod heartbeats;
pub(super) mod links;
pub(super) mod peering;
pub(super) mod reachability;
pub(super) mod round_trips;
pub(super) mod stability;
pub(super) mod sums;
pub(super) mod terms;
pub(super) mod told;
pub(super) mod transfer;
pub(super) mod witnesses;

use super::config::ReplicaConfig;
use super::lifecycle::{Lifecycle, NotServing};
use super::members::Members;
use crate::base::time::{Instant, Now};
use crate::causal_log::{Inbox, Log};
use crate::lock_state::Locks;
use crate::replica::members::member_lease::MemberLease;
use crate::replica::peers::access_rules::AccessRules;
use crate::replica::peers::anti_entropy::AntiEntropy;
use crate::replica::peers::links::Links;
use crate::replica::peers::reachability::Reachability;
use crate::replica::peers::round_trips::RoundTrips;
use crate::replica::peers::stability::Stability;
use crate::replica::peers::witnesses::Witnesses;
use geolock_api::names::{DcId, DcSet};

/// The state that concerns the other datacenters.
pub(super) struct Peers {
    pub inbox: Inbox,
    pub reachability: Reachability,
    pub links: Links,
    pub round_trips: RoundTrips,
    pub member_lease: MemberLease,
    pub witnesses: Witnesses,
    pub stability: Stability,
    pub anti_entropy: AntiEntropy,
    pub access_rules: AccessRules,
    pub heartbeat_at: Instant,
}

impl Peers {
    pub fn new(peers: DcSet, config: &ReplicaConfig, now: Now) -> Peers {
        Peers {
            inbox: Inbox::new(),
            reachability: Reachability::new(peers, config.agreed.peer_timeout),
            links: Links::new(),
            round_trips: RoundTrips::new(),
            member_lease: MemberLease::new(),
            witnesses: Witnesses::default(),
            stability: Stability::default(),
            anti_entropy: AntiEntropy::new(now.mono + config.local.anti_entropy_interval),
            access_rules: AccessRules::default(),
            heartbeat_at: now.mono,
        }
    }

    /// Returns true if entries of a peer have to wait until it has announced its heads: they may depend on
    /// another history, which they do not show. Version 1 does not announce heads.
    pub fn awaits_heads(&self, peer: DcId, lifecycle: &Lifecycle) -> bool {
        lifecycle.versions.are_chained() && !self.links.has_told_heads(peer)
    }

    /// Returns true if this peer is linked and has just started: it is unreachable, and the reason is known.
    pub fn is_starting(&self, peer: DcId, log: &Log) -> bool {
        log.peer(peer).is_linked() && self.links.is_starting(peer)
    }

    /// Returns the reason why a peer does not serve, if it was told.
    pub fn not_serving(&self, peer: DcId, log: &Log, now: Instant) -> Option<NotServing> {
        let starting = self.is_starting(peer, log).then_some(NotServing::Starting);
        starting.or_else(|| self.reachability.not_serving(peer, now))
    }

    /// Returns the members that are away, as seen from here.
    pub fn away(&self, members: &Members, lifecycle: &Lifecycle, locks: &Locks) -> DcSet {
        match locks.view().permissions.is_alone() || lifecycle.stalls.clock_behind_ms().is_some() {
            true => members.peers(),
            false => self.reachability.away(),
        }
    }
}
