//! The version of protocols and formats that the cluster uses (`docs/algorithm/membership.md#9-versions`).
//!
//! Members and witnesses are upgraded one after the other. While some speak a later version than others, no
//! member joins or leaves and no rule changes: a new member would have to understand both. When all speak it,
//! it is decided that the cluster uses it, and from then on only servers that speak it can join.

use std::collections::BTreeMap;

use super::{Decisions, Members};
use crate::base::bugs::Bug;
use crate::base::wire;
use crate::membership::{Command, Voter};
use crate::replica::effect::Effect;
use crate::replica::lifecycle::Lifecycle;
use crate::replica::peers::Peers;

/// Returns the highest version that each member and witness speaks, as far as it is known.
pub(in crate::replica) fn spoken_versions(
    members: &Members,
    lifecycle: &Lifecycle,
    peers: &Peers,
) -> BTreeMap<Voter, u16> {
    let config = members.decided.config();
    let of_members = config
        .slots()
        .members()
        .map(|(dc, member)| (Voter::Member { dc, generation: member.generation }, lifecycle.versions.of(dc)));
    let witnesses = config.witnesses().iter();
    let of_witnesses =
        witnesses.filter_map(|(id, it)| Some((Voter::Witness(id), peers.witnesses.version(it.dc)?)));
    of_members.chain(of_witnesses).collect()
}

impl Decisions<'_> {
    /// Proposes that the cluster uses the version that all speak. A proposal may be lost, so it is repeated
    /// with each heartbeat.
    pub(in crate::replica) fn propose_version(&mut self) {
        let config = self.members.decided.config();
        let early = self.config.bugs.has(Bug::VersionTooEarly);
        let version = if early { self.config.speaks } else { wire::to_decide(self.lifecycle.versions.all()) };
        if version <= config.version() || config.index().0 == 0 {
            return;
        }
        if let Ok(proposal) = self.checked(Command::Version { version }) {
            self.out.effects.push_back(Effect::Propose(Box::new(proposal)));
        }
    }
}
