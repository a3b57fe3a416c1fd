//! Forced recovery: survivors without a majority of the voters go on without the others
//! (`docs/algorithm/membership.md#7-forced-recovery`).
//!
//! ```text
//! message  Ask       of the survivor at which an operator says so, to the other survivors
//! record   promise   of each: it takes nothing more of the lost members, and no decision of the old group
//! message  Promised  of each, when that is on disk, with each heartbeat: what it has, and which decisions
//! decision Recover   by the one that asked, once all have promised; the others get it like any decision
//! log      Enter     of each, when it has everything up to the cuts, as after an eviction
//! ```
//!
//! A promise binds until its decision is known, or until the survivor that asked says that it gave up.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Members;
use super::recovery_state::Gathering;
use crate::base::bugs::Bug;
use crate::base::time::Now;
use crate::causal_log::Log;
use crate::crdt::VersionVector;
use crate::lock_state::Locks;
use crate::membership::{
    Ballot, Cut, Epoch, Facts, Index, Lineage, LossReport, LostMember, Proposal, Recovery, RecoveryPlan,
    RecoveryPromise, Refused, Voter,
};
use crate::replica::config::ReplicaConfig;
use crate::replica::effect::Report;
use crate::replica::lend::lend;
use crate::replica::lifecycle::Lifecycle;
use crate::replica::message::Message;
use crate::replica::outputs::Outputs;
use crate::replica::peers::Peers;
use crate::replica::record::Record;
use crate::replica::writer::Writer;
use geolock_api::names::{DcId, DcSet};

/// An attempt is given up when a survivor has not promised for this many peer timeouts.
const PATIENCE: u32 = 4;

/// A message between survivors. Wire type: append only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each variant explains its fields")]
pub enum RecoveryMessage {
    /// An operator wants this. The receiver promises to take nothing more of the lost members.
    Ask { ballot: Ballot, plan: RecoveryPlan },
    /// The sender has promised, on disk. It knows the first `known` decisions, and has what is in `vector`.
    Promised { ballot: Ballot, known: Index, vector: VersionVector },
    /// The sender does not promise. `promised`: the highest ballot that it knows.
    Refused { ballot: Ballot, promised: Option<Ballot>, why: String },
    /// The sender gave this attempt up: the promise is void.
    GivenUp { ballot: Ballot },
}

/// The steps of a survivor when an operator goes on without the others.
pub(in crate::replica) struct ForcedRecovery<'a> {
    pub(in crate::replica) config: &'a ReplicaConfig,
    pub(in crate::replica) now: Now,
    pub(in crate::replica) out: &'a mut Outputs,
    pub(in crate::replica) log: &'a mut Log,
    pub(in crate::replica) locks: &'a mut Locks,
    pub(in crate::replica) lifecycle: &'a mut Lifecycle,
    pub(in crate::replica) members: &'a mut Members,
    pub(in crate::replica) peers: &'a mut Peers,
}

impl ForcedRecovery<'_> {
    /// An operator says that these members are gone for good.
    pub(in crate::replica) fn on_recover(&mut self, plan: RecoveryPlan) {
        self.members.recovering.asked += 1;
        if let Err(refused) = self.may_recover(&plan).and_then(|()| self.may_promise(&plan)) {
            return self.give_up(refused);
        }
        let is_under_way = self.members.recovering.gathering.as_ref().is_some_and(|it| it.plan == plan);
        if !is_under_way {
            if let Some(gathering) = self.members.recovering.gathering.take() {
                self.tell_given_up(&gathering);
            }
            let ballot = Ballot { round: self.members.recovering.round + 1, by: self.config.dc };
            let until = self.now.mono + self.config.agreed.peer_timeout * PATIENCE;
            self.promise(RecoveryPromise { ballot, plan: Some(plan) });
            self.members.recovering.gathering =
                Some(Gathering { ballot, plan, reports: BTreeMap::new(), until });
        }
        self.members.recovering.refused = None;
        self.drive_recovery();
    }

    /// Checks that this survivor may promise something for a plan: what it has promised to another one it
    /// keeps, since that one may have decided.
    fn may_promise(&self, plan: &RecoveryPlan) -> Result<(), Refused> {
        match self.members.recovering.promise {
            Some(RecoveryPromise { ballot, plan: Some(before) })
                if ballot.by != self.config.dc && !plan.lost.is_superset(before.lost) =>
            {
                Err(Refused::RecoveryElsewhere { dc: ballot.by, ballot })
            }
            _ => Ok(()),
        }
    }

    /// Checks a plan with what is known here.
    fn may_recover(&self, plan: &RecoveryPlan) -> Result<(), Refused> {
        if self.members.decided.awaits_state() {
            return Err(Refused::NotFounded);
        }
        if self.members.needs_state() {
            return Err(Refused::LacksState);
        }
        self.members.decided.config().check_recovery(&self.recovery_facts(), self.config.dc, plan)
    }

    /// Members that are heard and have a link here can be reached: a survivor has to promise. Witnesses that
    /// are heard count as voters.
    fn recovery_facts(&self) -> Facts {
        let facts = self.members.facts(self.peers, self.config, self.now);
        let alive = self.peers.reachability.alive(self.now.mono);
        let config = self.members.decided.config();
        let voter = |dc| Some(Voter::Member { dc, generation: config.slots().generation(dc)? });
        let members = alive.intersection(self.log.peers().linked()).iter().filter_map(voter);
        let witnesses = facts.reachable.iter().copied().filter(|voter| voter.dc().is_none());
        Facts { reachable: members.chain(witnesses).collect(), ..facts }
    }

    fn promise(&mut self, promise: RecoveryPromise) {
        let recorded = self.out.persist(Record::RecoveryPromised(promise));
        self.members.note_recovery_promise(promise, recorded);
        self.members.goes_on_at = Some(recorded);
        // Entries of the lost members were held back, or are from now on.
        self.peers.links.retry_at_most(self.now.mono);
    }

    /// Gives the recovery that is under way up, if one is.
    fn give_up(&mut self, refused: Refused) {
        self.out.report(Report::RecoveryRefused { why: refused.to_string() });
        self.members.recovering.refused = Some(refused);
        let Some(gathering) = self.members.recovering.gathering.take() else { return };
        let ballot = gathering.ballot;
        if self.members.recovering.promise.is_some_and(|promise| promise.ballot == ballot) {
            self.promise(RecoveryPromise { ballot, plan: None });
        }
        self.tell_given_up(&gathering);
    }

    fn tell_given_up(&mut self, gathering: &Gathering) {
        for peer in gathering.plan.survivors.intersection(self.log.peers().linked()).iter() {
            self.send_recovery(peer, RecoveryMessage::GivenUp { ballot: gathering.ballot });
        }
    }

    fn send_recovery(&mut self, peer: DcId, message: RecoveryMessage) {
        self.out.send(self.log, peer, Message::Recovery(Box::new(message)));
    }

    /// Does what a recovery needs from this survivor, with each heartbeat, and when something about it has
    /// changed. Any message may be lost.
    pub(in crate::replica) fn drive_recovery(&mut self) {
        let me = self.config.dc;
        if let Some(RecoveryPromise { ballot, plan: Some(plan) }) = self.members.recovering.promise {
            let gathers = self.members.recovering.gathering.as_ref().is_some_and(|it| it.ballot == ballot);
            if ballot.by == me && !gathers {
                // This server was restarted since, and has decided nothing: nobody can any more.
                return self.promise(RecoveryPromise { ballot, plan: None });
            }
            if ballot.by != me && self.log.peers().linked().contains(ballot.by) {
                match self.may_recover(&plan) {
                    Err(refused @ (Refused::StillHeard { .. } | Refused::MajorityUp { .. })) => {
                        self.refuse(ballot, refused)
                    }
                    _ => self.report_promise(ballot),
                }
            }
        }
        let Some(gathering) = &self.members.recovering.gathering else { return };
        let (ballot, plan, missing) = (gathering.ballot, gathering.plan, gathering.missing());
        assert_eq!(ballot.by, me, "a survivor gathers promises for its own attempt");
        if let Some(promise) = self.members.recovering.promise.filter(|promise| promise.ballot != ballot) {
            let elsewhere = promise.ballot;
            return self.give_up(Refused::RecoveryElsewhere { dc: elsewhere.by, ballot: elsewhere });
        }
        if self.now.mono >= gathering.until {
            return self.give_up(Refused::SurvivorAway { members: missing });
        }
        if let Err(refused) = self.may_recover(&plan) {
            return self.give_up(refused);
        }
        if missing.contains(me) {
            self.report_promise(ballot);
        }
        // A ballot that a crash took back would be used again.
        if self.out.output_commit.may_emit(self.members.recovering.recorded) {
            let others = missing.difference(DcSet::only(me)).intersection(self.log.peers().linked());
            for peer in others.iter() {
                self.send_recovery(peer, RecoveryMessage::Ask { ballot, plan });
            }
        }
        self.decide_recovery();
    }

    fn refuse(&mut self, ballot: Ballot, refused: Refused) {
        let promised = self.members.recovering.promise.map(|promise| promise.ballot);
        let why = refused.to_string();
        self.send_recovery(ballot.by, RecoveryMessage::Refused { ballot, promised, why });
    }

    /// Reports what this survivor has, once its promise is on disk, and with it all that it has of the lost
    /// members: what it reports, it has after a crash, and nothing more of them.
    fn report_promise(&mut self, ballot: Ballot) {
        let promised = self.members.recovering.promise.filter(|promise| promise.plan.is_some());
        let promised = promised.map(|promise| promise.ballot);
        assert_eq!(promised, Some(ballot), "a survivor reports for what it has promised");
        let is_durable = |dc| self.log.durable().get(dc) == self.log.applied().get(dc);
        let is_on_disk = self.out.output_commit.may_emit(self.members.recovering.recorded)
            && self.members.promised().iter().all(is_durable);
        if !is_on_disk && !self.config.bugs.has(Bug::ReportBeforePromise) {
            return;
        }
        let (known, vector) = (self.members.decided.config().index(), (**self.log.durable()).clone());
        match ballot.by == self.config.dc {
            true => self.note_report(self.config.dc, ballot, known, vector),
            false => self.send_recovery(ballot.by, RecoveryMessage::Promised { ballot, known, vector }),
        }
    }

    fn note_report(&mut self, by: DcId, ballot: Ballot, known: Index, vector: VersionVector) {
        let gathering = self.members.recovering.gathering.as_mut();
        if let Some(gathering) = gathering.filter(|it| it.ballot == ballot && it.plan.survivors.contains(by))
        {
            gathering.reports.insert(by, (known, vector));
        }
    }

    /// Decides, once all survivors have promised and every decision that one of them knows is known here.
    fn decide_recovery(&mut self) {
        let Some(gathering) = self.members.recovering.gathering.clone() else { return };
        let index = self.members.decided.config().index();
        let knows_more = |(_, (known, _)): &(&DcId, &(Index, VersionVector))| *known > index;
        if let Some((peer, _)) = gathering.reports.iter().find(knows_more) {
            // It answers with what is missing here.
            return lend!(Decisions, self).tell_decisions_to(*peer);
        }
        let Some((_, own)) = gathering.reports.get(&self.config.dc) else { return };
        if !gathering.missing().is_empty() && !self.config.bugs.has(Bug::RecoversWithoutReports) {
            return;
        }
        let vector = |dc| gathering.reports.get(&dc).map_or(own, |(_, vector)| vector).clone();
        let recovery = Recovery {
            lineage: gathering.plan.lineage,
            survivors: gathering.plan.survivors.iter().map(|dc| (dc, vector(dc))).collect(),
        };
        let facts = self.recovery_facts();
        match self.members.decided.config().check_recover(&facts, self.config.dc, recovery) {
            Ok(proposal) => self.make_decision(index.next(), proposal),
            Err(refused) => self.give_up(refused),
        }
    }

    fn make_decision(&mut self, index: Index, proposal: Proposal) {
        let recorded = self.out.persist(Record::Decided { index, proposal: Box::new(proposal.clone()) });
        lend!(Decisions, self).take_decision(index, proposal);
        assert_eq!(self.members.decided.config().index(), index, "the decision that was made is known");
        self.members.note_recovery(recorded);
        self.peers.links.retry_at_most(self.now.mono);
    }

    /// Tells the decision of this survivor once it is on disk: so is all that `Decisions::go_on` has waited
    /// for.
    pub(super) fn tell_recovery(&mut self) {
        if let Some(decided) = self.members.recovering.decided.take() {
            assert!(self.out.output_commit.may_emit(decided), "a decision is told when it is on disk");
            lend!(Decisions, self).tell_decisions();
        }
    }

    /// Takes a message of another survivor.
    pub(in crate::replica) fn on_recovery(&mut self, peer: DcId, message: RecoveryMessage) {
        if self.lifecycle.state.is_starting() {
            return;
        }
        match message {
            RecoveryMessage::Ask { ballot, plan } => self.on_asked(peer, ballot, plan),
            RecoveryMessage::Promised { ballot, known, vector } => {
                let gathering = self.members.recovering.gathering.as_ref();
                if gathering.is_some_and(|it| it.ballot == ballot) {
                    self.note_report(peer, ballot, known, vector);
                    self.drive_recovery();
                } else if ballot.by == self.config.dc {
                    // It was decided, or given up. One that lags learns the decision first.
                    lend!(Decisions, self).tell_decisions_to(peer);
                    if self.members.recovering.may_tell() && known >= self.members.decided.config().index() {
                        self.send_recovery(peer, RecoveryMessage::GivenUp { ballot });
                    }
                }
            }
            RecoveryMessage::Refused { ballot, promised, why } => {
                let recovering = &mut self.members.recovering;
                recovering.round = recovering.round.max(promised.map_or(0, |promised| promised.round));
                if recovering.gathering.as_ref().is_some_and(|it| it.ballot == ballot) {
                    self.give_up(Refused::NoPromise { dc: peer, why });
                }
            }
            RecoveryMessage::GivenUp { ballot } => {
                let promise = self.members.recovering.promise;
                if ballot.by == peer && promise.is_some_and(|it| it.ballot == ballot && it.plan.is_some()) {
                    self.promise(RecoveryPromise { ballot, plan: None });
                }
            }
        }
    }

    fn on_asked(&mut self, peer: DcId, ballot: Ballot, plan: RecoveryPlan) {
        if self.members.decided.config().lineage() >= plan.lineage || ballot.by != peer {
            return lend!(Decisions, self).tell_decisions_to(peer);
        }
        let promised = self.members.recovering.promise;
        if promised.is_some_and(|promise| promise.ballot == ballot && promise.plan.is_some()) {
            return self.report_promise(ballot);
        }
        let last = promised.map(|promise| promise.ballot);
        let may_recover = match self.may_recover(&plan) {
            // It need not reach the others itself.
            Err(Refused::SurvivorAway { .. }) => Ok(()),
            checked => checked,
        };
        let why = match may_recover.and_then(|()| self.may_promise(&plan)) {
            Err(refused) => refused.to_string(),
            Ok(()) if last.is_some_and(|last| last >= ballot) => "it has promised another attempt".into(),
            Ok(()) => {
                self.promise(RecoveryPromise { ballot, plan: Some(plan) });
                return self.drive_recovery();
            }
        };
        self.send_recovery(peer, RecoveryMessage::Refused { ballot, promised: last, why });
    }
}

impl Writer<'_> {
    /// Notes what the epoch that is entered next takes with it, if it is a recovery: the lost members are
    /// not over yet.
    pub(super) fn report_loss(&mut self, epoch: Epoch) {
        let is_known = |report: &LossReport| report.decision.0 == epoch.0;
        let Some((survivors, before)) = self.members.decided.list().recovery_at(epoch) else { return };
        if self.members.recovering.loss_reports().iter().any(is_known) {
            return;
        }
        let member = |cut: Cut| {
            let name = before.slots().member(cut.dc)?.name.clone();
            debug_assert!(cut.seq >= cut.generation.base(), "{cut:?} is of its generation");
            let last_entry = cut.seq - cut.generation.base();
            let stamp = (last_entry > 0).then(|| self.log.last_stamp(cut.dc));
            Some(LostMember { dc: cut.dc, generation: cut.generation, name, last_entry, stamp })
        };
        let lost: Vec<LostMember> =
            self.members.decided.config().slots().lost_at(epoch).filter_map(member).collect();
        let gone = lost.iter().map(|lost| lost.dc).collect();
        let report = LossReport {
            decision: Index(epoch.0),
            lineage: Lineage(before.lineage().0 + 1),
            survivors,
            lost,
            locks: self.locks.owners().locks_owned_by(gone),
        };
        self.out.report(Report::Recovered(Box::new(report.clone())));
        self.out.persist(Record::Recovered(Box::new(report.clone())));
        self.members.recovering.note_loss(report);
    }
}
