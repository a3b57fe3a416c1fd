//! The commands of the control group. Each is one decision once the control group has ordered it.
//!
//! A command that changes the members runs through several decisions, so that each of them is small and none
//! has to wait for a datacenter:
//!
//! ```text
//! join:   (Invite) -> Admit -> Settled -> (Vote)
//! leave:  Leaving -> Left                                              or CancelLeave
//! evict:  (Silent of a majority) -> Begin -> Have of every other member -> End     or Abort
//! ```
//!
//! The variants are encoded by position: append only.

use geolock_api::names::{ClusterId, DcId};
use serde::{Deserialize, Serialize};

use super::ids::{
    Address, AttemptId, Epoch, Generation, Lineage, MemberName, Revision, ServerId, Voter, WitnessId,
};
use super::policy::{AgreedOptions, Policy};
use super::rules::{Prefix, PrefixRule};
use crate::base::time::Timestamp;
use crate::crdt::VersionVector;

/// A command, with the revision that its proposer checked it against.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Proposal {
    /// The revision of the config that [`Config::check_proposal`] saw. If the decision finds another one, the
    /// command has no effect; its proposer checks and proposes it again. [`Command::is_fact`] tells which
    /// commands do not depend on it.
    ///
    /// [`Config::check_proposal`]: super::Config::check_proposal
    pub checked: Revision,
    /// The command.
    pub command: Command,
}

/// A command of the control group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each variant explains its fields")]
pub enum Command {
    /// Makes the first members of the cluster, as bootstrapping an etcd cluster does. Always the first
    /// decision of a cluster, and never decided again.
    Found(Founding),
    /// Allows a server with this name to join, once. Needed if the policy for joins is `operator`.
    Invite {
        name: MemberName,
        /// The sponsor that the server is to have; otherwise the member that it asks chooses.
        sponsor: Option<DcId>,
    },
    /// Takes an invitation back.
    CancelInvitation { name: MemberName },
    /// Makes a server a member. Its parts go with those of its sponsor until it is settled.
    Admit(Admission),
    /// The part of a joining member has been split off from its sponsor's part everywhere. The joining member
    /// proposes it, and grants nothing before it knows the decision.
    Settled { dc: DcId, generation: Generation },
    /// Begins an eviction: the other members promise to accept no more entries of these, and report the
    /// entries that they have.
    Begin(Eviction),
    /// A member or witness has promised, durably, to take nothing more of the members of this attempt.
    Have {
        attempt: AttemptId,
        by: Voter,
        /// The entries that a member has applied. Empty for a witness.
        vector: VersionVector,
    },
    /// Ends an eviction: each evicted member's log is cut behind the last entry that another member reported.
    /// Possible once all other members and a majority of the voters have reported.
    End { attempt: AttemptId },
    /// Gives an eviction up; its promises are void.
    Abort { attempt: AttemptId },
    /// A member is to leave, in order: it hands its parts back, appends `Leave`, and is gone with [`Left`].
    ///
    /// [`Left`]: Command::Left
    Leaving { dc: DcId, generation: Generation },
    /// A leaving member has left: every member has all of its log, whose last entry is `cut`.
    Left { dc: DcId, generation: Generation, cut: u64 },
    /// A voter has acknowledged nothing of a member for `evict_after`, and will not before a [`Heard`].
    ///
    /// [`Heard`]: Command::Heard
    Silent {
        mark: Mark,
        /// The epoch of the policy whose `evict_after` has passed. Silence under another policy does not
        /// count.
        policy: Epoch,
    },
    /// A voter takes its [`Silent`] back, and every one with a lower number that is still on its way.
    ///
    /// [`Silent`]: Command::Silent
    Heard { mark: Mark },
    /// Sets the policy for evictions and joins.
    SetPolicy(Policy),
    /// Sets the options that all members have to agree on.
    SetOptions(AgreedOptions),
    /// All members and witnesses speak this version: it is used from now on.
    Version { version: u16 },
    /// Adds a voter without data.
    AddWitness(NewWitness),
    /// Removes a voter without data.
    RemoveWitness { id: WitnessId },
    /// Gives a member its vote, or takes it.
    Vote { dc: DcId, generation: Generation, votes: bool },
    /// Sets the rule of a prefix of lock names, or replaces it.
    SetRule { prefix: Prefix, rule: PrefixRule },
    /// Removes the rule of a prefix of lock names.
    RemoveRule { prefix: Prefix },
    /// An operator vouches that no process runs of a member that was evicted by silence: locks with the rule
    /// `evict = operator` fall home, too.
    ConfirmDead { dc: DcId, generation: Generation },
    /// Forced recovery: the first decision of a new control group, made by survivors that are no majority.
    Recover(Recovery),
    /// A leaving member stays. Only that member proposes it, once it has on disk that it appends no `Leave`
    /// before the outcome is known: a log that ends with `Leave` is that of no member that stays.
    CancelLeave { dc: DcId, generation: Generation },
}

impl Command {
    /// Returns true if the command states a fact about one generation or one attempt that it names, so that
    /// other decisions in between do not make it wrong.
    pub fn is_fact(&self) -> bool {
        matches!(
            self,
            Command::Settled { .. }
                | Command::Have { .. }
                | Command::End { .. }
                | Command::Abort { .. }
                | Command::Silent { .. }
                | Command::Heard { .. }
        )
    }
}

/// The content of [`Command::Found`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Founding {
    /// The cluster.
    pub cluster: ClusterId,
    /// At least one; no slot, server or name twice.
    pub founders: Vec<Founder>,
    /// The policy for evictions and joins.
    pub policy: Policy,
    /// The options that all members have to agree on.
    pub options: AgreedOptions,
    /// The version that all founders speak.
    pub version: u16,
}

/// One of the first members. Its generation is 0.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Founder {
    /// The slot.
    pub dc: DcId,
    /// The server.
    pub server: ServerId,
    /// Its name.
    pub name: MemberName,
    /// The address at which others reach it.
    pub address: Address,
    /// It votes from the first decision on. At least one founder does, and at most
    /// [`MAX_VOTERS`](super::MAX_VOTERS) do; the others get a vote when there is room.
    pub votes: bool,
}

/// The content of [`Command::Admit`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Admission {
    /// The slot.
    pub dc: DcId,
    /// [`Slots::next_generation`](super::Slots::next_generation) of the slot.
    pub generation: Generation,
    /// The server.
    pub server: ServerId,
    /// Its name.
    pub name: MemberName,
    /// The address at which others reach it.
    pub address: Address,
    /// A settled member that is not leaving.
    pub sponsor: DcId,
    /// The member is to vote once it is settled, if there is room.
    pub votes: bool,
    /// The statement of the server about itself.
    pub credentials: Credentials,
}

/// The statement of a server about itself when it asks to join.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Credentials {
    /// The cluster.
    pub cluster: ClusterId,
    /// The lineage that its data directory was in, or `None` if the directory was empty.
    pub lineage: Option<Lineage>,
    /// The highest version that it speaks.
    pub version: u16,
}

/// The content of [`Command::Begin`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Eviction {
    /// Increasing slots. Every unsettled joiner whose sponsor is in it is in it, too:
    /// [`Slots::with_joiners`](super::Slots::with_joiners).
    pub members: Vec<Evictee>,
    /// The reason for the assumption that they no longer serve.
    pub vouch: Vouch,
    /// The epoch of an earlier end that not all have entered, because no reachable member has the entries up
    /// to a cut of it. Its cuts are then set again with this one.
    pub recut: Option<Epoch>,
}

/// A member that is to be evicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Evictee {
    /// The slot.
    pub dc: DcId,
    /// The generation in the slot.
    pub generation: Generation,
    /// The clock of the last heartbeat of its server that anybody had heard when the operator vouched that it
    /// does not run. One that knows a later heartbeat gives the eviction up: the server was started since.
    pub last_heard: Timestamp,
}

/// The reason for the assumption that a member no longer serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Vouch {
    /// An operator said so. Needs the policy `operator` or `auto`.
    Operator,
    /// A majority of the voters has heard nothing of it for `evict_after`. Needs the policy `auto`.
    Silence,
    /// An operator said so, and its slot is to be given to a replacement. Possible under every policy.
    Replacement,
}

/// A numbered statement by one generation of a voter about one generation of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Mark {
    /// The voter.
    pub by: Voter,
    /// The member.
    pub of: DcId,
    /// The generation of the member.
    pub of_generation: Generation,
    /// Increases with every statement of this voter about this member.
    pub number: u64,
}

/// The content of [`Command::AddWitness`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NewWitness {
    /// The id with which it has links and a certificate, as a member has its slot. No member and no other
    /// witness ever had it.
    pub dc: DcId,
    /// The server.
    pub server: ServerId,
    /// Its name.
    pub name: MemberName,
    /// The address at which others reach it.
    pub address: Address,
    /// The statement of the server about itself.
    pub credentials: Credentials,
}

/// The content of [`Command::Recover`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Recovery {
    /// The lineage of the new control group: that of the config plus 1.
    pub lineage: Lineage,
    /// Each survivor with the entries that it has applied, in increasing order. All other members are lost,
    /// and so are all witnesses.
    pub survivors: Vec<(DcId, VersionVector)>,
}
