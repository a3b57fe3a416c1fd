//! Pure. The members of the cluster: the list of decisions, and the state after each.
//!
//! A majority of the voters orders [`Command`]s into a list, with a consensus library, outside of this
//! module. Here is the meaning of the list. [`Config::apply`] takes the decisions in their order, one after
//! the other, on every member and witness. It is deterministic, so all have equal configs after equally many
//! decisions. A command that does not fit the config is a decision without effect: a proposal names the
//! [`Revision`] that it was checked against, as a compare-and-set on etcd's revision does.
//!
//! **Locks never wait for a decision.** A decision does not change what a member does with locks at once:
//! each member *enters* it with an entry of its own log, and entries say in which [`Epoch`] they were made.
//! An entry is judged by the members of its epoch ([`Slots::members_at`]), wherever it is applied.
//!
//! **Slots, generations, cuts.** A member has a slot, [`DcId`](geolock_api::names::DcId), and a slot has one
//! member at a time. Each member of a slot is a new [`Generation`], whose entries have numbers of their own.
//! A generation that is *over* has a *cut*, the last of its entries that counts: no member ever applies one
//! beyond it.
//!
//! **One change at a time.** A decision that begins an epoch is proposed when all members have entered the
//! epoch before ([`Config::check_proposal`]). So members are at most one change apart, and consecutive sets
//! of voters share a voter in any two majorities.
//!
//! **Changes in steps**, so that each decision is small and no datacenter has to wait for another:
//!
//! - A member joins with `Admit`, `Settled` and `Vote`. In between, its parts go with those of its *sponsor*,
//!   until all members have split them off.
//! - A member leaves with `Leaving` and `Left`. In between, it hands its parts back, and waits until all
//!   members have its whole log.
//! - A member is evicted with `Begin`, `Have` of each remaining member, and `End`. Each remaining member
//!   promises to accept no more entries of the evicted one, and reports the entries that it has. The highest
//!   report is the cut.
//! - Survivors without a majority continue in a new control group with `Recover` (forced recovery).
//!
//! Nothing here knows locks, time or messages: the members' logs, leases and links act on the config.
//!
//! # Decisions
//!
//! - **At most 64 members**: a set of datacenters, or of the parts of a lock, is one machine word.
//! - **The state of the list is bounded by the counts in it, not by its size** (`tests/largest.rs`). A
//!   refusal by size would come at some decision, perhaps at an eviction.
//! - **An operator vouches for one run of a server, named by its last heartbeat** (`attempt.rs`,
//!   `was_started`). The first design numbered the starts of servers. The clocks of heartbeats increase
//!   over restarts already and every member knows them, and a member that hears a later one knows that the
//!   server ran after the operator's word.
//! - **A witness has the id of a datacenter, which no member and no other witness ever has**
//!   (`witnesses.rs`). Links, certificates and tables are by such ids, and a late statement about a link is
//!   never one about another server.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(missing_docs)]

mod apply;
mod attempt;
mod check;
mod command;
mod config;
mod display;
mod fallen;
mod history;
mod ids;
mod policy;
mod propose;
mod recovery;
mod refused;
mod rules;
mod slot;
mod slots;
#[cfg(test)]
mod tests;
mod witnesses;

pub use apply::Applied;
pub use attempt::{Attempt, Cut, LastEnd};
pub use check::BrokenConfig;
pub use command::{
    Admission, Command, Credentials, Evictee, Eviction, Founder, Founding, Mark, NewWitness, Proposal,
    Recovery, Vouch,
};
pub use config::{
    Config, FIRST_FENCE, MAX_CONFIG, MAX_EVICTIONS, MAX_INVITATIONS, MAX_VOTERS, RECOVERY_FENCES, Silence,
};
pub use fallen::{Fallen, MAX_FALLEN};
pub use history::{MAX_VOTER_SETS, VoterSet};
pub use ids::{
    Address, AttemptId, Epoch, Generation, Index, Lineage, MAX_ADDRESS, MemberName, Revision, ServerId,
    TextError, Voter, WitnessId,
};
pub use policy::{AgreedOptions, EvictPolicy, JoinPolicy, Policy, PolicyChange};
pub use propose::{Facts, Unsettled};
pub use recovery::{Ballot, LossReport, LostMember, RecoveryPlan, RecoveryPromise};
pub use refused::{Dcs, Refused};
pub use rules::{MAX_RULES, Prefix, PrefixRule, Rules};
pub use slot::{EndCause, MAX_PAST, Member, Past, Phase, Slot, Witness};
pub use slots::Slots;
pub use witnesses::Witnesses;
