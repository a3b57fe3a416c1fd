//! Dispatches the messages of peers to the sub-machines.

use super::Replica;
use super::lend::lend;
use super::message::Message;
use crate::causal_log::Violation;
use crate::replica::peers::terms::Terms;
use geolock_api::names::DcId;

impl Replica {
    pub(super) fn on_link_down(&mut self, peer: DcId) {
        if self.peers.witnesses.link_down(peer) {
            return;
        }
        self.log.peers_mut().link_down(peer);
        self.peers.inbox.clear(peer);
        self.peers.links.link_down(peer);
        self.data.counter_escrow.link_down(peer);
        lend!(StateTransfer, self).stop_giving(peer);
        self.copies.transfers.stop_taking_from(peer);
        lend!(Describer, self).descriptions_without(peer);
        lend!(LinkHandler, self).tell_links();
    }

    pub(super) fn on_received(&mut self, peer: DcId, message: Message) {
        if self.peers.witnesses.linked().contains(peer) {
            return lend!(Peering, self).on_witness_message(peer, message);
        }
        if self.peers.links.is_closing(peer) || !self.log.peer(peer).is_linked() {
            return;
        }
        let has_waited = self.peers.awaits_heads(peer, &self.lifecycle);
        if let Err(violation) = self.take_message(peer, message) {
            self.close_link(peer, violation);
        }
        if has_waited && !self.peers.awaits_heads(peer, &self.lifecycle) {
            self.drain_inbox();
        }
    }

    fn take_message(&mut self, peer: DcId, message: Message) -> Result<(), Violation> {
        match message {
            Message::Heartbeat(heartbeat) => {
                lend!(Peering, self).on_heartbeat_with_versions(peer, &heartbeat)?
            }
            Message::Entries(entries) => self.on_entries(peer, entries)?,
            Message::HeartbeatV2(heartbeat) => {
                self.lifecycle.versions.admit(2)?;
                lend!(Peering, self).on_heartbeat_with_versions(peer, &heartbeat)?;
            }
            Message::HeartbeatV1(mut heartbeat) => {
                self.lifecycle.versions.admit(1)?;
                // Version 1 does not carry them.
                heartbeat.terms = Terms::of(self.members.configured(), &self.config.agreed);
                lend!(Peering, self).on_heartbeat(peer, &heartbeat)?;
            }
            Message::EntriesV1(entries) => {
                self.lifecycle.versions.admit(1)?;
                self.on_entries(peer, entries)?;
            }
            Message::HeldBack { durable } => {
                self.log.note_missing(peer, &durable);
                self.out.pump = true;
            }
            Message::AskHolders { query, locks } => {
                lend!(Describer, self).on_ask_holders(peer, query, &locks)?
            }
            Message::Holders { query, holders } => lend!(Describer, self).on_holders(peer, query, holders),
            Message::Compare { durable, sum } => lend!(Comparison, self).on_compare(peer, &durable, sum),
            Message::Sums { shown, owned } => lend!(Comparison, self).on_sums(peer, &shown, &owned),
            Message::AskRights { key, amount } => lend!(Writer, self).on_ask_rights(peer, key, amount),
            Message::Digests { durable, digest } => {
                lend!(Comparison, self).on_digests(peer, &durable, &digest)
            }
            Message::TooFarBehind { truncated } => {
                lend!(StateTransfer, self).on_too_far_behind(peer, &truncated)
            }
            Message::AskState { anew, more } => lend!(StateTransfer, self).on_ask_state(peer, anew, more),
            Message::State(piece) => self.on_state(peer, piece)?,
            Message::AskLog { of, run, round } => {
                lend!(LogRecovery, self).on_ask_log(peer, of, run, round)?
            }
            Message::WallClock { millis, durable, heads } => {
                lend!(Clocks, self).on_wall_clock(peer, millis);
                lend!(Peering, self).compare_heads(peer, &durable, &heads);
            }
            Message::KnowsLog { of, run, by, seq } => {
                lend!(LogRecovery, self).on_knows_log(peer, of, run, (by, seq))?
            }
            Message::AckWanted { seq } => lend!(MajorityCommits, self).on_ack_wanted(peer, seq),
            Message::Acknowledged { durable, heads } => {
                lend!(Peering, self).on_acknowledged(peer, &durable, &heads)?
            }
            Message::KnowsDecisions { index } => lend!(Decisions, self).on_knows_decisions(peer, index),
            Message::HeartbeatAcks { own, of_receiver } => {
                lend!(FailureDetector, self).on_heartbeat_acks(peer, &own, &of_receiver)
            }
            Message::LongestLeases { of } => lend!(Decisions, self).on_longest_leases(&of),
            Message::AccessRules(digests) => lend!(Peering, self).on_access_rules_of(peer, digests),
            Message::Recovery(message) => lend!(ForcedRecovery, self).on_recovery(peer, *message),
            Message::Decisions { after, proposals } => {
                lend!(Decisions, self).on_decisions(peer, after, proposals)
            }
            Message::Compacted(compacted) => lend!(Decisions, self).on_compacted(peer, *compacted),
            // Of a server that is no witness any more, or none yet, as far as is known here.
            Message::WitnessHears { .. } => {}
        }
        Ok(())
    }
}
