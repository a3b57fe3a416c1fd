//! The decisions that this server knows, and their consequences for it.
//!
//! A decision counts for other members once they know it, and for the locks here only once its epoch is
//! entered (`entered.rs`). So this datacenter does not act by the values here: they say which epochs are to
//! come, and which numbers and cuts are final.

use std::collections::BTreeMap;
use std::time::Duration;

use super::MembersState;
use super::list_state::ListState;
use super::listing::{DecisionList, Learnt};
use super::pending::{Admitted, Change, Evicted, Kind};
use crate::base::bugs::{Bug, Bugs};
use crate::base::entry_number::is_first;
use crate::causal_log::Entry;
use crate::lock_state::Known;
use crate::membership::{
    Command, Config, EndCause, Epoch, EvictPolicy, Generation, Index, Member, Phase, Proposal,
    RECOVERY_FENCES, Refused, ServerId, Silence, Voter,
};
use geolock_api::names::{DcId, DcSet};

/// The decisions that are known here.
pub(in crate::replica) struct Decided {
    me: DcId,
    server: ServerId,
    /// The state after them.
    state: ListState,
    /// The last of them.
    pub(super) list: DecisionList,
    /// A peer has said that it knows decisions.
    are_elsewhere: bool,
    /// This directory was made to join a running cluster, and has no state yet.
    awaits_state: bool,
}

impl Decided {
    /// Returns none. `joins`: this directory is made to join a running cluster.
    pub(super) fn new(me: DcId, server: ServerId, joins: bool) -> Decided {
        Decided {
            me,
            server,
            state: ListState::default(),
            list: DecisionList::default(),
            are_elsewhere: false,
            awaits_state: joins,
        }
    }

    /// Returns this datacenter.
    #[inline]
    pub fn me(&self) -> DcId {
        self.me
    }

    /// Returns the state after the decisions that are known here.
    #[inline]
    pub fn config(&self) -> &Config {
        self.state.config()
    }

    /// Returns the decisions that are known here.
    pub fn list(&self) -> &DecisionList {
        &self.list
    }

    /// Returns the members whose last leave was cancelled, with that decision.
    pub(super) fn cancelled(&self) -> &BTreeMap<DcId, Index> {
        self.state.cancelled()
    }

    /// Returns the config after the last forced recovery.
    pub(super) fn recovered(&self) -> Option<&Config> {
        self.state.recovered()
    }

    /// Returns true if there is a list of decisions: then it counts, not the configuration.
    #[inline]
    pub fn has_decisions(&self) -> bool {
        self.config().index() > Index(0)
    }

    /// Returns true if decisions say who the members are, so a message may name one that is not known here
    /// yet.
    pub fn names_members(&self) -> bool {
        self.has_decisions() || self.awaits_state
    }

    /// Returns true if there are decisions, known here or not: a message may name a member of which this
    /// datacenter has not heard.
    pub fn may_lack_members(&self) -> bool {
        self.names_members() || self.are_elsewhere
    }

    /// Notes that a peer knows so many decisions.
    pub(super) fn note_elsewhere(&mut self, index: Index) {
        self.are_elsewhere |= index > Index(0);
    }

    /// Returns true if this directory joins a running cluster and has no state yet.
    #[inline]
    pub fn awaits_state(&self) -> bool {
        self.awaits_state
    }

    /// Sets, as a checkpoint or a state says, if this directory still has no state.
    pub(super) fn set_awaits_state(&mut self, awaits_state: bool) {
        self.awaits_state = awaits_state;
    }

    /// Applies the next decision. Returns the change of the members that its epoch brings, if one begins with
    /// it. One that is refused is a decision without effect.
    pub(super) fn apply(&mut self, index: Index, proposal: Proposal) -> Result<Option<Change>, Refused> {
        let before = self.config();
        let evicting = before.attempt().map_or(DcSet::EMPTY, |attempt| attempt.evicting());
        let members = before.slots().member_set();
        let applied = self.state.apply(index, &proposal);
        let change = applied.map(|applied| {
            let kind = |epoch| Change { epoch, kind: self.kind(&proposal.command, evicting, members) };
            applied.epoch.map(kind)
        });
        self.list.push(proposal, Learnt { at_ms: None, is_refused: change.is_err() });
        assert_eq!(self.list.len(), self.state.index().0, "the state is that after all decisions");
        change
    }

    /// Goes on with the state after decisions that are compacted elsewhere, and of which some are not known
    /// here.
    pub(super) fn go_on_after(&mut self, compacted: &ListState) {
        self.list.begin_after(compacted.clone());
        self.state = compacted.clone();
    }

    /// Returns the effect of a command on the members. `evicting`, `members`: those before it.
    fn kind(&self, command: &Command, evicting: DcSet, members: DcSet) -> Kind {
        match command {
            Command::Admit(admission) => Kind::Admits(Admitted {
                dc: admission.dc,
                generation: admission.generation,
                sponsor: admission.sponsor,
            }),
            Command::Leaving { dc, .. } => Kind::Leaves(*dc),
            Command::CancelLeave { dc, .. } => Kind::Stays(*dc),
            Command::Left { dc, cut, .. } => Kind::Ends(*dc, *cut),
            Command::End { .. } => self.evicts(evicting, 1),
            Command::Recover(_) => {
                self.evicts(members.difference(self.config().slots().member_set()), RECOVERY_FENCES)
            }
            Command::SetPolicy(_) => Kind::Policy,
            Command::SetRule { .. } | Command::RemoveRule { .. } => Kind::Rules,
            _ => Kind::None,
        }
    }

    fn evicts(&self, members: DcSet, fences: u16) -> Kind {
        let slots = self.config().slots();
        let remain = slots.member_set();
        debug_assert!(remain.intersection(members).is_empty(), "{members:?} are evicted, {remain:?} remain");
        let joining = remain.iter().filter(|dc| !slots.is_settled(*dc)).collect();
        Kind::Evicts(Evicted { members, joining, fences })
    }

    /// Returns the datacenters that an entry of an epoch that was entered here before may name.
    pub(super) fn known_at(&self, epoch: Epoch) -> Known {
        known_at(self.config(), epoch)
    }

    /// Returns the other members that can still say what they know of the own log. `all`: the entered ones.
    /// The end of a member is decided before it is entered here, and a disk of before it may be what keeps it
    /// from being entered: nobody knows more of what that member knew than those that remain.
    pub(super) fn to_hear(&self, all: DcSet) -> DcSet {
        let members = if self.has_decisions() { self.config().slots().member_set() } else { all };
        members.difference(DcSet::only(self.me))
    }

    /// Returns this server as a member: only an admission that names its id makes it one, whoever else has
    /// its slot.
    pub(super) fn own_member(&self) -> Option<&Member> {
        self.config().slots().member(self.me).filter(|member| member.server == self.server)
    }

    /// Returns the number that the first own entry follows: that of the generation of this server.
    pub fn own_base(&self) -> u64 {
        self.own_member().map_or(0, |member| member.generation.base())
    }

    /// Returns true if it is decided that this member is settled, and not that it is over.
    pub(super) fn has_settled(&self, dc: DcId, generation: Generation) -> bool {
        let member = self.config().slots().member(dc).filter(|member| member.generation == generation);
        member.is_some_and(|member| member.phase != Phase::Joining)
    }

    /// Returns the generation of this server if it is a new member that is not settled.
    pub(super) fn unsettled_generation(&self) -> Option<Generation> {
        self.own_member().filter(|member| member.phase == Phase::Joining).map(|member| member.generation)
    }

    /// Returns true if this datacenter is to leave, and its end is not decided.
    pub fn is_leaving(&self) -> bool {
        self.own_member().is_some_and(|member| member.phase == Phase::Leaving)
    }

    /// Returns true if the end of this datacenter is decided: it was a member, and is none any more.
    pub fn is_over(&self) -> bool {
        self.config().slots().end_of(self.server).is_some()
    }

    /// Returns true if it is decided that this server was evicted, or that the cluster goes on without it.
    pub(super) fn was_evicted(&self) -> bool {
        self.config().slots().end_of(self.server).is_some_and(|past| past.cause != EndCause::Left)
    }

    /// Returns true if this server is a member in a state: an earlier one with the same slot may be.
    pub fn is_admitted_in(&self, state: Option<&MembersState>) -> bool {
        let Some(state) = state.filter(|_| self.awaits_state) else { return true };
        let config = state.config();
        let member = config.slots().member(self.me).filter(|member| member.server == self.server);
        member.is_some_and(|member| member.admitted <= state.entered)
    }

    /// Returns true if the end of this server is known, or a state says so: it tells of the parts that are
    /// here who has got them.
    pub fn is_over_in(&self, state: Option<&MembersState>) -> bool {
        self.is_over() || state.is_some_and(|state| state.config().slots().end_of(self.server).is_some())
    }

    /// Returns true if its maker's generation is a member in the epoch of this entry, the first one of it.
    pub(super) fn begins_generation(&self, entry: &Entry) -> bool {
        debug_assert!(is_first(entry.seq), "entry {} is the first one of no generation", entry.seq);
        let generation = match self.has_decisions() {
            true => self.config().slots().generation_at(entry.dc, Epoch(entry.epoch)),
            false => Some(Generation(0)),
        };
        generation == Some(Generation::of_seq(entry.seq))
    }

    /// Returns the members that are to be evicted, if this one remains.
    pub(super) fn evicting(&self) -> DcSet {
        let attempt = self.config().attempt().filter(|_| !self.awaits_state && self.own_member().is_some());
        let evicting = attempt.map_or(DcSet::EMPTY, |attempt| attempt.evicting());
        if evicting.contains(self.me) { DcSet::EMPTY } else { evicting }
    }

    /// Returns the datacenters of which this one takes nothing more for an eviction: those that are to be
    /// evicted, and those of an earlier end whose cuts are set anew.
    pub(super) fn evicting_and_recut(&self) -> DcSet {
        let evicting = self.evicting();
        let recut = self.config().attempt().and_then(|attempt| attempt.eviction.recut);
        let earlier = self.config().last_end().filter(|end| !evicting.is_empty() && recut == Some(end.epoch));
        let recut: DcSet = earlier.iter().flat_map(|end| &end.generations).map(|(dc, _)| *dc).collect();
        evicting.union(recut)
    }

    /// Returns true if the others can evict this member while it is down: under every policy, because they
    /// can change that first.
    pub(super) fn may_be_evicted(&self, bugs: Bugs) -> bool {
        let trusts_policy = bugs.has(Bug::TrustsPolicy) && self.config().policy().evict == EvictPolicy::Wait;
        self.config().voters().can_do_without(self.me) && !trusts_policy
    }

    /// Returns true if members are evicted by time, as far as is known here.
    pub fn evict_by_time(&self) -> bool {
        self.config().policy().evict == EvictPolicy::Auto
    }

    /// Returns the longest time to live that leases of clients may have by the policy.
    pub(super) fn longest_lease(&self) -> Option<Duration> {
        self.evict_by_time().then(|| self.config().policy().max_lease_ttl())
    }

    /// Returns this server as a voter: a member, or a witness.
    pub(in crate::replica) fn own_vote(&self) -> Option<Voter> {
        let voter = match self.own_member() {
            Some(member) => Voter::Member { dc: self.me, generation: member.generation },
            None => Voter::Witness(self.config().witnesses().of(self.server)?),
        };
        self.config().voters().voters.contains(&voter).then_some(voter)
    }

    /// Returns the last statement of this voter about a member that is decided.
    pub(super) fn own_silence(&self, of: DcId) -> Option<Silence> {
        self.own_vote().and_then(|by| self.config().silence(by, of))
    }

    /// Returns the number of the last statement about a member that is decided.
    pub(super) fn decided_number(&self, of: DcId) -> u64 {
        self.own_silence(of).map_or(0, |silence| silence.number)
    }
}

/// Returns the datacenters that an entry of an epoch may name, as this config says.
pub(super) fn known_at(config: &Config, epoch: Epoch) -> Known {
    let slots = config.slots();
    let members = slots.members_at(epoch).map(|(dc, _)| dc).collect();
    let (left, no_homes) = (slots.ended_at(epoch), slots.no_homes_at(epoch));
    debug_assert!(no_homes.is_superset(left), "{left:?} have ended, and {no_homes:?} are no homes");
    Known { members, left, no_homes }
}
