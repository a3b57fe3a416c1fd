//! Eviction by time: voters that have heard nothing of a member for `evict_after` say so, and acknowledge its
//! heartbeats no more (`docs/algorithm.md#39-eviction-by-time`).
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

use std::collections::BTreeMap;

use super::Members;
use crate::base::bugs::Bug;
use crate::base::time::Now;
use crate::base::time::{Instant, Timestamp};
use crate::causal_log::Log;
use crate::membership::{Command, Epoch, Evictee, Eviction, Mark, Proposal, Voter, VoterSet, Vouch};
use crate::replica::config::ReplicaConfig;
use crate::replica::effect::Effect;
use crate::replica::lifecycle::Lifecycle;
use crate::replica::message::Message;
use crate::replica::outputs::Outputs;
use crate::replica::peers::Peers;
use crate::replica::record::Record;
use geolock_api::names::{DcId, DcSet, Position};

/// The silence of this voter.
#[derive(Default)]
pub(in crate::replica) struct Silences {
    /// The last statement about each member that is in the journal.
    marked: BTreeMap<DcId, Marked>,
    /// By member: the time before which no silence is counted.
    since: BTreeMap<DcId, Instant>,
    /// The epoch of the policy for which `since` counts.
    policy: Epoch,
    /// The members that were acknowledged at the last heartbeat.
    acknowledged: DcSet,
}

/// A statement in the journal.
#[derive(Clone, Copy, Debug)]
struct Marked {
    number: u64,
    policy: Epoch,
    /// Position of its record.
    recorded: Position,
}

impl Silences {
    /// Returns the statements, for a checkpoint.
    pub fn state(&self) -> Vec<(DcId, u64, Epoch)> {
        self.marked.iter().map(|(of, marked)| (*of, marked.number, marked.policy)).collect()
    }

    /// Takes over the statements of a checkpoint.
    pub fn restore(&mut self, state: &[(DcId, u64, Epoch)]) {
        state.iter().for_each(|(of, number, policy)| self.note(*of, *number, *policy, Position::default()));
    }

    /// The slot has another member, about which nothing was said yet.
    pub(super) fn forget(&mut self, of: DcId) {
        self.marked.remove(&of);
        self.since.remove(&of);
        self.acknowledged.remove(of);
    }

    /// A record in the journal says that this voter is silent about a member.
    pub fn note(&mut self, of: DcId, number: u64, policy: Epoch, recorded: Position) {
        let before = self.marked.insert(of, Marked { number, policy, recorded }).map(|marked| marked.number);
        assert!(before <= Some(number), "statement {number} about {of} follows {before:?}");
    }

    /// This voter counts no silence any more. Its statements stay.
    fn stop(&mut self) {
        *self = Silences { marked: std::mem::take(&mut self.marked), ..Silences::default() };
    }

    /// Follows the members and the policy. Silence about a member that is acknowledged anew is counted anew.
    fn follow(&mut self, members: DcSet, policy: Epoch, acknowledged: DcSet, now: Instant) {
        if std::mem::replace(&mut self.policy, policy) != policy {
            self.since.clear();
        }
        self.since.retain(|dc, _| members.contains(*dc));
        for dc in acknowledged.difference(self.acknowledged).iter() {
            self.since.insert(dc, now);
        }
        for dc in members.iter() {
            self.since.entry(dc).or_insert(now);
        }
        assert!(members.is_superset(acknowledged), "{acknowledged:?} are acknowledged, of {members:?}");
        self.acknowledged = acknowledged;
    }
}

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
    /// Returns the statement about a member that is in the journal and not decided.
    fn undecided(&self, of: DcId) -> Option<Marked> {
        let marked = self.members.silences.marked.get(&of).copied();
        marked.filter(|marked| marked.number > self.members.decided.decided_number(of))
    }

    /// Returns true if this voter acknowledges heartbeats of a member.
    fn acknowledges(&self, of: DcId) -> bool {
        let is_silent = self.members.decided.own_silence(of).is_some_and(|silence| silence.silent);
        let is_quiet = is_silent || self.undecided(of).is_some();
        (!is_quiet || self.config.bugs.has(Bug::AcknowledgesSilent)) && !self.members.promised().contains(of)
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
            true => lease.backed_at(me, set),
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

    /// Returns the members that may be evicted because a majority of the voters is silent about them.
    fn silenced(&self) -> DcSet {
        let Members { decided, entered, .. } = &*self.members;
        let config = decided.config();
        let is_silenced = |dc: &DcId| {
            let about: Vec<Voter> = config.silent_about(*dc).collect();
            let is_fenced = config.fenced_since(*dc).is_some_and(|since| entered.epoch_of(*dc) >= since);
            is_fenced && config.slots().is_settled(*dc) && config.voters().is_majority(&about)
        };
        config.slots().member_set().iter().filter(is_silenced).collect()
    }

    /// Acknowledges heartbeats, and passes on what others have acknowledged.
    pub(in crate::replica) fn acknowledge_heartbeats(&mut self) {
        if !self.members.decided.evict_by_time() {
            return;
        }
        let is_voter = self.members.decided.own_vote().is_some();
        let reachability = &self.peers.reachability;
        let acknowledged = self.members.peers().iter().filter(|dc| is_voter && self.acknowledges(*dc));
        let own: Vec<(DcId, Timestamp)> =
            acknowledged.filter_map(|dc| Some((dc, reachability.last_clock(dc)?))).collect();
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
        let (members, policy) = (
            self.members.decided.config().slots().member_set(),
            self.members.decided.config().policy_epoch(),
        );
        let peers = members.difference(DcSet::only(self.config.dc));
        if !self.members.decided.evict_by_time() || self.members.decided.own_vote().is_none() {
            return self.members.silences.stop();
        }
        let acknowledged = peers.iter().filter(|dc| self.acknowledges(*dc)).collect();
        self.members.silences.follow(peers, policy, acknowledged, self.now.mono);
        let alive = self.peers.reachability.alive(self.now.mono);
        for of in peers.iter() {
            if !acknowledged.contains(of) {
                self.state_again(of, alive.contains(of));
            } else if self.is_silent_about(of) {
                self.begin_silence(of);
            }
        }
        self.evict_silenced(alive);
    }

    /// Returns true if nothing of a member was heard for `evict_after`. One that is cut off itself says
    /// nothing: no majority would agree.
    fn is_silent_about(&self, of: DcId) -> bool {
        let since = self.members.silences.since.get(&of).copied().unwrap_or(self.now.mono);
        let since = if self.config.bugs.has(Bug::SilenceFromBefore) { Instant::ZERO } else { since };
        let heard = self.peers.reachability.last_heard(of).unwrap_or(Instant::ZERO);
        let after = self.members.decided.config().policy().evict_after();
        self.lifecycle.member_lease.is_backed() && self.now.mono >= since.max(heard) + after
    }

    /// From now on nothing of this member is acknowledged.
    fn begin_silence(&mut self, of: DcId) {
        let number = self.members.decided.decided_number(of) + 1;
        let policy = self.members.decided.config().policy_epoch();
        let is_undecided = self.undecided(of).is_some();
        debug_assert!(!is_undecided || self.config.bugs.has(Bug::AcknowledgesSilent), "silence begins once");
        let recorded = match self.config.bugs.has(Bug::SilenceNotOnDisk) {
            true => Position::default(),
            false => self.out.persist(Record::Silent { of, number, policy }),
        };
        self.members.silences.note(of, number, policy, recorded);
        self.members.goes_on_at = Some(recorded);
        self.members.silences.acknowledged.remove(of);
    }

    /// Proposes the silence that is not decided, once it is on disk; or takes silence back, if the member is
    /// heard, or the policy for which it was counted is over. A proposal may be lost, so it is repeated.
    fn state_again(&mut self, of: DcId, is_alive: bool) {
        let policy = self.members.decided.config().policy_epoch();
        let (undecided, decided) = (self.undecided(of), self.members.decided.decided_number(of));
        let (Some(by), Some(of_generation)) =
            (self.members.decided.own_vote(), self.members.decided.config().slots().generation(of))
        else {
            return;
        };
        let mark = |number| Mark { by, of, of_generation, number };
        let last = undecided.map_or(decided, |marked| marked.number);
        let is_silent = self.members.decided.own_silence(of).is_some_and(|silence| silence.silent);
        let command = match undecided {
            _ if is_alive && (is_silent || undecided.is_some()) => Command::Heard { mark: mark(last + 1) },
            Some(marked) if marked.policy != policy => Command::Heard { mark: mark(last + 1) },
            Some(marked) if self.out.output_commit.may_emit(marked.recorded) => {
                Command::Silent { mark: mark(marked.number), policy }
            }
            _ => return,
        };
        let proposal = Proposal { checked: self.members.decided.config().revision(), command };
        self.out.effects.push_back(Effect::Propose(Box::new(proposal)));
    }

    /// The first voter that lives begins the eviction of those about which a majority is silent.
    fn evict_silenced(&mut self, alive: DcSet) {
        let config = self.members.decided.config();
        let silenced = self.silenced();
        let me = self.config.dc;
        assert!(self.members.decided.evict_by_time(), "silence evicts only by the policy");
        let voters = config.voters().members().difference(silenced);
        let first = alive.union(DcSet::only(me)).intersection(voters).iter().next();
        // All others have to report. One that does not live is silenced soon, too.
        let rest = config.slots().member_set().difference(silenced).difference(DcSet::only(me));
        let waits = config.attempt().is_some() || !alive.is_superset(rest);
        if silenced.is_empty() || first != Some(me) || waits {
            return;
        }
        let evictee = |dc| Some(Evictee { dc, generation: config.slots().generation(dc)?, run: 0 });
        let members = silenced.iter().filter_map(evictee).collect();
        let eviction = Eviction { members, vouch: Vouch::Silence, recut: None };
        if let Ok(proposal) = config
            .check_proposal(&self.members.facts(self.peers, self.config, self.now), Command::Begin(eviction))
        {
            self.out.effects.push_back(Effect::Propose(Box::new(proposal)));
        }
    }
}
