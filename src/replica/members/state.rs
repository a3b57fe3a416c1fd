//! The members in checkpoints and states.

use serde::{Deserialize, Serialize};

use super::Members;
use super::decided::known_at;
use super::decisions::go_on_after;
use super::list_state::ListState;
use crate::base::bugs::Bugs;
use crate::crdt::{HomeRules, Sponsored, Sponsors};
use crate::lock_state::{Known, Parting};
use crate::membership::{Config, Epoch, Fallen, Generation, LossReport, Proposal, RecoveryPromise};
use geolock_api::names::{DcId, DcSet, MAX_DCS, Position};

/// The members as of a position of the journal. Wire and disk type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MembersState {
    /// The decisions that are known, but for those that are compacted.
    pub decisions: Vec<Proposal>,
    /// The epoch that the own log has entered.
    pub entered: Epoch,
    /// The last epoch that each member has entered.
    pub entered_by: Vec<(DcId, Epoch)>,
    /// The members that are not settled.
    pub joins: Vec<JoinState>,
    /// The members that leave.
    pub parting: Parting,
    /// This directory joins a running cluster and has no state yet. Never in a state.
    pub awaits_state: bool,
    /// The last statement of this voter about each member that is in the journal, with its number and the
    /// epoch of the policy. None in a state.
    pub silent: Vec<(DcId, u64, Epoch)>,
    /// By slot that is over: its last generation, and the members that have freed it ([`Op::Freed`]).
    ///
    /// [`Op::Freed`]: crate::causal_log::Op::Freed
    pub freed: Vec<(DcId, Generation, DcSet)>,
    /// The last promise of this member for a forced recovery. None in a state.
    pub recovery: Option<RecoveryPromise>,
    /// The forced recoveries that are entered here. None in a state.
    pub losses: Vec<LossReport>,
    /// The homes of prefixes.
    pub rules: HomeRules,
    /// This member has promised to append no `Leave`. Never in a state.
    pub stays: bool,
    /// The locks and counters of the last ends of members. None in a state.
    pub fallen: Vec<Fallen>,
    /// The state after the decisions that are compacted. Stored by itself.
    #[serde(skip)]
    pub compacted: Box<ListState>,
}

/// The same in version 3 of the disk. Disk type: this never changes.
#[derive(Deserialize)]
pub(in crate::replica) struct MembersStateV3 {
    decisions: Vec<Proposal>,
    entered: Epoch,
    entered_by: Vec<(DcId, Epoch)>,
    joins: Vec<JoinState>,
    parting: Parting,
    awaits_state: bool,
    silent: Vec<(DcId, u64, Epoch)>,
    freed: Vec<(DcId, Generation, DcSet)>,
    recovery: Option<RecoveryPromise>,
    losses: Vec<LossReport>,
}

impl From<MembersStateV3> for MembersState {
    fn from(state: MembersStateV3) -> MembersState {
        MembersState {
            decisions: state.decisions,
            entered: state.entered,
            entered_by: state.entered_by,
            joins: state.joins,
            parting: state.parting,
            awaits_state: state.awaits_state,
            silent: state.silent,
            freed: state.freed,
            recovery: state.recovery,
            losses: state.losses,
            rules: HomeRules::default(),
            stays: false,
            fallen: Vec::new(),
            compacted: Box::default(),
        }
    }
}

/// A member that is not settled. Wire and disk type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinState {
    /// Its slot, and so its part.
    pub part: DcId,
    /// Its generation of the slot.
    pub generation: Generation,
    /// The member whose part its part goes along with.
    pub sponsor: DcId,
    /// The epoch of its admission.
    pub epoch: Epoch,
    /// The members before its admission.
    pub older: DcSet,
    /// Those of `older` with which nothing goes along any more: their [`Op::Done`] is applied.
    ///
    /// [`Op::Done`]: crate::causal_log::Op::Done
    pub done: DcSet,
    /// The sponsor has split the part off.
    pub split: bool,
}

impl MembersState {
    /// Returns the parts that are not settled.
    pub fn sponsors(&self) -> Sponsors {
        let row = |join: &JoinState| Sponsored { part: join.part, sponsor: join.sponsor, split: join.split };
        let sponsors: Sponsors = self.joins.iter().map(row).collect();
        let Known { left, no_homes, .. } = self.known();
        sponsors.with_left(left, no_homes).with_rules(self.rules.clone())
    }

    /// Returns the same with all decisions compacted, which only a check compares.
    pub(crate) fn with_all_compacted(self) -> MembersState {
        let compacted = Box::new(self.compacted.after(&self.decisions));
        MembersState { compacted, decisions: Vec::new(), ..self }
    }

    /// Returns the config after all decisions.
    pub(super) fn config(&self) -> Config {
        self.compacted.config_after(&self.decisions)
    }

    /// Returns true if a member can give this as a state: it has one itself, has entered all epochs of which
    /// the decisions are compacted, and no epoch that it does not know, nor rules of such an epoch.
    pub(crate) fn can_be_given(&self) -> bool {
        !self.awaits_state
            && self.entered >= self.compacted.config().epoch()
            && self.entered <= self.config().epoch()
            && self.rules.are_of(self.entered.0)
    }

    /// Returns the datacenters of the entered epoch.
    pub(crate) fn known(&self) -> Known {
        known_at(&self.config(), self.entered)
    }
}

impl Members {
    /// Returns the members for a checkpoint or a state; `None` if there are no decisions.
    pub fn state(&self, sponsors: &Sponsors) -> Option<MembersState> {
        let Members { decided, entered, .. } = self;
        let me = decided.me();
        let slots = (0..MAX_DCS).map(|slot| DcId::new(slot as u8).expect("there are no more slots"));
        // Also of members whose end is decided and not entered here: what they did before it is lacking.
        let entered_by = slots.map(|dc| (dc, entered.epoch_of(dc))).filter(|(_, epoch)| *epoch > Epoch(0));
        decided.has_decisions().then(|| MembersState {
            decisions: decided.list().proposals().to_vec(),
            // One that has left follows the epochs silently, again after a restart.
            entered: if entered.has_left(me) { entered.epoch_of(me) } else { entered.epoch() },
            entered_by: entered_by.collect(),
            joins: self.joins.state(sponsors),
            parting: entered.parting(),
            awaits_state: decided.awaits_state(),
            silent: self.silences.state(),
            freed: self.ended_slots.state(),
            recovery: self.recovering.promise,
            losses: self.recovering.loss_reports().to_vec(),
            rules: sponsors.rules().clone(),
            stays: self.stay.is_promised(),
            fallen: self.ends.all().to_vec(),
            compacted: Box::new(decided.list().compacted().clone()),
        })
    }

    /// Takes over the members of a state, or of a checkpoint. Decisions that are known here and not there
    /// stay.
    pub fn install(&mut self, state: &MembersState) {
        if state.compacted.index() > self.decided.config().index() {
            go_on_after(self, &state.compacted, Bugs::default());
        }
        let known = self.decided.config().index().0 - state.compacted.index().0;
        for proposal in state.decisions.iter().skip(usize::try_from(known).unwrap_or(usize::MAX)) {
            self.decide(self.decided.config().index().next(), proposal.clone());
        }
        self.pending.install(state.entered);
        self.entered.install(state.entered, &state.entered_by, state.parting);
        self.joins.install(&state.joins);
        self.decided.set_awaits_state(state.awaits_state);
        self.silences.restore(&state.silent);
        if let Some(promise) = state.recovery {
            self.note_recovery_promise(promise, Position::default());
        }
        if state.stays {
            self.stay.note(Position::default());
        }
        self.stay.follow(&self.decided);
        state.fallen.iter().for_each(|fallen| self.ends.note(fallen.clone()));
        state.losses.iter().for_each(|report| self.recovering.note_loss(report.clone()));
        if !self.decided.awaits_state() {
            self.entered.install_members(&self.decided);
            self.ended_slots.install(self.decided.me(), self.entered.ended(), &state.freed);
        }
    }
}
