//! Taking a leave back: only the one that leaves may propose it, because only it knows what its log says.
//!
//! ```text
//! record    StayPromised   it appends no `Leave` while it is leaving, whatever it forgets in a crash
//! decision  CancelLeave    proposed by it once that is on disk, until it is decided: it stays
//! log       Enter          of every member: it is given what it asks for again
//! ```
//!
//! A proposal may be decided much later, after a crash of its proposer, too. So the promise ends only with
//! the leave: when this member knows that it stays, or that it is over. An old proposal cannot cancel a later
//! leave, because every decision that changes something voids the proposals of before.

use super::decided::Decided;
use crate::base::bugs::Bug;
use crate::membership::{Command, Index, Proposal, Refused};
use crate::replica::effect::{Effect, Report};
use crate::replica::members::Decisions;
use crate::replica::record::Record;
use geolock_api::names::{DcId, Position};

/// The end of a leave that an operator takes back, as operators see it at the member that leaves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StayView {
    /// How often an operator has asked, in this run.
    pub asked: u64,
    /// The reason why the last one was refused.
    pub refused: Option<Refused>,
    /// The members whose last leave was cancelled, with the number of that decision.
    pub cancelled: Vec<(DcId, Index)>,
}

/// The promise of a leaving member to append no `Leave`.
#[derive(Clone, Debug, Default)]
pub(in crate::replica) struct Stay {
    /// The position of its record, while it holds.
    promised: Option<Position>,
    asked: u64,
    refused: Option<Refused>,
}

impl Stay {
    /// Returns true if this member appends no `Leave`.
    pub fn is_promised(&self) -> bool {
        self.promised.is_some()
    }

    /// The record at this position, or a checkpoint, has the promise.
    pub fn note(&mut self, recorded: Position) {
        self.promised = Some(recorded);
    }

    /// Returns the cancelled leaves for operators.
    pub fn view(&self, decided: &Decided) -> StayView {
        let cancelled = decided.cancelled().iter().map(|(dc, index)| (*dc, *index)).collect();
        StayView { asked: self.asked, refused: self.refused.clone(), cancelled }
    }

    /// Decisions of which some are not known may have ended the leave, and begun another one.
    pub(super) fn forget(&mut self) {
        self.promised = None;
    }

    /// The decisions that are known have changed.
    pub(super) fn follow(&mut self, decided: &Decided) {
        if !decided.is_leaving() {
            self.promised = None;
        }
    }
}

impl Decisions<'_> {
    /// An operator takes the leave of this member back.
    pub(in crate::replica) fn on_cancel_leave(&mut self) {
        self.members.stay.asked += 1;
        self.members.stay.refused = None;
        match self.checked_cancel() {
            Ok(_) if self.members.stay.is_promised() => self.propose_cancel(),
            Ok(_) => self.promise_to_stay(),
            Err(refused) => {
                self.out.report(Report::ProposalRefused { why: refused.to_string() });
                self.members.stay.refused = Some(refused);
            }
        }
    }

    fn promise_to_stay(&mut self) {
        let recorded = match self.config.bugs.has(Bug::StayNotOnDisk) {
            true => self.out.position,
            false => self.out.persist(Record::StayPromised),
        };
        self.members.stay.note(recorded);
        self.members.goes_on_at = Some(recorded);
    }

    /// Proposes that this member stays, once its promise is on disk. A proposal may be lost, so it is
    /// repeated with each heartbeat.
    pub(in crate::replica) fn propose_cancel(&mut self) {
        if self.members.stay.promised.is_some_and(|recorded| self.out.output_commit.may_emit(recorded))
            && let Ok(proposal) = self.checked_cancel()
        {
            self.out.effects.push_back(Effect::Propose(Box::new(proposal)));
        }
    }

    /// Returns the proposal that this member stays, if it may.
    fn checked_cancel(&self) -> Result<Proposal, Refused> {
        let (dc, config) = (self.config.dc, self.members.decided.config());
        let Some(generation) = config.slots().generation(dc).filter(|_| !self.members.decided.is_over())
        else {
            return Err(Refused::HasLeft { dc });
        };
        if self.members.entered.has_left(dc) {
            return Err(Refused::HasLeft { dc });
        }
        // Its disk may be an old copy, and others may have the `Leave` that it lacks.
        if !self.lifecycle.may_enter() || self.out.is_regaining() {
            return Err(Refused::LogNotKnown { dc });
        }
        self.checked(Command::CancelLeave { dc, generation })
    }
}
