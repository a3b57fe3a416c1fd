//! The config: the state after the decisions so far.

use std::collections::BTreeMap;

use geolock_api::names::{ClusterId, DcId, DcSet};
use serde::{Deserialize, Serialize};

use super::attempt::{Attempt, LastEnd};
use super::history::VoterSet;
use super::ids::{Epoch, Generation, Index, Lineage, MemberName, Revision, ServerId, Voter, WitnessId};
use super::policy::{AgreedOptions, Policy};
use super::rules::Rules;
use super::slot::{Member, Past, Phase, Slot, Witness};

/// Most voters: members and witnesses. Each voter more makes a majority larger, and so a decision slower.
pub const MAX_VOTERS: usize = 7;
/// Most open invitations.
pub const MAX_INVITATIONS: usize = 64;
/// Most evictions of a cluster: fencing tokens have 10 bits for 16 and the number of evictions.
pub const MAX_EVICTIONS: u16 = 1_007;
/// The number of fences that are below every eviction. Tokens of releases without membership changes are
/// below it, too.
pub const FIRST_FENCE: u16 = 16;
/// The number of evictions that forced recovery counts for: more than the lost majority can have decided
/// before all survivors were gone.
pub const RECOVERY_FENCES: u16 = 16;

/// The members, voters, policies and the eviction under way, after the decision with number
/// [`Config::index`].
///
/// All members and witnesses apply the same decisions in the same order with [`Config::apply`], and so have
/// equal configs at equal numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Config {
    /// The cluster, once it is founded.
    pub(super) cluster: Option<ClusterId>,
    pub(super) lineage: Lineage,
    pub(super) index: Index,
    pub(super) revision: Revision,
    pub(super) epoch: Epoch,
    /// The epoch of the policy.
    pub(super) policy_epoch: Epoch,
    pub(super) version: u16,
    pub(super) evictions: u16,
    pub(super) slots: BTreeMap<DcId, Slot>,
    pub(super) witnesses: BTreeMap<WitnessId, Witness>,
    /// The sets of voters, the current one last.
    pub(super) voters: Vec<VoterSet>,
    pub(super) invitations: BTreeMap<MemberName, Option<DcId>>,
    pub(super) policy: Policy,
    pub(super) options: AgreedOptions,
    pub(super) rules: Rules,
    pub(super) marks: BTreeMap<(Voter, DcId), Silence>,
    pub(super) attempt: Option<Attempt>,
    pub(super) last_end: Option<LastEnd>,
}

/// The last statement of a voter about a member: both generations are the current ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Silence {
    /// The number of the statement.
    pub number: u64,
    /// True after `Silent`, false after `Heard`.
    pub silent: bool,
}

impl Config {
    /// Returns the cluster, or `None` before it is founded.
    pub fn cluster(&self) -> Option<ClusterId> {
        self.cluster
    }

    /// Returns the number of control groups that the cluster has had before this one.
    pub fn lineage(&self) -> Lineage {
        self.lineage
    }

    /// Returns the number of the last decision; 0 if there was none.
    pub fn index(&self) -> Index {
        self.index
    }

    /// Returns the revision that a proposal has to name now.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Returns the number of the last decision that every member has to enter.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns the version of protocols and formats that the cluster uses.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// Returns the number of evictions so far. Forced recovery counts for [`RECOVERY_FENCES`].
    pub fn evictions(&self) -> u16 {
        self.evictions
    }

    /// Returns the highest bits of fencing tokens: they are above every token that a member that has been
    /// evicted gave out.
    pub fn fence(&self) -> u16 {
        FIRST_FENCE + self.evictions
    }

    /// Returns the policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the epoch of the policy: only a member that has entered it can be evicted by silence.
    pub fn policy_epoch(&self) -> Epoch {
        self.policy_epoch
    }

    /// Returns the options that all members agree on.
    pub fn options(&self) -> &AgreedOptions {
        &self.options
    }

    /// Returns the rules of prefixes of lock names.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Returns the member to which this lock returns when it is idle, if a rule names one that is a member.
    pub fn home(&self, lock: &[u8]) -> Option<DcId> {
        self.rules.of(lock)?.home.filter(|home| self.member(*home).is_some())
    }

    /// Returns the invitations that are open, each with the sponsor that it names.
    pub fn invitations(&self) -> impl Iterator<Item = (&MemberName, Option<DcId>)> {
        self.invitations.iter().map(|(name, sponsor)| (name, *sponsor))
    }

    /// Returns the eviction under way.
    pub fn attempt(&self) -> Option<&Attempt> {
        self.attempt.as_ref()
    }

    /// Returns the members that have to report for the eviction under way, and have not.
    pub fn missing_reports(&self) -> DcSet {
        let Some(attempt) = &self.attempt else { return DcSet::EMPTY };
        let reported: DcSet = attempt.reports.keys().copied().collect();
        self.member_set().difference(attempt.evicting()).difference(reported)
    }

    /// Returns the eviction with which the current epoch began, if it did. Only its cuts may be set anew.
    pub fn last_end(&self) -> Option<&LastEnd> {
        self.last_end.as_ref()
    }

    /// Returns the slots that were ever given out, in increasing order.
    pub fn slots(&self) -> impl Iterator<Item = (DcId, &Slot)> {
        self.slots.iter().map(|(dc, slot)| (*dc, slot))
    }

    /// Returns the members, in increasing order of their slots.
    pub fn members(&self) -> impl Iterator<Item = (DcId, &Member)> {
        self.slots().filter_map(|(dc, slot)| Some((dc, slot.member.as_ref()?)))
    }

    /// Returns the slots that have a member.
    pub fn member_set(&self) -> DcSet {
        self.members().map(|(dc, _)| dc).collect()
    }

    /// Returns the member with this slot.
    pub fn member(&self, dc: DcId) -> Option<&Member> {
        self.slots.get(&dc)?.member.as_ref()
    }

    /// Returns the generation of the member with this slot.
    pub fn generation(&self, dc: DcId) -> Option<Generation> {
        Some(self.member(dc)?.generation)
    }

    /// Returns the generation that the next member with this slot has, or `None` if the slot has a member or
    /// cannot be given out again.
    pub fn next_generation(&self, dc: DcId) -> Option<Generation> {
        match self.slots.get(&dc) {
            None => Some(Generation(0)),
            Some(slot) if slot.member.is_none() => slot.next_generation(),
            Some(_) => None,
        }
    }

    /// Returns the end of a generation that is over, as long as it is remembered.
    pub fn past(&self, dc: DcId, generation: Generation) -> Option<&Past> {
        self.slots.get(&dc)?.past.iter().find(|past| past.generation == generation)
    }

    /// Returns the last generation of the slot that is over.
    pub fn last_past(&self, dc: DcId) -> Option<&Past> {
        self.slots.get(&dc)?.past.last()
    }

    /// Returns true if the slot had a member, and has none.
    pub fn has_ended(&self, dc: DcId) -> bool {
        self.member(dc).is_none() && self.last_past(dc).is_some()
    }

    /// Returns the end of a server's membership, if it was a member, and as long as that is remembered.
    pub fn end_of(&self, server: ServerId) -> Option<&Past> {
        self.slots.values().flat_map(|slot| &slot.past).find(|past| past.server == server)
    }

    /// Returns true if this generation of the slot is over. One that never began is not.
    pub fn is_over(&self, dc: DcId, generation: Generation) -> bool {
        let Some(slot) = self.slots.get(&dc) else { return false };
        match &slot.member {
            Some(member) => generation < member.generation,
            None => slot.past.last().is_some_and(|last| generation <= last.generation),
        }
    }

    /// Returns the number of the last entry that counts of a generation that is over, or `None` if it is not
    /// over or not remembered: see [`MAX_PAST`](super::MAX_PAST).
    pub fn cut(&self, dc: DcId, generation: Generation) -> Option<u64> {
        Some(self.past(dc, generation)?.cut)
    }

    /// Returns the member with whose parts the parts of this member go: itself once it is settled.
    pub fn sponsor(&self, dc: DcId) -> Option<DcId> {
        Some(self.member(dc)?.sponsor)
    }

    /// Returns true for a member whose parts are its own: a founder, or one whose `Settled` is decided.
    pub fn is_settled(&self, dc: DcId) -> bool {
        self.member(dc).is_some_and(|member| member.phase != Phase::Joining)
    }

    /// Returns these members and every joining one whose sponsor is among them: they end together.
    pub fn with_joiners(&self, members: DcSet) -> DcSet {
        let joiners = self.members().filter(|(_, it)| it.phase == Phase::Joining);
        let theirs = joiners.filter(|(_, it)| members.contains(it.sponsor)).map(|(dc, _)| dc);
        members.union(theirs.collect())
    }

    /// Returns the members that neither leave nor are to be evicted.
    pub fn staying(&self) -> DcSet {
        let evicting = self.attempt.as_ref().map_or(DcSet::EMPTY, Attempt::evicting);
        let stays = self.members().filter(|(_, member)| member.phase != Phase::Leaving);
        stays.map(|(dc, _)| dc).collect::<DcSet>().difference(evicting)
    }

    /// Returns the voters that neither leave nor are to be evicted.
    pub fn staying_voters(&self) -> impl Iterator<Item = Voter> {
        let staying = self.staying();
        let stays = move |voter: &Voter| voter.dc().is_none_or(|dc| staying.contains(dc));
        self.voters().voters.iter().copied().filter(stays)
    }

    /// Returns a member that is to be given its vote: it is settled, stays, wants to vote, and there is room.
    pub fn next_voter(&self) -> Option<DcId> {
        if self.voters().voters.len() >= MAX_VOTERS {
            return None;
        }
        let waits = |(dc, it): &(DcId, &Member)| {
            it.wants_vote && it.phase == Phase::Settled && !self.voters().contains_member(*dc)
        };
        self.members().find(waits).map(|(dc, _)| dc)
    }

    /// Returns the witnesses, in the order of their ids.
    pub fn witnesses(&self) -> impl Iterator<Item = (WitnessId, &Witness)> {
        self.witnesses.iter().map(|(id, witness)| (*id, witness))
    }

    /// Returns the members and witnesses that are silent about this member. Only voters count.
    pub fn silent_about(&self, of: DcId) -> impl Iterator<Item = Voter> {
        self.marks.iter().filter(move |((_, dc), mark)| *dc == of && mark.silent).map(|((by, _), _)| *by)
    }

    /// Returns the last statement of this voter about this member.
    pub fn silence(&self, by: Voter, of: DcId) -> Option<Silence> {
        self.marks.get(&(by, of)).copied()
    }
}
