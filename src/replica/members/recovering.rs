//! The state of a forced recovery at one member: its promise, and what it gathers from the others.

use std::collections::BTreeMap;

use super::Members;
use crate::base::time::Instant;
use crate::crdt::VersionVector;
use crate::membership::{
    Ballot, Command, Config, Epoch, Index, LossReport, RecoveryPlan, RecoveryPromise, Refused,
};
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
pub(super) struct Recovering {
    /// The last promise.
    pub(super) promise: Option<RecoveryPromise>,
    /// The position of its record.
    pub(super) recorded: Position,
    /// The recovery that this survivor gathers promises for.
    pub(super) gathering: Option<Gathering>,
    /// The highest round that any survivor has told.
    pub(super) round: u64,
    /// The state after the last recovery.
    recovered: Option<Box<Config>>,
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
        self.plan.survivors.difference(have)
    }
}

impl Members {
    /// Returns the plan for which this member has promised.
    fn recovery_promised(&self) -> Option<RecoveryPlan> {
        self.recovering.promise?.plan
    }

    /// Returns the members of which this one takes nothing more because they are lost.
    pub(super) fn given_up(&self) -> DcSet {
        self.recovery_promised().map_or(DcSet::EMPTY, |plan| plan.lost)
    }

    /// Returns true if decisions of the control group count, or those that `peer` tells.
    pub(super) fn heeds(&self, peer: Option<DcId>) -> bool {
        let is_lost = peer.is_some_and(|peer| self.config.slots().is_lost(peer));
        let is_survivor = |plan: RecoveryPlan| peer.is_some_and(|peer| plan.survivors.contains(peer));
        !is_lost && self.recovery_promised().is_none_or(is_survivor)
    }

    /// Returns true if a decision may be told: one that this survivor made has to be on disk. Otherwise the
    /// others could go on with it, and this survivor, after a crash, with another one.
    pub(super) fn may_tell(&self) -> bool {
        self.recovering.decided.is_none()
    }

    /// Returns the state after the last recovery, once its decision is on disk: the control group begins with
    /// it anew.
    pub fn recovered(&self) -> Option<&Config> {
        self.recovering.recovered.as_deref().filter(|_| self.may_tell())
    }

    /// The last decision is a recovery, in the record at this position.
    pub(super) fn note_recovery(&mut self, position: Position) {
        self.recovering.decided = Some(position);
        self.goes_on_at = Some(position);
    }

    /// A decision is known: a recovery ends its promises.
    pub(super) fn end_recovery(&mut self, decided: &Command) {
        if matches!(decided, Command::Recover(_)) {
            self.recovering.recovered = Some(Box::new(self.config.clone()));
        }
        self.end_promises();
    }

    fn end_promises(&mut self) {
        let lineage = self.config.lineage();
        let recovering = &mut self.recovering;
        if recovering.gathering.as_ref().is_some_and(|it| it.plan.lineage <= lineage) {
            recovering.gathering = None;
        }
        if let Some(promise) = &mut recovering.promise
            && promise.plan.is_some_and(|plan| plan.lineage <= lineage)
        {
            promise.plan = None;
        }
    }

    /// A record, or a checkpoint, has this promise.
    pub fn note_recovery_promise(&mut self, promise: RecoveryPromise, recorded: Position) {
        self.recovering.round = self.recovering.round.max(promise.ballot.round);
        (self.recovering.promise, self.recovering.recorded) = (Some(promise), recorded);
        self.end_promises();
    }

    /// Returns the promise for a checkpoint.
    pub(super) fn recovery_promise(&self) -> Option<RecoveryPromise> {
        self.recovering.promise
    }

    /// Returns the recoveries that are entered here.
    pub fn loss_reports(&self) -> &[LossReport] {
        &self.recovering.reports
    }

    /// A recovery is entered, or was, as a record or a checkpoint says.
    pub fn note_loss(&mut self, report: LossReport) {
        if self.recovering.reports.iter().all(|known| known.decision != report.decision) {
            self.recovering.reports.push(report);
        }
    }

    /// Returns the recovery under way for operators.
    pub fn recovery_view(&self) -> RecoveryView {
        let Recovering { gathering, asked, refused, .. } = &self.recovering;
        let under_way = gathering.as_ref().map(|it| (it.plan, it.missing()));
        RecoveryView { asked: *asked, under_way, refused: refused.clone() }
    }
}

impl Members {
    /// Returns the survivors of the recovery with this epoch, and the config before it.
    pub(super) fn recovery_at(&self, epoch: Epoch) -> Option<(DcSet, Config)> {
        let at = usize::try_from(epoch.0).ok()?.checked_sub(1)?;
        let Command::Recover(recovery) = &self.decisions.get(at)?.command else { return None };
        let mut before = Config::default();
        for proposal in &self.decisions[..at] {
            // A refused command is a decision without effect.
            let _applied = before.apply(before.index().next(), proposal);
        }
        Some((recovery.survivors.iter().map(|(dc, _)| *dc).collect(), before))
    }
}
