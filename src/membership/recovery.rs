//! Forced recovery before its decision: the order of an operator, and the promises of the survivors.
//!
//! ```text
//! ask      of one survivor to all others: promise to take nothing more of the lost members
//! promise  of each, on disk, with what it has and the number of decisions that it knows
//! decide   by the survivor that asked, once all have promised: `Recover`, the next decision after all that
//!          any survivor knows
//! ```
//!
//! This is Paxos with one decision, all survivors as the quorum of promises, and the survivor that asks as
//! the quorum of acceptances: a survivor that asks later, with a higher ballot, asks all, and so also the one
//! that has decided, which answers with its decision. So the survivors never split.

use std::collections::BTreeSet;
use std::fmt;

use geolock_api::names::{DcId, DcSet};
use serde::{Deserialize, Serialize};

use super::command::{Command, Recovery};
use super::config::Config;
use super::ids::{Generation, Index, Lineage, MemberName};
use super::propose::Facts;
use super::refused::Refused;
use super::slot::Phase;
use crate::base::time::Timestamp;
use crate::crdt::VersionVector;

/// The number of an attempt: an attempt with a higher one takes its place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Ballot {
    /// Higher than that of every attempt that the survivor has heard of.
    pub round: u64,
    /// The survivor that asks.
    pub by: DcId,
}

impl fmt::Display for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.round, self.by)
    }
}

/// A forced recovery, as an operator asks for it. Survivors and lost ones are all members.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RecoveryPlan {
    /// The lineage of the new control group.
    pub lineage: Lineage,
    /// The members that continue.
    pub survivors: DcSet,
    /// The members that are gone for good.
    pub lost: DcSet,
}

/// A survivor's promise to the one that asked. Disk type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RecoveryPromise {
    /// The attempt. No promise is made for one that is not higher.
    pub ballot: Ballot,
    /// The plan; `None` once the attempt was given up.
    pub plan: Option<RecoveryPlan>,
}

/// The report of a forced recovery: the things that it took with it, as one survivor saw it. Disk type.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LossReport {
    /// The decision, and so the epoch. The lost members may have made others, from this number on.
    pub decision: Index,
    /// The lineage that began with it.
    pub lineage: Lineage,
    /// The members that continued.
    pub survivors: DcSet,
    /// The members that were lost.
    pub lost: Vec<LostMember>,
    /// The locks of which a lost member owned parts, held or not: all these parts fell home.
    pub locks: u64,
}

/// A member that was lost. Disk type.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LostMember {
    /// The slot.
    pub dc: DcId,
    /// The generation in the slot.
    pub generation: Generation,
    /// Its name.
    pub name: MemberName,
    /// The number of its last entry that counts, in its generation; 0 for none.
    pub last_entry: u64,
    /// The time of that entry, by its clock.
    pub stamp: Option<Timestamp>,
}

impl Config {
    /// Returns the plan of an operator that names these, in this lineage.
    pub fn recovery_plan(&self, survivors: DcSet, lost: DcSet) -> RecoveryPlan {
        RecoveryPlan { lineage: Lineage(self.lineage().0 + 1), survivors, lost }
    }

    /// Checks a plan at the survivor `me`, which knows these facts. [`Facts::reachable`] are those that it
    /// has a link to.
    pub fn check_recovery(&self, facts: &Facts, me: DcId, plan: &RecoveryPlan) -> Result<(), Refused> {
        let RecoveryPlan { survivors, lost, .. } = *plan;
        if self.cluster().is_none() {
            return Err(Refused::NotFounded);
        }
        let named = survivors.union(lost);
        if let Some(dc) = named.iter().find(|dc| self.slots().member(*dc).is_none()) {
            return Err(Refused::NotMember { dc });
        }
        let twice = survivors.intersection(lost);
        let missing = self.slots().member_set().difference(named);
        if !twice.is_empty() || !missing.is_empty() {
            return Err(Refused::NotAllNamed { missing, twice });
        }
        if !survivors.contains(me) {
            return Err(Refused::NotSurvivor { dc: me });
        }
        let own = self.slots().member(me).ok_or(Refused::NotMember { dc: me })?;
        if own.phase == Phase::Joining {
            return Err(Refused::JoinerRecovers { dc: me, sponsor: own.sponsor });
        }
        // The vectors are known later, and change nothing about the rest.
        let recovery = Recovery {
            lineage: plan.lineage,
            survivors: survivors.iter().map(|dc| (dc, VersionVector::default())).collect(),
        };
        self.check_recover(facts, me, recovery).map(drop)
    }

    /// Returns the decision of a recovery, if it is possible now.
    pub fn check_recover(
        &self,
        facts: &Facts,
        me: DcId,
        recovery: Recovery,
    ) -> Result<super::Proposal, Refused> {
        let survivors: DcSet = recovery.survivors.iter().map(|(dc, _)| *dc).collect();
        for dc in self.slots().member_set().difference(survivors).iter() {
            if let Some((by, ago)) = facts.heard.get(&dc).filter(|(_, ago)| *ago < facts.heard_within) {
                return Err(Refused::StillHeard { dc, by: *by, ago: *ago });
            }
        }
        let reached: BTreeSet<DcId> = facts.reachable.iter().filter_map(|voter| voter.dc()).collect();
        let away: DcSet = survivors.iter().filter(|dc| *dc != me && !reached.contains(dc)).collect();
        let proposal = self.check_proposal(facts, Command::Recover(recovery))?;
        if !away.is_empty() {
            return Err(Refused::SurvivorAway { members: away });
        }
        Ok(proposal)
    }
}
