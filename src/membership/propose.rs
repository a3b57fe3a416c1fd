//! Checks before a command is proposed: with the facts that only the proposer knows.
//!
//! A decision is judged by the config alone, because all members have to judge it equally. These facts are
//! different from member to member, so only the proposer judges them. Most stay true once they are: a member
//! that has entered an epoch has entered it for ever. That a member was not heard does not stay true; an
//! eviction by an operator relies on the operator, and one by silence on marks, which are decisions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use geolock_api::names::{DcId, DcSet};

use super::command::{Command, Evictee, Eviction, Proposal, Recovery, Vouch};
use super::config::Config;
use super::history::VoterSet;
use super::ids::{Epoch, Voter};
use super::policy::EvictPolicy;
use super::refused::Refused;
use super::slot::{Member, Phase};
use crate::base::time::Timestamp;

/// The facts that a proposer sees.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// The proposer, if it is a member: it cannot evict itself, since it does not promise.
    pub me: Option<DcId>,
    /// The last epoch that the current generation of each member has entered, as its log says. A member that
    /// is absent has entered none since epoch 0.
    pub entered: BTreeMap<DcId, Epoch>,
    /// Leaving members whose `Leave` is applied here: they enter no further epoch.
    pub left: DcSet,
    /// By slot that is over, the members that say that no entry is still to come that names its last member.
    pub freed: BTreeMap<DcId, DcSet>,
    /// The members that changes have to wait for.
    pub unsettled: Unsettled,
    /// The last time that some member or witness, also this one, heard each member.
    pub heard: BTreeMap<DcId, (Voter, Duration)>,
    /// The clock of the last heartbeat of each member that anybody has heard, as far as is known here.
    pub last_clocks: BTreeMap<DcId, Timestamp>,
    /// How long ago a member has to have been heard so that it counts as heard no more.
    pub heard_within: Duration,
    /// The voters and other members that can be reached; this one included.
    pub reachable: BTreeSet<Voter>,
    /// The highest version that each member and witness speaks, as it said last.
    pub versions: BTreeMap<Voter, u16>,
}

/// The members that changes have to wait for, as a proposer sees it: otherwise one that is lost could not be
/// evicted, because the change waits for an entry of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unsettled {
    /// Members whose parts go along with those of their sponsors, decided as settled or not.
    pub unsplit: DcSet,
    /// Members that can be reached and are not known to have on disk which parts were split off.
    pub split_unseen: DcSet,
    /// Members that have not given by the last rule about homes, or can be reached and lack what others gave.
    pub rule_unseen: DcSet,
}

impl Config {
    /// Returns the proposal of a command that is possible now.
    ///
    /// A command that the config refuses, or that has to wait for members to enter an epoch, is not worth a
    /// decision: the error says the reason and the way on.
    ///
    /// The proposal of an eviction names all members that have to end with those that the command names.
    pub fn check_proposal(&self, facts: &Facts, command: Command) -> Result<Proposal, Refused> {
        let command = match command {
            Command::Begin(eviction) => Command::Begin(complete(self, facts, eviction)),
            command => command,
        };
        match &command {
            Command::Admit(admission) => {
                one_version(self, facts)?;
                all_entered(self, facts, DcSet::EMPTY)?;
                all_gave(self, facts)?;
                all_split(self, facts)?;
                nobody_leaves(self)?;
                slot_is_free(self, facts, admission.dc)?;
            }
            Command::AddWitness(_) | Command::Vote { .. } => {
                one_version(self, facts)?;
                all_entered(self, facts, DcSet::EMPTY)?;
            }
            // If it is gone for good, nobody can upgrade it.
            Command::RemoveWitness { id } => {
                one_version_of(everybody(self).filter(|voter| *voter != Voter::Witness(*id)), self, facts)?;
                all_entered(self, facts, DcSet::EMPTY)?;
            }
            Command::SetRule { .. } | Command::RemoveRule { .. } => {
                one_version(self, facts)?;
                all_entered(self, facts, DcSet::EMPTY)?;
                all_gave(self, facts)?;
                all_split(self, facts)?;
            }
            Command::Left { dc, .. } => {
                one_version(self, facts)?;
                all_entered(self, facts, DcSet::only(*dc))?;
            }
            Command::Leaving { dc, generation } => {
                one_version(self, facts)?;
                self.slots().current(*dc, *generation)?;
                nobody_joins(self, *dc)?;
                all_entered(self, facts, DcSet::EMPTY)?;
                all_split(self, facts)?;
            }
            // The others may be lost before they have entered that it leaves: of two, only this one can
            // evict the other. They enter both epochs at once, and the next leave needs that all have.
            Command::CancelLeave { .. } => one_version(self, facts)?,
            Command::SetPolicy(policy) if policy.evict == EvictPolicy::Auto => {
                all_entered(self, facts, DcSet::EMPTY)?;
            }
            Command::Begin(eviction) => may_begin(self, facts, eviction)?,
            Command::Version { version } => all_speak(self, facts, *version)?,
            Command::Recover(recovery) => majority_is_gone(self, facts, recovery)?,
            _ => {}
        }
        let proposal = Proposal { checked: self.revision(), command };
        let mut after = self.clone();
        after.apply(self.index().next(), &proposal)?;
        if !matches!(proposal.command, Command::Found(_) | Command::Recover(_)) {
            majority_is_reachable(self, facts)?;
        }
        // With a vote less nothing may be decided any more, not even the eviction of one that is lost.
        match &proposal.command {
            Command::Leaving { dc, .. } | Command::Left { dc, .. } => {
                majority_of(&after.voters().without(DcSet::only(*dc)), facts)?;
            }
            Command::RemoveWitness { .. } | Command::Vote { votes: false, .. } => {
                majority_is_reachable(&after, facts)?;
            }
            _ => {}
        }
        Ok(proposal)
    }
}

/// A new member's part would go along with parts at a member that leaves.
fn nobody_leaves(config: &Config) -> Result<(), Refused> {
    match config.slots().members().find(|(_, member)| member.phase == Phase::Leaving) {
        Some((dc, _)) => Err(Refused::MemberLeaves { dc }),
        None => Ok(()),
    }
}

fn nobody_joins(config: &Config, leaving: DcId) -> Result<(), Refused> {
    nobody_leaves(config)?;
    let joins = |(dc, member): &(DcId, &Member)| *dc != leaving && member.phase == Phase::Joining;
    match config.slots().members().find(joins) {
        Some((dc, _)) => Err(Refused::MemberJoins { dc }),
        None => Ok(()),
    }
}

/// A slot is given out again when nothing can come any more that names its earlier member.
fn slot_is_free(config: &Config, facts: &Facts, dc: DcId) -> Result<(), Refused> {
    let freed = facts.freed.get(&dc).copied().unwrap_or_default();
    let members = config.slots().member_set().difference(facts.left).difference(freed);
    match config.slots().last_past(dc) {
        Some(_) if !members.is_empty() => Err(Refused::SlotNotFree { dc, members }),
        _ => Ok(()),
    }
}

/// One change at a time: every member that remains has entered the current epoch. So no member is ever
/// more than one change behind.
fn all_entered(config: &Config, facts: &Facts, except: DcSet) -> Result<(), Refused> {
    let epoch = config.epoch();
    let entered = |dc: &DcId| facts.entered.get(dc).copied().unwrap_or_default() >= epoch;
    let remaining = config.slots().member_set().difference(except).difference(facts.left);
    let members: DcSet = remaining.iter().filter(|dc| !entered(dc)).collect();
    if members.is_empty() { Ok(()) } else { Err(Refused::ChangeUnderWay { epoch, members }) }
}

/// A rule, or a new member, is entered when all that remain have given by the rule before. If one that has
/// not is lost, it can be evicted, because all others have entered that rule; but not once they have a
/// decision before them that waits for it.
fn all_gave(config: &Config, facts: &Facts) -> Result<(), Refused> {
    let (epoch, members) =
        (config.epoch(), facts.unsettled.rule_unseen.intersection(config.slots().member_set()));
    if members.is_empty() { Ok(()) } else { Err(Refused::ChangeUnderWay { epoch, members }) }
}

/// A change that waits for parts of new members to be split off is decided after that: if the sponsor is lost
/// before, it can be evicted. A split that only the sponsor has seen may be lost with it.
fn all_split(config: &Config, facts: &Facts) -> Result<(), Refused> {
    if let Some(dc) = facts.unsettled.unsplit.iter().find(|dc| config.slots().is_settled(*dc)) {
        return Err(Refused::MemberJoins { dc });
    }
    let (epoch, members) =
        (config.epoch(), facts.unsettled.split_unseen.intersection(config.slots().member_set()));
    if members.is_empty() { Ok(()) } else { Err(Refused::ChangeUnderWay { epoch, members }) }
}

/// Returns an eviction with all that have to end with it: a joining member whose sponsor is in it, and one
/// that has no state yet, since it waits for an entry of every member, perhaps of one that is lost. If not
/// all that remain have entered the last end, its cuts are set again: the member that has the entries up to
/// them may be lost.
fn complete(config: &Config, facts: &Facts, mut eviction: Eviction) -> Eviction {
    let entered = |dc: DcId| facts.entered.get(&dc).copied().unwrap_or_default();
    let is_stateless =
        |(dc, member): &(DcId, &Member)| member.phase == Phase::Joining && entered(*dc) < member.admitted;
    let stateless: DcSet = config.slots().members().filter(is_stateless).map(|(dc, _)| dc).collect();
    for dc in
        config.slots().with_joiners(eviction.slots().union(stateless)).difference(eviction.slots()).iter()
    {
        let generation = config.slots().generation(dc).expect("it is a member");
        eviction.members.push(Evictee { dc, generation, last_heard: Timestamp::default() });
    }
    // Nothing else was said: what is known now counts.
    for member in eviction.members.iter_mut().filter(|member| member.last_heard == Timestamp::default()) {
        member.last_heard = facts.last_clocks.get(&member.dc).copied().unwrap_or_default();
    }
    eviction.members.sort_by_key(|member| member.dc);
    let remain = config.slots().member_set().difference(eviction.slots()).difference(facts.left);
    let lags = remain.iter().any(|dc| entered(dc) < config.epoch());
    eviction.recut = config.last_end().filter(|_| lags).map(|end| end.epoch);
    eviction
}

fn may_begin(config: &Config, facts: &Facts, eviction: &Eviction) -> Result<(), Refused> {
    let evicting = eviction.slots();
    if let Some(dc) = facts.me.filter(|me| evicting.contains(*me)) {
        return Err(Refused::EvictsItself { dc });
    }
    if eviction.recut.is_none() {
        all_entered(config, facts, evicting)?;
    }
    for dc in config.need_silence(evicting).iter() {
        if eviction.vouch == Vouch::Silence {
            let (entered, since) = (facts.entered.get(&dc).copied(), config.fenced_since(dc));
            if since.is_none_or(|since| entered.unwrap_or_default() < since) {
                let policy = since.unwrap_or(config.policy_epoch());
                return Err(Refused::AutoNotEntered { dc, policy });
            }
        } else if let Some((by, ago)) = facts.heard.get(&dc).filter(|(_, ago)| *ago < facts.heard_within) {
            return Err(Refused::StillHeard { dc, by: *by, ago: *ago });
        } else if eviction.was_started(dc, facts.last_clocks.get(&dc).copied()) {
            return Err(Refused::Started { dc });
        }
    }
    Ok(())
}

/// All that have to speak the cluster's version: members and witnesses.
fn everybody(config: &Config) -> impl Iterator<Item = Voter> {
    let members =
        config.slots().members().map(|(dc, member)| Voter::Member { dc, generation: member.generation });
    members.chain(config.witnesses().iter().map(|(id, _)| Voter::Witness(id)))
}

fn spoken(config: &Config, facts: &Facts, voter: Voter) -> u16 {
    facts.versions.get(&voter).copied().unwrap_or(config.version())
}

fn one_version(config: &Config, facts: &Facts) -> Result<(), Refused> {
    one_version_of(everybody(config), config, facts)
}

fn one_version_of(all: impl Iterator<Item = Voter>, config: &Config, facts: &Facts) -> Result<(), Refused> {
    let versions: BTreeSet<(u16, Voter)> = all.map(|voter| (spoken(config, facts, voter), voter)).collect();
    match (versions.first().copied(), versions.last().copied()) {
        (Some((low, behind)), Some((high, _))) if low != high => {
            Err(Refused::VersionsDiffer { low, high, behind })
        }
        _ => Ok(()),
    }
}

fn all_speak(config: &Config, facts: &Facts, asked: u16) -> Result<(), Refused> {
    match everybody(config).find(|voter| spoken(config, facts, *voter) < asked) {
        Some(voter) => Err(Refused::VersionNotSpoken { voter, speaks: spoken(config, facts, voter), asked }),
        None => Ok(()),
    }
}

fn majority_is_reachable(config: &Config, facts: &Facts) -> Result<(), Refused> {
    majority_of(config.voters(), facts)
}

fn majority_of(voters: &VoterSet, facts: &Facts) -> Result<(), Refused> {
    let (remaining, needed) = (voters.count(&facts.reachable), voters.majority());
    if remaining < needed { Err(Refused::NoMajority { remaining, needed }) } else { Ok(()) }
}

/// Forced recovery contradicts the decisions of a majority: it is refused if one can be reached, by any path.
fn majority_is_gone(config: &Config, facts: &Facts, recovery: &Recovery) -> Result<(), Refused> {
    let survivors = recovery
        .survivors
        .iter()
        .filter_map(|(dc, _)| Some(Voter::Member { dc: *dc, generation: config.slots().generation(*dc)? }));
    let up: BTreeSet<Voter> = survivors.chain(facts.reachable.iter().copied()).collect();
    let (voters, needed) = (config.voters().count(&up), config.voters().majority());
    if voters >= needed { Err(Refused::MajorityUp { voters, needed }) } else { Ok(()) }
}
