//! The state of a forced recovery at one member: its promise, and what it gathers from the others.

use std::collections::BTreeMap;

use super::Members;
use super::decided::Decided;
use crate::base::time::Instant;
use crate::crdt::VersionVector;
use crate::membership::{Ballot, Config, Index, Lineage, LossReport, RecoveryPlan, RecoveryPromise, Refused};
use geolock_api::names::{DcId, DcSet, Position};

/// Forced recovery, as operators see it at the survivor that asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryView {
    /// How often an operator has asked, in this run.
    pub asked: u64,
    /// The last plan that was asked for, and the survivors whose promises are missing.
    pub under_way: Option<(RecoveryPlan, DcSet)>,
    /// The reason why the last one was refused, or given up.
    pub refused: Option<Refused>,
}

/// Forced recovery, at one member.
#[derive(Clone, Debug, Default)]
pub(in crate::replica) struct Recovering {
    /// The last promise.
    pub(super) promise: Option<RecoveryPromise>,
    /// The position of its record.
    pub(super) recorded: Position,
    /// The recovery that this survivor gathers promises for.
    pub(super) gathering: Option<Gathering>,
    /// The highest round that any survivor has told.
    pub(super) round: u64,
    /// The position of that decision, until it is on disk.
    pub(super) decided: Option<Position>,
    pub(super) asked: u64,
    pub(super) refused: Option<Refused>,
    /// Recoveries that are entered here.
    reports: Vec<LossReport>,
}

#[derive(Clone, Debug)]
pub(super) struct Gathering {
    pub(super) ballot: Ballot,
    pub(super) plan: RecoveryPlan,
    pub(super) reports: BTreeMap<DcId, (Index, VersionVector)>,
    pub(super) until: Instant,
}

impl Gathering {
    pub(super) fn missing(&self) -> DcSet {
        let have: DcSet = self.reports.keys().copied().collect();
        let survivors = self.plan.survivors;
        debug_assert!(survivors.is_superset(have), "{have:?} have reported, of {survivors:?}");
        survivors.difference(have)
    }
}

impl Recovering {
    /// Returns the plan for which this member has promised.
    fn promised_plan(&self) -> Option<RecoveryPlan> {
        self.promise?.plan
    }

    /// Returns the members of which this one takes nothing more because they are lost.
    pub(super) fn given_up(&self) -> DcSet {
        self.promised_plan().map_or(DcSet::EMPTY, |plan| plan.lost)
    }

    /// Returns true if decisions of the control group count, or those that `peer` tells.
    pub(super) fn heeds(&self, peer: Option<DcId>) -> bool {
        let is_survivor = |plan: RecoveryPlan| peer.is_some_and(|peer| plan.survivors.contains(peer));
        self.promised_plan().is_none_or(is_survivor)
    }

    /// Returns true if a decision may be told: one that this survivor made has to be on disk. Otherwise the
    /// others could go on with it, and this survivor, after a crash, with another one.
    pub(super) fn may_tell(&self) -> bool {
        self.decided.is_none()
    }

    /// Returns the config after the last recovery, once its decision is on disk: the control group begins
    /// with it anew.
    pub fn recovered<'a>(&self, decided: &'a Decided) -> Option<&'a Config> {
        decided.recovered().filter(|_| self.may_tell())
    }

    /// Decisions of this lineage are known: a recovery ends its promises.
    pub(super) fn end_promises(&mut self, lineage: Lineage) {
        if self.gathering.as_ref().is_some_and(|it| it.plan.lineage <= lineage) {
            self.gathering = None;
        }
        if let Some(promise) = &mut self.promise
            && promise.plan.is_some_and(|plan| plan.lineage <= lineage)
        {
            promise.plan = None;
        }
    }

    /// A record, or a checkpoint, has this promise. `lineage`: that of the decisions that are known here.
    pub(super) fn note_promise(&mut self, promise: RecoveryPromise, recorded: Position, lineage: Lineage) {
        let before = self.promise.map(|before| before.ballot);
        assert!(before <= Some(promise.ballot), "{:?} is promised after {before:?}", promise.ballot);
        self.round = self.round.max(promise.ballot.round);
        (self.promise, self.recorded) = (Some(promise), recorded);
        self.end_promises(lineage);
    }

    /// Returns the recoveries that are entered here.
    pub fn loss_reports(&self) -> &[LossReport] {
        &self.reports
    }

    /// A recovery is entered, or was, as a record or a checkpoint says.
    pub fn note_loss(&mut self, report: LossReport) {
        if self.reports.iter().all(|known| known.decision != report.decision) {
            self.reports.push(report);
        }
    }

    /// Returns the recovery under way for operators.
    pub fn view(&self) -> RecoveryView {
        let under_way = self.gathering.as_ref().map(|it| (it.plan, it.missing()));
        RecoveryView { asked: self.asked, under_way, refused: self.refused.clone() }
    }
}

impl Members {
    /// A record has this promise of a forced recovery.
    pub fn note_recovery_promise(&mut self, promise: RecoveryPromise, recorded: Position) {
        self.recovering.note_promise(promise, recorded, self.decided.config().lineage());
    }

    /// The last decision is a recovery, in the record at this position.
    pub(super) fn note_recovery(&mut self, position: Position) {
        let before = self.recovering.decided.replace(position);
        debug_assert!(before <= Some(position), "records follow each other, {position:?} not {before:?}");
        self.goes_on_at = Some(position);
    }
}
