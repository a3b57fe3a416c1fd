//! Reasons for which a command has no effect.

use std::fmt;
use std::time::Duration;

use geolock_api::names::{ClusterId, DcId, DcSet, EntryNumber};

use super::config::{MAX_EVICTIONS, MAX_INVITATIONS, MAX_VOTERS};
use super::ids::{AttemptId, Epoch, Generation, Lineage, MemberName, Revision, ServerId, Voter, WitnessId};
use super::recovery::Ballot;
use super::rules::{MAX_RULES, Prefix};
use crate::base::time::brief;

/// Datacenters for people: `dc1, dc4`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dcs(pub DcSet);

impl fmt::Display for Dcs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(i, dc)| write!(f, "{}{dc}", if i == 0 { "" } else { ", " }))
    }
}

/// A command was refused; it changed nothing. The message states the remedy.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages explain the variants")]
pub enum Refused {
    #[error(
        "the members or policies changed since the command was checked (revision {checked}, now {now}): repeat it"
    )]
    Changed { checked: Revision, now: Revision },
    #[error(
        "the cluster has no list of decisions yet: that needs all members of its configuration, running this release"
    )]
    NotFounded,
    #[error(
        "the disk of this datacenter is of before changes of the members that the others know, and it has not got \
         their state yet: ask another datacenter, or wait until this one serves"
    )]
    LacksState,
    #[error("the cluster is founded already: more members join with `geolock server --join`")]
    AlreadyFounded,
    #[error("founder {dc} {fault}: correct the members of the configuration")]
    Founder { dc: DcId, fault: &'static str },
    #[error(
        "a cluster is founded by 1 to 64 members of which 1 to {MAX_VOTERS} vote, not by {founders} of which {voters} do"
    )]
    Founders { founders: usize, voters: usize },

    // Joining.
    #[error("slot {dc} has a member, server {server}: join with another slot, or replace that member first")]
    SlotUsed { dc: DcId, server: ServerId },
    #[error("the next generation of slot {dc} is {expected}, not {asked}: ask to join again")]
    WrongGeneration { dc: DcId, asked: Generation, expected: Generation },
    #[error("{dc} is or was the id of a witness: choose an id that no member and no witness ever had")]
    IdOfWitness { dc: DcId },
    #[error(
        "{dc} is or was the id of a member: a witness needs an id that no member and no witness ever had"
    )]
    IdOfMember { dc: DcId },
    #[error("slot {dc} was given out 65536 times and cannot be again: join with another slot")]
    SlotExhausted { dc: DcId },
    #[error("server {server} is or was a member of this cluster: start it with an empty data directory")]
    ServerUsed { server: ServerId },
    #[error("the name {name} is used by another member: join with another name")]
    NameUsed { name: MemberName },
    #[error("it belongs to cluster {theirs}, this is cluster {ours}: join with a member of its own cluster")]
    WrongCluster { theirs: ClusterId, ours: ClusterId },
    #[error(
        "its data directory is of lineage {theirs}, the cluster of lineage {ours}: forced recovery went on without it; \
         start it with an empty data directory"
    )]
    WrongLineage { theirs: Lineage, ours: Lineage },
    #[error("it speaks version {theirs} at most, the cluster uses {ours}: upgrade it")]
    OldVersion { theirs: u16, ours: u16 },
    #[error("no operator has invited {name}: run `geolock member add {name}` first")]
    NotInvited { name: MemberName },
    #[error("{name} is not invited: there is nothing to take back")]
    NoInvitation { name: MemberName },
    #[error("{MAX_INVITATIONS} invitations are open: cancel one that is not needed")]
    TooManyInvitations,
    #[error("{sponsor} cannot be a sponsor: it {fault}; choose a member that is settled and stays")]
    Sponsor { sponsor: DcId, fault: &'static str },
    #[error("{dc} is settled already: nothing is left to do")]
    AlreadySettled { dc: DcId },

    #[error(
        "an earlier server was {dc}, and {members} may still name that one: wait until they know all of its end",
        members = Dcs(*members)
    )]
    SlotNotFree { dc: DcId, members: DcSet },
    #[error("{dc} is leaving: wait until it has left")]
    MemberLeaves { dc: DcId },
    #[error("{dc} is joining: wait until it is settled")]
    MemberJoins { dc: DcId },

    // Members in general.
    #[error("{dc} is no member: `geolock member list` shows the members")]
    NotMember { dc: DcId },
    #[error(
        "{dc} is a member with generation {now}, not {asked}: the command is about an earlier server of the slot"
    )]
    OldGeneration { dc: DcId, asked: Generation, now: Generation },
    #[error("{0} is no witness: `geolock member list` shows the witnesses")]
    NotWitness(WitnessId),

    // Leaving.
    #[error("no member would remain without {removed}: add another one first", removed = Dcs(*.0))]
    LastMember(DcSet),
    #[error("no voter would remain without {voter}: give another member its vote first")]
    LastVoter { voter: Voter },
    #[error("{dc} is joining, and its parts go with those of {sponsor}: wait until it is settled")]
    StillJoining { dc: DcId, sponsor: DcId },
    #[error(
        "{dc} is joining, and its parts go with those of {sponsor}: ask a survivor that is a member. If all of those are \
         lost, so are the locks and the data: begin a new cluster"
    )]
    JoinerRecovers { dc: DcId, sponsor: DcId },
    #[error("{dc} is leaving already: wait for it")]
    AlreadyLeaving { dc: DcId },
    #[error("{dc} is not leaving: run `geolock member remove` first")]
    NotLeaving { dc: DcId },
    #[error("{dc} has said in its log that it leaves, or its end is decided: that cannot be taken back")]
    HasLeft { dc: DcId },
    #[error("only {dc} itself can take its leave back: run the command there, with --connect")]
    CancelElsewhere { dc: DcId },
    #[error("{dc} does not know all of its own log yet: wait until it serves, and repeat the command")]
    LogNotKnown { dc: DcId },
    #[error("{joiner} is joining with parts of {dc}: wait until it is settled")]
    SponsorNeeded { dc: DcId, joiner: DcId },
    #[error("entry {} is not of generation {generation} of {dc}: the cut is the `Leave` of its log", EntryNumber(*.cut))]
    WrongCut { dc: DcId, generation: Generation, cut: u64 },

    // Evicting.
    #[error("an eviction names at least one member, in increasing order of slots")]
    NobodyNamed,
    #[error(
        "{dc} is the member that is asked, and it runs: stop it and ask another one, or let it leave with \
         `geolock member remove {dc}`"
    )]
    EvictsItself { dc: DcId },
    #[error("the policy of this cluster is `wait`: {members} stay members until it is another one (`geolock member policy --evict operator`)", members = Dcs(*.members))]
    PolicyWaits { members: DcSet },
    #[error("the policy of this cluster is not `auto`: only an operator can evict {members}", members = Dcs(*.members))]
    PolicyNotAuto { members: DcSet },
    #[error("{silent} voters hear nothing of {dc}, {needed} are needed: wait, or evict it as operator")]
    NotSilent { dc: DcId, silent: usize, needed: usize },
    #[error("{dc} has not learned that the policy is `auto` (epoch {policy}): only an operator can evict it")]
    AutoNotEntered { dc: DcId, policy: Epoch },
    #[error(
        "{by} {}: it runs, or was stopped a moment ago; stop it, and repeat the command some seconds later",
        heard(*.dc, *.ago)
    )]
    StillHeard { dc: DcId, by: Voter, ago: Duration },
    #[error(
        "{dc} was heard after the command was given: it was started; make sure that it does not run, and repeat the command"
    )]
    Started { dc: DcId },
    #[error(
        "{remaining} of {needed} voters that a decision needs would be left: add a witness, or wait for the members"
    )]
    NoMajority { remaining: usize, needed: usize },
    #[error("{MAX_EVICTIONS} evictions were used up: tokens have no room for more; move to a new cluster")]
    NoFenceLeft,
    #[error(
        "the cuts of epoch {epoch} cannot be set again: it is not the last epoch, or no eviction; begin without it"
    )]
    NotLastEnd { epoch: Epoch },
    #[error("attempt {attempt} is over: begin another one if it is still needed")]
    AttemptOver { attempt: AttemptId },
    #[error("{by} has reported for this attempt already; its first report counts")]
    AlreadyReported { by: Voter },
    #[error("{by} is to be evicted by this attempt: its report does not count")]
    ReportOfEvicted { by: Voter },
    #[error("the report of {by} has entry {} of {dc}, of a generation that never was: look at its log", EntryNumber(*.seq))]
    WrongReport { by: Voter, dc: DcId, seq: u64 },
    #[error("the reports of {missing} are missing: wait for them, or give the attempt up and evict them, too", missing = Dcs(*.missing))]
    ReportsMissing { missing: DcSet },
    #[error("{promised} voters have promised, {needed} are needed: wait for them")]
    PromisesMissing { promised: usize, needed: usize },
    #[error("{voter} has no vote about that: its statement is not needed")]
    NotVoter { voter: Voter },
    #[error("it states number {number} about {of}, the last was {last}: state it with a higher number")]
    OldMark { of: DcId, number: u64, last: u64 },
    #[error(
        "it counted silence under the policy of epoch {counted}, the policy is of epoch {policy}: count again"
    )]
    OldPolicy { counted: Epoch, policy: Epoch },
    #[error("generation {generation} of {dc} was not evicted by silence: there is nothing to confirm")]
    NothingToConfirm { dc: DcId, generation: Generation },

    // One change at a time.
    #[error("an eviction of {members} is under way (attempt {attempt}): wait for its end, or give it up", members = Dcs(*.members))]
    EvictionUnderWay { attempt: AttemptId, members: DcSet },
    #[error("the last change of the members (epoch {epoch}) has not reached {members} yet: wait until it has", members = Dcs(*.members))]
    ChangeUnderWay { epoch: Epoch, members: DcSet },

    // Voters, policies, versions, rules.
    #[error("the cluster has {MAX_VOTERS} voters, and more make no decision safer: take a vote away first")]
    TooManyVoters,
    #[error("{what} is so already: nothing is left to do")]
    NoChange { what: &'static str },
    #[error("{option} is {value_ms} ms; it has to be {least_ms} to {most_ms} ms")]
    OutOfBounds { option: &'static str, value_ms: u32, least_ms: u32, most_ms: u32 },
    #[error(
        "with fence_after {fence_after_ms} ms and max_lease_ttl {max_lease_ttl_ms} ms, evict_after has to be at least \
         {least_ms} ms, and is {evict_after_ms} ms: raise it, or lower one of the others"
    )]
    TimesContradict { fence_after_ms: u32, evict_after_ms: u32, max_lease_ttl_ms: u32, least_ms: u64 },
    #[error("the cluster uses version {now}: {asked} is not above it")]
    VersionNotAbove { asked: u16, now: u16 },
    #[error(
        "{voter} speaks version {speaks} at most: upgrade it, or evict it, before the cluster uses {asked}"
    )]
    VersionNotSpoken { voter: Voter, speaks: u16, asked: u16 },
    #[error(
        "members of versions {low} and {high} run, {behind} is of {low}: finish the upgrade first; only evictions \
         are possible meanwhile"
    )]
    VersionsDiffer { low: u16, high: u16, behind: Voter },
    #[error("the home {home} of prefix {prefix} is no member: name a member")]
    HomeNotMember { prefix: Prefix, home: DcId },
    #[error(
        "the prefix {prefix} overlaps {other}, which has a rule: remove that rule, or choose another prefix"
    )]
    RuleOverlaps { prefix: Prefix, other: Prefix },
    #[error("the rule of {prefix} sets nothing: give it a home, or the policy `operator`")]
    EmptyRule { prefix: Prefix },
    #[error("there are {MAX_RULES} rules: remove one that is not needed")]
    TooManyRules,
    #[error("there is no rule of prefix {prefix}: `geolock member policy` shows the rules")]
    NoRule { prefix: Prefix },

    // Forced recovery.
    #[error("the survivors have {voters} votes, and {needed} are a majority: evict the others instead")]
    MajorityUp { voters: usize, needed: usize },
    #[error(
        "survivors are named once each, in increasing order of slots, and at least one is settled and not leaving"
    )]
    WrongSurvivors,
    #[error("the new lineage is {expected}, not {asked}: ask the survivors for their lineage again")]
    LineageNotNext { asked: Lineage, expected: Lineage },
    #[error(
        "survivors and lost members have to be all members, each named once (not named: {}; named twice: {}): \
         `geolock member list` shows them",
        or_none(*.missing), or_none(*.twice)
    )]
    NotAllNamed { missing: DcSet, twice: DcSet },
    #[error("{dc}, where the command runs, is not among the survivors: run it at one of them")]
    NotSurvivor { dc: DcId },
    #[error(
        "there is no link to {members} from here: start them, or name them as lost if they are gone for good", members = Dcs(*.members)
    )]
    SurvivorAway { members: DcSet },
    #[error("{dc} recovers the cluster, too (attempt {ballot}): wait for its end, or repeat this")]
    RecoveryElsewhere { dc: DcId, ballot: Ballot },
    #[error("{dc} does not promise: {why}")]
    NoPromise { dc: DcId, why: String },
}

/// Returns words for members, of which there may be none.
fn or_none(members: DcSet) -> String {
    if members.is_empty() { "none".into() } else { Dcs(members).to_string() }
}

/// Returns words for when a member was heard last; zero: it is heard now.
fn heard(dc: DcId, ago: Duration) -> String {
    if ago.is_zero() { format!("hears {dc}") } else { format!("heard {dc} {} ago", brief(ago)) }
}
