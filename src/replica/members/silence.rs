//! Eviction by time: voters that have heard nothing of a member for `evict_after` say so, and acknowledge its
//! heartbeats no more (`docs/algorithm/membership.md#5-eviction-by-time`).
//!
//! ```text
//! record    Silent   of a voter: from now on it acknowledges nothing of that member
//! decision  Silent   of the voter, once that is on disk
//! decision  Begin    when a majority of the voters is silent about a member
//! decision  Heard    instead, if the member is heard again: the voter acknowledges it when it knows that
//! ```
//!
//! So a voter that crashes after it has proposed its silence does not acknowledge the member before the
//! silence is taken back, whenever the proposal is decided.

use super::Members;
use super::silences::Listener;
use crate::base::bugs::Bug;
use crate::base::time::{Instant, Now, Timestamp};
use crate::causal_log::Log;
use crate::membership::{Command, Evictee, Eviction, Voter, VoterSet, Vouch};
use crate::replica::config::ReplicaConfig;
use crate::replica::effect::Effect;
use crate::replica::lifecycle::Lifecycle;
use crate::replica::message::Message;
use crate::replica::outputs::Outputs;
use crate::replica::peers::Peers;
use geolock_api::names::{DcId, DcSet};

/// The failure detector: acknowledges heartbeats of members, or says that this voter is silent about them.
pub(in crate::replica) struct FailureDetector<'a> {
    pub(in crate::replica) config: &'a ReplicaConfig,
    pub(in crate::replica) now: Now,
    pub(in crate::replica) out: &'a mut Outputs,
    pub(in crate::replica) log: &'a mut Log,
    pub(in crate::replica) lifecycle: &'a mut Lifecycle,
    pub(in crate::replica) members: &'a mut Members,
    pub(in crate::replica) peers: &'a mut Peers,
}

impl FailureDetector<'_> {
    /// Returns this member as a voter that listens. One that is cut off itself says nothing: no majority
    /// would agree.
    fn listener(&mut self) -> Listener<'_> {
        let promised = self.members.promised();
        let Members { decided, silences, .. } = &mut *self.members;
        Listener {
            bugs: self.config.bugs,
            now: self.now,
            out: self.out,
            decided,
            silences,
            reachability: &self.peers.reachability,
            promised,
            may_begin: self.lifecycle.member_lease.is_backed(),
        }
    }

    /// Returns true if this member may be evicted by time, and so has to stop granting by itself: it has
    /// entered the epoch from which on the others may do that.
    fn is_fenced(&self) -> bool {
        let Members { decided, entered, .. } = &*self.members;
        decided.config().fenced_since(decided.me()).is_some_and(|since| entered.epoch() >= since)
    }

    /// Returns the time until which this member is backed by a majority of every set of voters that may
    /// count.
    fn backed_until(&self) -> Instant {
        let (me, lease, config) = (self.config.dc, &self.peers.member_lease, self.members.decided.config());
        let Some(sets) = config.voter_sets_since(self.members.entered.epoch()) else { return Instant::ZERO };
        let backed_at = |set: &VoterSet| match set.can_do_without(me) {
            true => lease.backed_at(me, set, config.witnesses().link_ids(set)),
            false => Instant::FAR_FUTURE,
        };
        let now_evicting = config.attempt().map(|attempt| attempt.evicting());
        let rest = now_evicting.map(|evicting| backed_at(&config.voters().without(evicting)));
        let at = sets.iter().map(backed_at).chain(rest).min().unwrap_or(Instant::ZERO);
        match at {
            Instant::ZERO => Instant::ZERO,
            at => at + config.policy().fence_after(),
        }
    }

    /// Returns the members that may be evicted because a majority of the voters is silent about them; none if
    /// all are joining. A member that is not settled is evicted by time only together with another one.
    fn silenced(&self) -> DcSet {
        let Members { decided, entered, .. } = &*self.members;
        let (config, slots) = (decided.config(), decided.config().slots());
        let is_fenced = |dc: DcId| config.fenced_since(dc).is_some_and(|since| entered.epoch_of(dc) >= since);
        let is_silenced = |dc: &DcId| {
            let about: Vec<Voter> = config.silent_about(*dc).collect();
            (is_fenced(*dc) || !slots.is_settled(*dc)) && config.voters().is_majority(&about)
        };
        let silenced: DcSet = slots.member_set().iter().filter(is_silenced).collect();
        if silenced.iter().any(|dc| slots.is_settled(dc)) { silenced } else { DcSet::EMPTY }
    }

    /// Acknowledges heartbeats, and passes on what others have acknowledged.
    pub(in crate::replica) fn acknowledge_heartbeats(&mut self) {
        if !self.members.decided.evict_by_time() {
            return;
        }
        let members = self.members.peers();
        let own = self.listener().acknowledged(members);
        for peer in self.log.peers().linked().iter() {
            let of_receiver = self.peers.member_lease.of(peer).collect();
            let message = Message::HeartbeatAcks { own: own.clone(), of_receiver };
            self.out.send(self.log, peer, message);
        }
    }

    /// A peer has acknowledged heartbeats, and tells what others have acknowledged of those of this member.
    pub(in crate::replica) fn on_heartbeat_acks(
        &mut self,
        peer: DcId,
        own: &[(DcId, Timestamp)],
        of_receiver: &[(DcId, Timestamp)],
    ) {
        let (me, members) = (self.config.dc, self.members.peers());
        let lease = &mut self.peers.member_lease;
        let mut is_news = false;
        for (member, clock) in own.iter().filter(|(dc, _)| *dc != peer) {
            match *member == me {
                true => is_news |= lease.note_acknowledged(peer, *clock),
                false if members.contains(*member) => lease.note_of_other(peer, *member, *clock),
                false => {}
            }
        }
        for (voter, clock) in of_receiver.iter().filter(|(dc, _)| *dc != me) {
            is_news |= lease.note_acknowledged(*voter, *clock);
        }
        if is_news {
            self.follow_member_lease();
        }
    }

    /// The time until which this member is backed may have changed.
    pub(in crate::replica) fn follow_member_lease(&mut self) {
        let until = self.backed_until();
        let is_fenced = self.is_fenced() && !self.config.bugs.has(Bug::GrantsUnbacked);
        self.lifecycle.on_member_lease(until, is_fenced, self.now.mono);
        self.lifecycle.member_lease.limit_leases(self.members.decided.longest_lease());
    }

    /// Says, with each heartbeat, about which members this voter is silent, and evicts those about which a
    /// majority is silent.
    pub(in crate::replica) fn drive_silence(&mut self) {
        // One that needs a state helps to evict nobody: that may be the only one that has it.
        if !self.members.decided.evict_by_time() || self.members.needs_state() {
            return self.members.silences.stop();
        }
        if self.members.decided.own_vote().is_some() {
            let members = self.members.decided.config().slots().member_set();
            let others = members.difference(DcSet::only(self.config.dc));
            let recorded = self.listener().drive(others);
            self.members.goes_on_at = recorded.or(self.members.goes_on_at);
        } else {
            self.members.silences.stop();
        }
        let alive = self.peers.reachability.alive(self.now.mono);
        self.evict_silenced(alive);
    }

    /// The first voter that lives begins the eviction of those about which a majority is silent; if all
    /// voters that live are witnesses, the first settled member.
    fn evict_silenced(&mut self, alive: DcSet) {
        let config = self.members.decided.config();
        let (slots, me) = (config.slots(), self.config.dc);
        let is_lost = |dc: &DcId| slots.is_settled(*dc) || !alive.contains(*dc);
        let silenced: DcSet = self.silenced().iter().filter(is_lost).collect();
        assert!(self.members.decided.evict_by_time(), "silence evicts only by the policy");
        let up = alive.union(DcSet::only(me)).difference(silenced);
        let voter = up.intersection(config.voters().members()).iter().next();
        let first = voter.or_else(|| up.iter().find(|dc| slots.is_settled(*dc)));
        let is_member = self.members.decided.own_member().is_some();
        if silenced.is_empty() || first != Some(me) || !is_member || config.attempt().is_some() {
            return;
        }
        let evictee =
            |dc| Some(Evictee { dc, generation: slots.generation(dc)?, last_heard: Timestamp::default() });
        let members = silenced.iter().filter_map(evictee).collect();
        let eviction = Eviction { members, vouch: Vouch::Silence, recut: None };
        let facts = self.members.facts(self.peers, self.config, self.now);
        let Ok(proposal) = config.check_proposal(&facts, Command::Begin(eviction)) else { return };
        // It names more: those that end with them. All others have to report. One that does not live is
        // silenced soon, too.
        let Command::Begin(eviction) = &proposal.command else { return };
        if alive.union(DcSet::only(me)).is_superset(slots.member_set().difference(eviction.slots())) {
            self.out.effects.push_back(Effect::Propose(Box::new(proposal)));
        }
    }
}
