//! The members in checkpoints and states.

use serde::{Deserialize, Serialize};

use super::join::Join;
use super::listing::config_after;
use super::{Admitted, Members};
use crate::crdt::{Sponsored, Sponsors};
use crate::lock_state::{Known, Parting};
use crate::membership::{Epoch, Generation, LossReport, Proposal, RecoveryPromise};
use geolock_api::names::{DcId, DcSet, MAX_DCS, Position};

/// The members as of a position of the journal. Wire and disk type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MembersState {
    /// The decisions that are known, from the first one on.
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
        sponsors.with_left(left, no_homes)
    }

    /// Returns the datacenters of the entered epoch.
    pub(crate) fn known(&self) -> Known {
        let config = config_after(&self.decisions);
        let members = config.slots().members_at(self.entered).map(|(dc, _)| dc).collect();
        let (left, no_homes) =
            (config.slots().ended_at(self.entered), config.slots().no_homes_at(self.entered));
        Known { members, left, no_homes }
    }
}

impl Members {
    /// Returns true if this server is a member in a state: an earlier one with the same slot may be.
    pub fn is_admitted_in(&self, state: Option<&MembersState>) -> bool {
        let Some(state) = state.filter(|_| self.awaits_state) else { return true };
        let config = config_after(&state.decisions);
        let member = config.slots().member(self.me).filter(|member| member.server == self.server);
        member.is_some_and(|member| member.admitted <= state.entered)
    }

    /// Returns the members for a checkpoint or a state; `None` if there are no decisions.
    pub fn state(&self, sponsors: &Sponsors) -> Option<MembersState> {
        // Also of members whose end is decided and not entered here: what they did before it is lacking.
        let entered_by = self
            .entered_by
            .iter()
            .enumerate()
            .map(|(slot, epoch)| (DcId::new(slot as u8).expect("there are no more slots"), *epoch));
        let join = |join: &Join| {
            let Admitted { dc, generation, sponsor } = join.admitted;
            let split = sponsors.get(dc).is_some_and(|row| row.split);
            JoinState {
                part: dc,
                generation,
                sponsor,
                epoch: join.epoch,
                older: join.older,
                done: join.done,
                split,
            }
        };
        self.are_decided().then(|| MembersState {
            decisions: self.decisions.proposals().to_vec(),
            // One that has left follows the epochs silently, again after a restart.
            entered: if self.has_left() { self.entered_by(self.me) } else { self.entered },
            entered_by: entered_by.filter(|(_, epoch)| *epoch > Epoch(0)).collect(),
            joins: self.joins.iter().map(join).collect(),
            parting: self.parting,
            awaits_state: self.awaits_state,
            silent: self.silences.state(),
            freed: self.slots.state(),
            recovery: self.recovering.promise,
            losses: self.recovering.loss_reports().to_vec(),
        })
    }

    /// Takes over the members of a state, or of a checkpoint. Decisions that are known here and not there
    /// stay.
    pub fn install(&mut self, state: &MembersState) {
        let known = self.decisions.proposals().len();
        for proposal in state.decisions.iter().skip(known) {
            self.decide(self.config.index().next(), proposal.clone());
        }
        self.pending.retain(|change| change.epoch > state.entered);
        self.entered = state.entered;
        self.entered_by = [Epoch(0); MAX_DCS];
        for (dc, epoch) in &state.entered_by {
            self.entered_by[dc.index()] = *epoch;
        }
        self.joins = state.joins.iter().map(Join::from).collect();
        self.parting = state.parting;
        self.awaits_state = state.awaits_state;
        self.silences.restore(&state.silent);
        if let Some(promise) = state.recovery {
            self.note_recovery_promise(promise, Position::default());
        }
        state.losses.iter().for_each(|report| self.recovering.note_loss(report.clone()));
        if !self.awaits_state {
            self.all = self.config.slots().members_at(self.entered).map(|(dc, _)| dc).collect();
            self.ended = self.config.slots().ended_at(self.entered);
            self.no_homes = self.config.slots().no_homes_at(self.entered);
            self.slots.install(self.me, self.ended, &state.freed);
        }
    }
}

impl From<&JoinState> for Join {
    fn from(state: &JoinState) -> Join {
        let JoinState { part, generation, sponsor, epoch, older, done, split: _ } = state.clone();
        let admitted = Admitted { dc: part, generation, sponsor };
        Join { admitted, epoch, older, done, naming: None }
    }
}
