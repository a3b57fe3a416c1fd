//! How long the leases of each member's clients may be: whoever ends a member that is lost waits for so long.
//!
//! Each server has a limit of its own (`limits.max_lease_ttl`), and a server that is lost cannot be asked any
//! more. So every member tells its limit, and what it knows of others, while it can. Nothing rests on it but
//! that wait, so it is kept in memory, and of a member that told nobody the longest possible lease is
//! assumed.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Decisions;
use crate::base::bugs::Bug;
use crate::base::wire::LEASES_VERSION;
use crate::membership::{Config, Generation};
use crate::replica::config::{MAX_LEASE_TTL, ReplicaConfig};
use crate::replica::message::Message;
use crate::replica::peers::told::Told;
use geolock_api::names::DcId;

/// The limits of all members, as far as they are known.
#[derive(Default)]
pub(in crate::replica) struct LeaseLimits {
    /// The highest limit that the last server of each slot has told, in milliseconds: leases from before a
    /// restart with a lower one may still be relied on.
    told: BTreeMap<DcId, (Generation, u32)>,
    peers: Told,
}

impl LeaseLimits {
    pub(in crate::replica) fn note_link_up(&mut self, peer: DcId, version: u16) {
        self.peers.note_link_up(peer, version >= LEASES_VERSION);
    }

    fn note(&mut self, dc: DcId, generation: Generation, longest_ms: u32) {
        if self.told.get(&dc).is_none_or(|known| *known < (generation, longest_ms)) {
            self.told.insert(dc, (generation, longest_ms));
            self.peers.renew();
        }
    }

    fn rows(&self) -> Vec<(DcId, Generation, u32)> {
        self.told.iter().map(|(dc, (generation, longest))| (*dc, *generation, *longest)).collect()
    }

    /// Returns the longest lease that a client of each member may have.
    pub(in crate::replica) fn of_members(
        &self,
        config: &Config,
        own: &ReplicaConfig,
    ) -> BTreeMap<DcId, Duration> {
        let is_guessed = own.bugs.has(Bug::LeaseLimitsUnheard);
        let untold = if is_guessed { own.local.max_lease_ttl } else { MAX_LEASE_TTL };
        let limit = |dc: DcId, generation| match self.told.get(&dc) {
            Some((of, longest)) if *of == generation => {
                Duration::from_millis((*longest).into()).min(MAX_LEASE_TTL)
            }
            _ => untold,
        };
        config.slots().members().map(|(dc, member)| (dc, limit(dc, member.generation))).collect()
    }
}

impl Decisions<'_> {
    /// With each heartbeat: tells the peers what they were not told yet.
    pub(in crate::replica) fn tell_lease_limits(&mut self) {
        let own = self.members.decided.own_member().map(|member| member.generation);
        let Some(generation) = own.filter(|_| self.config.has_control_group) else { return };
        let longest = self.config.local.max_lease_ttl.min(MAX_LEASE_TTL);
        let limits = &mut self.members.lease_limits;
        limits.note(self.config.dc, generation, longest.as_millis() as u32);
        for peer in limits.peers.take_untold(self.log.peers().linked()).iter() {
            self.out.send(self.log, peer, Message::LongestLeases { of: limits.rows() });
        }
    }

    /// A peer has told limits.
    pub(in crate::replica) fn on_longest_leases(&mut self, of: &[(DcId, Generation, u32)]) {
        for (dc, generation, longest) in of {
            if *dc != self.config.dc && !self.config.bugs.has(Bug::LeaseLimitsUnheard) {
                self.members.lease_limits.note(*dc, *generation, *longest);
            }
        }
    }
}
