//! Decisions: how they come, are recorded and passed on.
//!
//! The control group orders proposals. Members tell each other how many decisions they know, and send each
//! other what is missing, so one without a way to the leader learns them, too.

use std::collections::BTreeMap;
use std::time::Duration;

use super::join::split_unseen;
use super::listing::Missing;
use super::pending::Kind;
use super::rehoming::rule_unseen;
use super::versions::spoken_versions;
use super::{ListState, Members};
use crate::base::bugs::{Bug, Bugs};
use crate::base::time::{Now, Timestamp};
use crate::base::wire::COMPACTS_VERSION;
use crate::causal_log::Log;
use crate::crdt::HomeRules;
use crate::lock_state::Locks;
use crate::membership::{Command, Facts, Index, Lineage, Proposal, Refused, Unsettled, Voter};
use crate::replica::config::ReplicaConfig;
use crate::replica::effect::{Effect, Report};
use crate::replica::lend::lend;
use crate::replica::lifecycle::Lifecycle;
use crate::replica::message::Message;
use crate::replica::outputs::Outputs;
use crate::replica::peers::Peers;
use crate::replica::peers::reachability::Reachability;
use crate::replica::record::Record;
use geolock_api::names::DcId;

impl Members {
    /// Applies the next decision.
    pub(super) fn decide(&mut self, index: Index, proposal: Proposal) {
        // One that the config refuses is a decision without effect.
        let Ok(change) = self.decided.apply(index, proposal) else { return };
        if let Some(change) = change {
            if let Kind::Admits(admitted) = change.kind {
                self.silences.forget(admitted.dc);
            }
            self.pending.push(change);
        }
        self.recovering.end_promises(self.decided.config().lineage());
        self.stay.follow(&self.decided);
    }

    /// Returns the facts that only this member knows, for the check of a proposal.
    pub(super) fn facts(&self, peers: &Peers, config: &ReplicaConfig, now: Now) -> Facts {
        let reachable = self.peers().difference(peers.reachability.unreachable());
        let (me, config_now) = (self.decided.me(), self.decided.config());
        let slots = config_now.slots();
        let members = || slots.members().map(|(dc, member)| (dc, member.generation));
        let is_reachable = |dc: DcId| dc == me || reachable.contains(dc);
        let voter = |(dc, generation)| Voter::Member { dc, generation };
        let alive = peers.witnesses.alive(now.mono, config.agreed.peer_timeout);
        let witnesses = config_now.witnesses().iter().filter(|(_, witness)| alive.contains(witness.dc));
        let reached = members().filter(|(dc, _)| is_reachable(*dc)).map(voter);
        Facts {
            me: Some(me),
            entered: members().map(|(dc, _)| (dc, self.entered.epoch_of(dc))).collect(),
            left: self.entered.left(),
            freed: self.ended_slots.freed(),
            heard: self.heard(peers, now),
            heard_within: config.agreed.peer_timeout,
            last_clocks: self.last_clocks(peers),
            reachable: reached.chain(witnesses.map(|(id, _)| Voter::Witness(id))).collect(),
            ..Facts::default()
        }
    }

    /// Returns the clock of the last heartbeat of each other member that anybody has heard.
    pub fn last_clocks(&self, peers: &Peers) -> BTreeMap<DcId, Timestamp> {
        let clock = |dc| Some((dc, peers.reachability.newest_clock(dc)?));
        self.peers().iter().filter_map(clock).collect()
    }

    /// Returns when some member or witness heard each member last, as far as is known here.
    fn heard(&self, peers: &Peers, now: Now) -> BTreeMap<DcId, (Voter, Duration)> {
        let (me, config) = (self.decided.me(), self.decided.config());
        let by = Voter::Member { dc: me, generation: config.slots().generation(me).unwrap_or_default() };
        let own = peers.reachability.heard(now.mono).into_iter();
        let own = own.map(|(dc, _, age_ms)| (dc, (by, Duration::from_millis(u64::from(age_ms)))));
        let mut heard: BTreeMap<DcId, (Voter, Duration)> = own.collect();
        for (witness, dc, ago) in peers.witnesses.heard(now.mono) {
            let Some((id, _)) = config.witnesses().at(witness) else { continue };
            if heard.get(&dc).is_none_or(|(_, before)| ago < *before) {
                heard.insert(dc, (Voter::Witness(id), ago));
            }
        }
        heard
    }
}

/// Returns true if a member has an entry on disk as far as is known here, or cannot be reached: then it is
/// not waited for.
pub(super) fn may_be_relied_on(
    members: &Members,
    log: &Log,
    reachability: &Reachability,
    dc: DcId,
    (of, seq): (DcId, u64),
) -> bool {
    match dc == members.decided.me() {
        true => log.durable().get(of) >= seq,
        false => log.peer(dc).acknowledged().has(of, seq) || !reachability.is_reachable(dc),
    }
}

/// Returns the members that changes have to wait for, as a proposer here sees it.
pub(in crate::replica) fn unsettled(
    members: &Members,
    rules: &HomeRules,
    log: &Log,
    reachability: &Reachability,
    bugs: Bugs,
) -> Unsettled {
    Unsettled {
        unsplit: members.joins.parts(),
        split_unseen: split_unseen(members, log, reachability, bugs),
        rule_unseen: rule_unseen(members, rules, log, reachability, bugs),
    }
}

/// Goes on with the state after decisions that are compacted elsewhere, and of which some are not known here.
pub(super) fn go_on_after(members: &mut Members, compacted: &ListState, bugs: Bugs) {
    let Members { decided, entered, pending, silences, recovering, stay, .. } = members;
    let (before, config) = (decided.config(), compacted.config());
    compacted.renewed_since(before).iter().for_each(|dc| silences.forget(dc));
    // Also one that is known and was to be entered: the decision that says how is gone from the list.
    if config.epoch() > entered.epoch() && !bugs.has(Bug::ServesWithoutCompacted) {
        pending.push_compacted(config.epoch());
        stay.forget();
    }
    decided.go_on_after(compacted);
    recovering.end_promises(decided.config().lineage());
    stay.follow(decided);
}

/// Follows the decisions of the control group.
pub(in crate::replica) struct Decisions<'a> {
    pub(in crate::replica) config: &'a ReplicaConfig,
    pub(in crate::replica) now: Now,
    pub(in crate::replica) out: &'a mut Outputs,
    pub(in crate::replica) log: &'a mut Log,
    pub(in crate::replica) locks: &'a mut Locks,
    pub(in crate::replica) lifecycle: &'a mut Lifecycle,
    pub(in crate::replica) members: &'a mut Members,
    pub(in crate::replica) peers: &'a mut Peers,
}

impl Decisions<'_> {
    /// The control group says that this is decision number `index`. One of an earlier control group does not
    /// count once its lineage is over, or this member has promised to go on without it.
    pub(in crate::replica) fn on_decided(&mut self, lineage: Lineage, index: Index, proposal: Proposal) {
        if lineage == self.members.decided.config().lineage() && self.members.recovering.heeds(None) {
            self.learn(index, proposal);
        }
    }

    /// The control group, or a peer, says that this is decision number `index`. One that is known already
    /// changes nothing; one that does not follow comes again.
    fn learn(&mut self, index: Index, proposal: Proposal) {
        if index != self.members.decided.config().index().next() {
            return;
        }
        self.out.persist(Record::Decided { index, proposal: Box::new(proposal.clone()) });
        if matches!(proposal.command, Command::End { .. } | Command::Abort { .. } | Command::Recover(_)) {
            // Entries of one that was to be evicted were held back.
            self.peers.links.retry_at_most(self.now.mono);
        }
        let is_recovery = matches!(proposal.command, Command::Recover(_));
        self.take_decision(index, proposal);
        self.members.decided.list.note_learnt(self.now.wall.0);
        self.members.goes_on_at = Some(self.out.position);
        if is_recovery {
            self.members.note_recovery(self.out.position);
        }
        self.tell_decisions();
    }

    /// Takes in a decision that is recorded.
    pub(in crate::replica) fn take_decision(&mut self, index: Index, proposal: Proposal) {
        self.members.decide(index, proposal);
        assert_eq!(
            self.members.decided.config().index(),
            index,
            "a decision that is taken in is the last one"
        );
        self.follow_decisions();
    }

    /// Takes in the state after compacted decisions, which is recorded.
    pub(in crate::replica) fn take_compacted(&mut self, compacted: &ListState) {
        go_on_after(self.members, compacted, self.config.bugs);
        self.follow_decisions();
    }

    /// The decisions that are known have changed.
    fn follow_decisions(&mut self) {
        self.members.note_promise(self.out.position, self.now.mono);
        self.end_asking();
        self.follow_peers();
    }

    /// Returns true if the question of this run is answered now.
    fn end_asking(&mut self) -> bool {
        let Members { asking, decided, .. } = self.members;
        asking.end_if_answered(decided)
    }

    /// The peers, or the right to serve, may have changed.
    pub(in crate::replica) fn follow_peers(&mut self) {
        self.log.peers_mut().set_peers(self.members.peers());
        self.peers.reachability.set_peers(self.members.peers());
        let awaits_ended = self.config.bugs.has(Bug::AwaitsTheEnded);
        let to_hear = match awaits_ended {
            true => self.members.peers(),
            false => self.members.decided.to_hear(self.members.entered.all()),
        };
        self.lifecycle.set_peers(self.members.peers(), to_hear);
        let is_early = self.config.bugs.has(Bug::ServesUnsettled) && !self.members.decided.awaits_state();
        self.lifecycle.on_may_serve(self.members.may_serve() || is_early);
        self.lifecycle.on_may_be_over(self.members.asking.is_open());
        if self.members.decided.was_evicted() && !self.config.bugs.has(Bug::EvictedRenews) {
            self.lifecycle.on_ended();
        }
        self.lifecycle.admission.set_leaving(self.members.decided.is_leaving());
        let voters = self.members.peers().union(self.members.decided.config().witnesses().dcs());
        self.peers.member_lease.retain(voters);
        self.peers.witnesses.retain(self.members.decided.config());
        lend!(FailureDetector, self).follow_member_lease();
    }

    /// Does the next step of an eviction as soon as the last decision is on disk, before the next heartbeat.
    pub(in crate::replica) fn go_on(&mut self) {
        let is_on_disk = |position| self.out.output_commit.may_emit(position);
        if self.lifecycle.state.is_starting() || !self.members.goes_on_at.is_some_and(is_on_disk) {
            return;
        }
        self.members.goes_on_at = None;
        // The own part may be settled.
        self.follow_peers();
        self.propose_settled();
        self.propose_cancel();
        lend!(ForcedRecovery, self).tell_recovery();
        lend!(ForcedRecovery, self).drive_recovery();
        self.drive_eviction();
        lend!(FailureDetector, self).drive_silence();
    }

    /// Tells all linked peers how many decisions are known here. Their answer brings what is missing.
    pub(in crate::replica) fn tell_decisions(&mut self) {
        // A witness that was removed by the last one is told that when it says what it knows.
        let witnesses = self.peers.witnesses.voting(self.members.decided.config());
        for peer in self.log.peers().linked().union(witnesses).iter() {
            self.tell_decisions_to(peer);
        }
    }

    pub(in crate::replica) fn tell_decisions_to(&mut self, peer: DcId) {
        // Without any decision, too: a founder that was started may not know if there are some.
        if (self.members.decided.may_lack_members() || self.config.has_control_group)
            && self.members.recovering.may_tell()
            && !self.members.decided.config().slots().is_lost(peer)
        {
            let index = self.members.decided.config().index();
            self.send(peer, Message::KnowsDecisions { index });
        }
    }

    fn send(&mut self, peer: DcId, message: Message) {
        match self.peers.witnesses.linked().contains(peer) {
            true => self.out.send_beside_log(peer, message),
            false => self.out.send(self.log, peer, message),
        }
    }

    /// A peer or witness has heard the heartbeat of this server with this clock.
    pub(in crate::replica) fn note_echo(&mut self, peer: DcId, clock: Timestamp) {
        if !self.peers.links.is_of_this_run(clock) {
            return;
        }
        self.members.asking.note_hears_this_run(peer);
        if self.end_asking() {
            self.follow_peers();
        }
    }

    /// `peer` knows the first `index` decisions: sends it those that follow, or asks for those that are
    /// missing here.
    pub(in crate::replica) fn on_knows_decisions(&mut self, peer: DcId, index: Index) {
        self.members.decided.note_elsewhere(index);
        self.members.asking.note_told(peer, index);
        if self.end_asking() {
            self.follow_peers();
        }
        if !self.members.recovering.may_tell() || self.members.decided.config().slots().is_lost(peer) {
            return;
        }
        let list = self.members.decided.list();
        let mut proposals = match list.after(index) {
            Missing::Decisions(proposals) => proposals.to_vec(),
            Missing::Compacted(compacted) => {
                return self.send(peer, Message::Compacted(Box::new(compacted.clone())));
            }
        };
        if self.is_removed_witness(peer) {
            let missing = list.removal_of(peer).saturating_sub(index.0);
            proposals.truncate(usize::try_from(missing).unwrap_or(usize::MAX));
        }
        if !proposals.is_empty() {
            self.send(peer, Message::Decisions { after: index, proposals });
        } else if index > self.members.decided.config().index() && !self.is_removed_witness(peer) {
            self.tell_decisions_to(peer);
        }
    }

    /// Returns true if this is a witness that was removed. Its list may be that of a control group that a
    /// forced recovery has ended, which went on without this member.
    fn is_removed_witness(&self, peer: DcId) -> bool {
        self.members.decided.config().witnesses().past_dcs().contains(peer)
    }

    pub(in crate::replica) fn on_decisions(&mut self, peer: DcId, after: Index, proposals: Vec<Proposal>) {
        if !self.heeds_decisions_of(peer) {
            return;
        }
        let before = self.members.decided.config().index();
        for (number, proposal) in (after.0.saturating_add(1)..).zip(proposals) {
            self.learn(Index(number), proposal);
        }
        if self.members.decided.config().index() > before {
            // It may have more.
            self.tell_decisions_to(peer);
        }
    }

    /// Returns true if decisions that a peer tells count here.
    fn heeds_decisions_of(&self, peer: DcId) -> bool {
        let is_ended = self.members.decided.config().slots().is_lost(peer) || self.is_removed_witness(peer);
        !is_ended && self.members.recovering.heeds(Some(peer))
    }

    /// Some decisions that are not known here are compacted at `peer`.
    pub(in crate::replica) fn on_compacted(&mut self, peer: DcId, compacted: ListState) {
        let known = self.members.decided.config();
        if !self.heeds_decisions_of(peer) || !compacted.follows(known, self.config.agreed.cluster) {
            return;
        }
        let position = self.out.persist(Record::Compacted(Box::new(compacted.clone())));
        self.peers.links.retry_at_most(self.now.mono);
        if compacted.config().lineage() > known.lineage() {
            self.members.note_recovery(position);
        }
        self.take_compacted(&compacted);
        self.members.goes_on_at = Some(position);
        // Those that follow.
        self.tell_decisions();
    }

    /// Compacts decisions that all members know, with each heartbeat.
    pub(in crate::replica) fn compact_decisions(&mut self) {
        let Members { decided, entered, recovering, .. } = &*self.members;
        let is_whole = decided.own_member().is_some() && !self.members.needs_state();
        let config = decided.config();
        let speaks = |dc| self.peers.witnesses.version(dc).is_some_and(|spoken| spoken >= COMPACTS_VERSION);
        let all_speak = self.lifecycle.versions.all_speak(COMPACTS_VERSION)
            && config.witnesses().dcs().iter().all(speaks);
        if is_whole && recovering.may_tell() && all_speak {
            let limit = entered.by_all(config);
            self.members.decided.list.compact(self.config.local.kept_decisions, limit);
        }
    }

    /// Returns true if this member asks for a state by itself: it is one still, and nobody else can know that
    /// it lacks decisions. A new member is offered one.
    pub(in crate::replica) fn asks_for_state(&self) -> bool {
        let Members { pending, decided, .. } = &*self.members;
        pending.needs_state() && !decided.awaits_state() && decided.own_member().is_some()
    }

    /// Returns the proposal of a command, if it is possible now.
    pub(super) fn checked(&self, command: Command) -> Result<Proposal, Refused> {
        let rules = self.locks.owners().sponsors().rules();
        let (reachability, bugs) = (&self.peers.reachability, self.config.bugs);
        let unsettled = unsettled(self.members, rules, self.log, reachability, bugs);
        let mut versions = spoken_versions(self.members, self.lifecycle, self.peers);
        if bugs.has(Bug::VersionTooEarly) {
            versions.values_mut().for_each(|version| *version = self.config.speaks);
        }
        let facts = self.members.facts(self.peers, self.config, self.now);
        self.members.decided.config().check_proposal(&Facts { unsettled, versions, ..facts }, command)
    }

    /// Proposes a command to the control group, if it is possible now.
    pub(in crate::replica) fn on_propose(&mut self, command: Command) {
        if let Command::CancelLeave { dc, .. } = command {
            let refused = Refused::CancelElsewhere { dc };
            return self.out.report(Report::ProposalRefused { why: refused.to_string() });
        }
        match self.checked(command) {
            Ok(proposal) => self.out.effects.push_back(Effect::Propose(Box::new(proposal))),
            Err(refused) => self.out.report(Report::ProposalRefused { why: refused.to_string() }),
        }
    }
}
