//! How long leases of clients may live in each datacenter. Each chooses that for itself, and the eviction of
//! one waits until no client of it can rely on a lock any more, so the others have to know.
//!
//! A datacenter says it on each link, and each passes on what it knows of others. What a datacenter says of
//! itself replaces what was known; what others say of it only raises that: it may be older.

use std::collections::BTreeMap;
use std::time::Duration;

use super::peering::Peering;
use crate::replica::message::Message;
use geolock_api::names::{DcId, DcSet};

/// The protocol version from which on datacenters say this.
const SAID_FROM: u16 = 5;
/// No configuration permits longer leases: what a faulty peer says keeps no eviction waiting for longer.
const LONGEST: Duration = Duration::from_secs(3_600);

/// The longest time to live of a client's lease in each datacenter, as far as is known here.
#[derive(Default)]
pub(in crate::replica) struct LeaseLimits {
    known: BTreeMap<DcId, Duration>,
    /// The peers with a link on which this is said.
    linked: DcSet,
}

impl LeaseLimits {
    /// A datacenter says this of itself.
    pub fn set(&mut self, dc: DcId, longest: Duration) -> bool {
        let longest = longest.min(LONGEST);
        self.known.insert(dc, longest) != Some(longest)
    }

    /// Another one says it of this datacenter.
    fn raise(&mut self, dc: DcId, longest: Duration) -> bool {
        let raised = self.known.get(&dc).copied().unwrap_or_default().max(longest.min(LONGEST));
        self.known.insert(dc, raised) != Some(raised)
    }

    pub fn link_down(&mut self, peer: DcId) {
        self.linked.remove(peer);
    }

    /// Returns what is known.
    pub fn known(&self) -> &BTreeMap<DcId, Duration> {
        &self.known
    }

    fn message(&self) -> Message {
        let millis = |(dc, longest): (&DcId, &Duration)| (*dc, longest.as_millis() as u64);
        Message::LongestLeases { longest: self.known.iter().map(millis).collect() }
    }
}

impl Peering<'_> {
    /// A link to a peer is up: says what is known here, if the peer understands it.
    pub(super) fn tell_lease_limits(&mut self, peer: DcId, version: u16) {
        // Without a control group nobody is evicted.
        if version >= SAID_FROM && self.config.has_control_group {
            self.peers.lease_limits.linked.insert(peer);
            let message = self.peers.lease_limits.message();
            self.out.send(self.log, peer, message);
        }
    }

    /// A peer says how long leases may live in its datacenter, and in others as far as it knows. News are
    /// passed on.
    pub(in crate::replica) fn on_longest_leases(&mut self, peer: DcId, longest: &[(DcId, u64)]) {
        let (me, members) = (self.config.dc, self.members.peers());
        let limits = &mut self.peers.lease_limits;
        let mut is_news = false;
        for (dc, millis) in longest.iter().filter(|(dc, _)| *dc != me && members.contains(*dc)) {
            let longest = Duration::from_millis(*millis);
            is_news |= if *dc == peer { limits.set(*dc, longest) } else { limits.raise(*dc, longest) };
        }
        if is_news {
            for other in self.peers.lease_limits.linked.difference(DcSet::only(peer)).iter() {
                let message = self.peers.lease_limits.message();
                self.out.send(self.log, other, message);
            }
        }
    }
}
