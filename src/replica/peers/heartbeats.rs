//! Heartbeats: the state of a datacenter and its reports of other members, sent to each peer every
//! `heartbeat`.
//!
//! The clock reading in a heartbeat is covered by a durable reservation, so a restart continues above it
//! (`docs/algorithm/grants.md#22-reservation`).

use super::links::{LinkHandler, acknowledged_for};
use super::terms::Terms;
use crate::base::bugs::Bug;
use crate::base::time::Timestamp;
use crate::replica::lifecycle::heads_to_tell;
use crate::replica::message::{Heartbeat, Message};
use crate::replica::outputs::output_commit::Output;
use geolock_api::names::DcId;

impl LinkHandler<'_> {
    /// Sends nothing while the clock may not be read; the next phase sends the heartbeat.
    pub(in crate::replica) fn send_heartbeat(&mut self, peer: DcId) {
        if self.lifecycle.state.is_starting() || self.out.output_commit.awaits_heartbeat(peer) {
            return;
        }
        let clock = self.ids.stamp(self.out);
        let recorded = self.peers.links.rows[peer.index()].recorded;
        let position = self.ids.reservations.position_of(clock, 0).max(recorded);
        if position > self.out.output_commit.durable() {
            // Rare unless the link is new, because the reservation is renewed ahead of time. With the next
            // reservation a higher reading can be sent.
            let position = self.ids.reservations.next_position().max(recorded);
            return self.out.output_commit.queue(position, Output::Heartbeat(peer));
        }
        self.tell_heartbeat(peer, clock);
    }

    /// The position that a heartbeat waited for is durable. If that took so long that the clock has passed
    /// the reservation meanwhile, the reservation itself is sent: nothing is stamped below it any more. So a
    /// slow disk makes no datacenter unreachable.
    pub(in crate::replica) fn send_waiting_heartbeat(&mut self, peer: DcId) {
        if self.lifecycle.state.is_starting() {
            return;
        }
        let (clock, told) = (self.ids.stamp(self.out), self.peers.links.rows[peer.index()].told);
        // An older reading would look like a wrong clock.
        let limit = (self.config.agreed.max_clock_skew / 2).min(self.config.agreed.peer_timeout);
        let is_recorded = self.peers.links.rows[peer.index()].recorded <= self.out.output_commit.durable();
        let may_tell = |bound: &Timestamp| told < *bound && *bound < clock && bound.plus(limit) >= clock;
        match self.ids.reservations.own_clock().filter(|bound| is_recorded && may_tell(bound)) {
            Some(bound) => self.tell_heartbeat(peer, bound),
            None => self.send_heartbeat(peer),
        }
    }

    fn tell_heartbeat(&mut self, peer: DcId, clock: Timestamp) {
        let (durable, row) = (self.out.output_commit.durable(), &self.peers.links.rows[peer.index()]);
        debug_assert!(clock > row.told, "heartbeats to {peer} are numbered: {clock} after {}", row.told);
        let recorded = row.recorded;
        assert!(recorded <= durable, "{peer} believes a log up to {recorded:?}, {durable:?} is durable");
        let reserved = self.ids.reservations.position_of(clock, 0);
        assert!(reserved <= durable, "{clock} is reserved at {reserved:?}, {durable:?} is durable");
        let durable = if self.config.bugs.has(Bug::VectorFromMemory) {
            self.log.applied().clone()
        } else {
            (**self.log.durable()).clone()
        };
        let (linked, mut heard) = (self.log.peers().linked(), self.peers.reachability.told(self.now.mono));
        if let Some((clock, age_ms)) = self.peers.round_trips.echo(peer, self.now.mono) {
            // The peer's own heartbeat: others may have reported a later one, but the peer needs the age of
            // this one, however long it was silent.
            heard.retain(|(dc, ..)| *dc != peer);
            heard.push((peer, clock, age_ms));
        }
        let here = self
            .lifecycle
            .not_serving(self.clients.grace_left(self.config, self.now))
            .map(|why| (self.config.dc, why));
        let not_serving =
            here.into_iter().chain(self.peers.reachability.told_not_serving(self.now.mono)).collect();
        let terms = Terms::of(self.members.configured(), &self.config.agreed);
        let before = self.peers.links.reading_before(peer, self.ids.lead.millis);
        let yours = before.map(|(at, when)| (at, self.now.mono.saturating_since(when).as_millis() as u64));
        let heartbeat = Heartbeat {
            clock,
            durable,
            linked,
            heard,
            floors: self.peers.stability.told(),
            not_serving,
            terms,
            heads: heads_to_tell(self.config, self.log),
            fork: self.lifecycle.state.fork().map(|fork| (fork.dc, fork.seq)),
            speaks: self.lifecycle.versions.to_tell(),
            lead_ms: self.ids.lead.millis,
            acknowledged: acknowledged_for(self.log, peer),
            yours,
        };
        let (now, limit) = (self.now.mono, self.config.agreed.max_clock_skew);
        let is_taken = self.peers.links.may_take(peer, clock, now, limit);
        let is_remembered = is_taken && !self.config.bugs.has(Bug::ToldNotRemembered);
        self.peers.links.note_told(peer, clock, is_remembered.then_some(now));
        if self.members.decided.evict_by_time() {
            let fence_after = self.members.decided.config().policy().fence_after();
            self.peers.member_lease.note_sent(clock, self.now.mono, fence_after);
        }
        self.peers.round_trips.note_sent(peer, clock, self.now.mono, self.config.agreed.peer_timeout);
        let message = Message::Heartbeat(Box::new(heartbeat));
        match self.peers.witnesses.linked().contains(peer) {
            true => self.out.send_beside_log(peer, message),
            false => self.out.send(self.log, peer, message),
        }
    }
}
