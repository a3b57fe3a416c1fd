//! The config: the state after the decisions so far.

use std::collections::BTreeMap;

use geolock_api::names::{ClusterId, DcId, DcSet};
use serde::{Deserialize, Serialize};

use super::attempt::{Attempt, LastEnd};
use super::history::VoterSet;
use super::ids::{Epoch, Index, Lineage, MemberName, Revision, Voter};
use super::policy::{AgreedOptions, Policy};
use super::rules::Rules;
use super::slot::{Member, Phase};
use super::slots::Slots;
use super::witnesses::Witnesses;

/// Most voters: members and witnesses. Each voter more makes a majority larger, and so a decision slower.
pub const MAX_VOTERS: usize = 7;
/// Most open invitations.
pub const MAX_INVITATIONS: usize = 64;
/// Maximum size of an encoded config, in bytes. It follows from the other limits, each of which is a refusal
/// of its own, so nothing is ever refused for the size alone: an eviction is possible in every config.
pub const MAX_CONFIG: usize = 512 << 10;
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
    pub(super) numbers: Numbers,
    pub(super) version: u16,
    pub(super) evictions: u16,
    pub(super) slots: Slots,
    pub(super) voters: Voters,
    pub(super) invitations: BTreeMap<MemberName, Option<DcId>>,
    pub(super) policy: Policy,
    pub(super) options: AgreedOptions,
    pub(super) rules: Rules,
    pub(super) marks: BTreeMap<(Voter, DcId), Silence>,
    pub(super) attempt: Option<Attempt>,
    pub(super) last_end: Option<LastEnd>,
}

/// The numbers of decisions up to which the config goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Numbers {
    /// The last decision.
    pub index: Index,
    /// The last one that changed something.
    pub revision: Revision,
    /// The last one that began an epoch.
    pub epoch: Epoch,
    /// The epoch of the policy.
    pub policy_epoch: Epoch,
}

/// The voters, and the servers of those that are no members.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Voters {
    pub witnesses: Witnesses,
    /// The sets of voters, the current one last.
    pub sets: Vec<VoterSet>,
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
        self.numbers.index
    }

    /// Returns the revision that a proposal has to name now.
    pub fn revision(&self) -> Revision {
        self.numbers.revision
    }

    /// Returns the number of the last decision that every member has to enter.
    pub fn epoch(&self) -> Epoch {
        self.numbers.epoch
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
        self.numbers.policy_epoch
    }

    /// Returns the options that all members agree on.
    pub fn options(&self) -> &AgreedOptions {
        &self.options
    }

    /// Returns the rules of prefixes of lock names.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Returns the home of this lock, if a rule names one.
    pub fn home(&self, lock: &[u8]) -> Option<DcId> {
        self.rules.of(lock)?.home
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
        self.slots().member_set().difference(attempt.evicting()).difference(reported)
    }

    /// Returns the eviction with which the current epoch began, if it did. Only its cuts may be set again.
    pub fn last_end(&self) -> Option<&LastEnd> {
        self.last_end.as_ref()
    }

    /// Returns the slots that were ever given out, with their members.
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Returns the members that neither leave nor are to be evicted.
    pub fn staying(&self) -> DcSet {
        let evicting = self.attempt.as_ref().map_or(DcSet::EMPTY, Attempt::evicting);
        let stays = self.slots().members().filter(|(_, member)| member.phase != Phase::Leaving);
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
        self.slots().members().find(waits).map(|(dc, _)| dc)
    }

    /// Returns the witnesses.
    pub fn witnesses(&self) -> &Witnesses {
        &self.voters.witnesses
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
