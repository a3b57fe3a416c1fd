//! Hears the other datacenters: links that come up, heartbeats, acknowledgements, and forks.

use std::time::Duration;

use super::copies::Copies;
use crate::base::bugs::Bug;
use crate::base::time::{Now, Timestamp};
use crate::causal_log::{Log, Violation};
use crate::crdt::VersionVector;
use crate::lock_state::Locks;
use crate::replica::NotServing;
use crate::replica::clients::Clients;
use crate::replica::config::ReplicaConfig;
use crate::replica::data::Data;
use crate::replica::ids::Ids;
use crate::replica::lend::lend;
use crate::replica::lifecycle::Lifecycle;
use crate::replica::members::Members;
use crate::replica::message::{Heartbeat, Message};
use crate::replica::outputs::Outputs;
use crate::replica::peers::Peers;
use geolock_api::names::{DcId, DcSet};

/// Hears the other datacenters: their links, heartbeats and acknowledgements, and forks.
pub(in crate::replica) struct Peering<'a> {
    pub(in crate::replica) config: &'a ReplicaConfig,
    pub(in crate::replica) now: Now,
    pub(in crate::replica) out: &'a mut Outputs,
    pub(in crate::replica) ids: &'a mut Ids,
    pub(in crate::replica) log: &'a mut Log,
    pub(in crate::replica) locks: &'a mut Locks,
    pub(in crate::replica) lifecycle: &'a mut Lifecycle,
    pub(in crate::replica) members: &'a mut Members,
    pub(in crate::replica) peers: &'a mut Peers,
    pub(in crate::replica) clients: &'a Clients,
    pub(in crate::replica) data: &'a mut Data,
    pub(in crate::replica) copies: &'a mut Copies,
}

impl Peering<'_> {
    pub(in crate::replica) fn on_link_up(&mut self, peer: DcId, version: u16) {
        if self.members.decided.config().witnesses().has_id(peer) {
            self.peers.witnesses.link_up(peer, version);
            self.members.asking.note_link_up(peer, version);
            lend!(Decisions, self).tell_decisions_to(peer);
            if self.members.decided.config().witnesses().at(peer).is_some() {
                lend!(LinkHandler, self).send_heartbeat(peer);
            }
            return;
        }
        // The edge may know of a new member before the machine does.
        let is_known = self.members.may_link(peer) || self.members.decided.may_lack_members();
        assert!(is_known, "a link to {peer}, which is no peer");
        // The edge tells of the end of a link before the next one.
        debug_assert!(!self.log.peer(peer).is_linked(), "the link to {peer} is up already");
        debug_assert!(!self.peers.inbox.holds_of(peer), "no entry of an earlier link to {peer} waits");
        self.peers.links.link_up(peer, self.out.position);
        self.data.acknowledgements.link_up(peer, version);
        self.log.peers_mut().link_up(peer);
        self.members.asking.note_link_up(peer, version);
        self.members.lease_limits.note_link_up(peer, version);
        self.peers.access_rules.note_link_up(peer, version);
        lend!(Clocks, self).tell_wall_clock(peer);
        lend!(Decisions, self).tell_decisions_to(peer);
        lend!(LinkHandler, self).tell_links();
    }

    /// Takes a message of a witness, which sends no others than these. One that was removed is only told
    /// that: it may be of a control group that a forced recovery has ended.
    pub(in crate::replica) fn on_witness_message(&mut self, witness: DcId, message: Message) {
        let is_removed = !self.peers.witnesses.voting(self.members.decided.config()).contains(witness);
        match message {
            Message::KnowsDecisions { index } => lend!(Decisions, self).on_knows_decisions(witness, index),
            _ if is_removed => {}
            Message::Decisions { after, proposals } => {
                lend!(Decisions, self).on_decisions(witness, after, proposals)
            }
            Message::Compacted(compacted) => lend!(Decisions, self).on_compacted(witness, *compacted),
            Message::HeartbeatAcks { own, of_receiver } => {
                lend!(FailureDetector, self).on_heartbeat_acks(witness, &own, &of_receiver)
            }
            Message::WitnessHears { hears } => self.on_witness_hears(witness, &hears),
            _ => {}
        }
    }

    fn on_witness_hears(&mut self, witness: DcId, hears: &[(DcId, Timestamp, u32)]) {
        for (_, clock, _) in hears.iter().filter(|(dc, ..)| *dc == self.config.dc) {
            lend!(Decisions, self).note_echo(witness, *clock);
        }
        let peers = self.members.peers();
        for (dc, clock, _) in hears.iter().filter(|(dc, ..)| peers.contains(*dc)) {
            lend!(LinkHandler, self).note_earlier(*dc, *clock);
        }
        let ages = hears.iter().map(|(dc, _, age_ms)| (*dc, Duration::from_millis(u64::from(*age_ms))));
        let recent = ages.filter(|(_, age)| *age <= self.config.agreed.peer_timeout);
        let members = self.members.decided.config().slots().member_set();
        self.peers.witnesses.note_hears(witness, recent, members, self.now.mono);
    }

    pub(in crate::replica) fn on_heartbeat_due(&mut self) {
        if self.lifecycle.state.is_starting() {
            return;
        }
        lend!(Comparison, self).update_stability();
        lend!(StateTransfer, self).expire_transfers();
        lend!(StateTransfer, self).truncate_log();
        lend!(LogRecovery, self).record_versions();
        self.locks.begin_idle_return(self.now.mono);
        lend!(LinkHandler, self).tell_links();
        lend!(Decisions, self).propose_settled();
        lend!(Decisions, self).propose_left();
        lend!(Decisions, self).propose_cancel();
        lend!(Decisions, self).propose_version();
        lend!(Decisions, self).tell_lease_limits();
        lend!(Decisions, self).compact_decisions();
        self.ask_for_needed_state();
        self.tell_access_rules();
        lend!(ForcedRecovery, self).drive_recovery();
        lend!(Decisions, self).drive_eviction();
        lend!(FailureDetector, self).drive_silence();
        lend!(FailureDetector, self).acknowledge_heartbeats();
        lend!(LogRecovery, self).ask_unlinked();
        // Entries of other members that had time to arrive by themselves are relayed.
        self.out.pump = true;
    }

    /// A member that cannot enter epochs one by one asks one that serves for its state.
    fn ask_for_needed_state(&mut self) {
        if !lend!(Decisions, self).asks_for_state() || self.config.bugs.has(Bug::NeededStateUnasked) {
            return;
        }
        let members = self.members.decided.config().slots().member_set();
        let linked = self.log.peers().linked().intersection(members);
        // One that has just started would not answer, and one that lacks something itself cannot help.
        let may_give = |peer: &DcId| {
            use NotServing::{Forked, ReadOnly, Starting};
            let why = self.peers.not_serving(*peer, self.log, self.now.mono);
            self.peers.links.has_told_heads(*peer) && !matches!(why, Some(Starting | ReadOnly | Forked))
        };
        let givers: Vec<DcId> = linked.iter().filter(may_give).collect();
        // The state of one may be of no use each time: the next heartbeat asks the next one.
        let beats = u128::from(self.now.mono.as_nanos()) / self.config.agreed.heartbeat.as_nanos().max(1);
        if !givers.is_empty() {
            let giver = givers[(beats % givers.len() as u128) as usize];
            lend!(StateTransfer, self).on_too_far_behind(giver, &VersionVector::default());
        }
    }

    pub(in crate::replica) fn on_heartbeat_with_versions(
        &mut self,
        peer: DcId,
        heartbeat: &Heartbeat,
    ) -> Result<(), Violation> {
        // Not of a refused peer: it has another member list, and `speaks` names those members.
        self.on_heartbeat(peer, heartbeat)?;
        lend!(LogRecovery, self).note_versions(&heartbeat.speaks);
        Ok(())
    }

    pub(in crate::replica) fn on_heartbeat(
        &mut self,
        peer: DcId,
        heartbeat: &Heartbeat,
    ) -> Result<(), Violation> {
        lend!(LinkHandler, self).check_heartbeat(peer, heartbeat)?;
        lend!(Clocks, self).note_lost_readings(heartbeat.yours);
        lend!(Clocks, self).note_reading(peer, heartbeat);
        let is_one_history = self.compare_histories(peer, heartbeat);
        if is_one_history {
            lend!(LogRecovery, self).note_floors(&heartbeat.floors);
        }
        for floor in heartbeat.floors.iter().filter(|floor| floor.dc != self.config.dc) {
            self.peers.stability.note(floor.clone(), peer);
        }
        self.peers.round_trips.note_heard(peer, heartbeat.clock, self.now.mono);
        let mut clocks = lend!(Clocks, self);
        let delay_ms = clocks.delay_ms(&heartbeat.heard);
        clocks.note_clock(peer, heartbeat.clock, delay_ms);
        lend!(Clocks, self).step_forward();
        if is_one_history {
            let others = self.members.peers().difference(DcSet::only(peer));
            for (dc, durable) in heartbeat.acknowledged.iter().filter(|(dc, _)| others.contains(*dc)) {
                self.log.note_relayed(*dc, durable);
            }
            self.note_vector(peer, &heartbeat.durable, heartbeat.linked);
        }
        lend!(LinkHandler, self).note_alive(peer, (peer, heartbeat), heartbeat.clock, Duration::ZERO);
        for (dc, clock, age_ms) in &heartbeat.heard {
            let age = Duration::from_millis(u64::from(*age_ms));
            if *dc == self.config.dc {
                lend!(LinkHandler, self).note_echo(peer, *clock, age);
                lend!(Decisions, self).note_echo(peer, *clock);
            }
            if !self.members.peers().contains(*dc) || *dc == peer {
                continue;
            }
            if age > self.config.agreed.peer_timeout {
                lend!(LinkHandler, self).note_earlier(*dc, *clock);
            } else {
                lend!(LinkHandler, self).note_alive(*dc, (peer, heartbeat), *clock, age);
            }
        }
        lend!(Clocks, self).note_skew();
        Ok(())
    }

    pub(in crate::replica) fn note_vector(&mut self, peer: DcId, durable: &VersionVector, linked: DcSet) {
        assert!(peer != self.config.dc, "{peer} announces its vector to others");
        self.data.acknowledgements.note_news();
        lend!(LogRecovery, self).note_own_log(peer, durable.get(self.config.dc));
        lend!(StateTransfer, self).note_taken(peer, durable);
        let too_far_behind = self.log.note_announced(peer, durable, linked);
        if !too_far_behind {
            self.peers.links.note_caught_up(peer);
        } else if lend!(LinkHandler, self).is_long_behind(peer) {
            lend!(StateTransfer, self).offer_state(peer);
        }
        lend!(StateTransfer, self).truncate_log();
        self.out.pump = true;
    }
}
