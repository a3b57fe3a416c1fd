//! Joining: what members do for a new one, and what the new one does, until its part is settled.
//!
//! ```text
//! decision  Admit     every member enters its epoch; the new member's part goes along with its sponsor's
//! state               some member gives the new one its state, once all have entered
//! log       Enter     of the new member: it has the state
//! log       Split     of the sponsor: the part is the new member's own where the sponsor's is at home
//! log       Done      of every older member: nothing goes along any more with what it owns
//! decision  Settled   proposed by the new member, which may grant from here on
//! ```

use super::{Admitted, Members};
use crate::base::bugs::Bug;
use crate::causal_log::Op;
use crate::crdt::Sponsored;
use crate::lock_state::Naming;
use crate::membership::{Command, Epoch, Generation, Phase, Proposal};
use crate::replica::effect::Effect;
use crate::replica::members::Decisions;
use crate::replica::writer::Writer;
use geolock_api::names::{DcId, DcSet, Position};

/// A member that is not settled, as seen here.
#[derive(Clone, Debug)]
pub(super) struct Join {
    pub(super) admitted: Admitted,
    /// The epoch of its admission.
    pub(super) epoch: Epoch,
    /// The members of before.
    pub(super) older: DcSet,
    /// Those of them whose [`Op::Done`] is applied here.
    pub(super) done: DcSet,
    pub(super) naming: Option<Naming>,
}

impl Join {
    pub(super) fn new(admitted: Admitted, epoch: Epoch, older: DcSet) -> Join {
        Join { admitted, epoch, older, done: DcSet::EMPTY, naming: None }
    }

    pub(super) fn part(&self) -> DcId {
        self.admitted.dc
    }
}

/// The next thing that this datacenter does for a new member.
enum Task {
    /// Name the part for locks that are here; then split it off, at the sponsor, or say that it is done.
    Name,
    Nothing,
}

impl Members {
    /// Returns true if the own log does not say that this member has entered its epoch: it came with a state,
    /// or a crash took that entry back.
    pub(super) fn owes_announcement(&self) -> bool {
        !self.awaits_state && self.own_member().is_some() && self.entered_by(self.me) < self.entered
    }

    /// Returns the generation of this server if it is a new member that is not settled.
    fn unsettled_generation(&self) -> Option<Generation> {
        self.own_member().filter(|member| member.phase == Phase::Joining).map(|member| member.generation)
    }

    fn task(&self, join: &Join, row: Option<Sponsored>) -> Task {
        let Some(row) = row.filter(|_| join.older.contains(self.me) && !join.done.contains(self.me)) else {
            return Task::Nothing;
        };
        let may_name = match row.sponsor == self.me {
            // The new member has its state.
            true => self.entered_by(join.part()) >= join.epoch,
            false => row.split && self.have_entered(join.older, join.epoch),
        };
        if may_name { Task::Name } else { Task::Nothing }
    }

    /// Returns true if the next step has more to do for a new member, or for a slot that is over.
    pub fn have_work(&self) -> bool {
        self.joins.iter().any(|join| join.naming.is_some()) || self.slots.is_walking()
    }
}

impl Writer<'_> {
    /// Does what the members that are joining need from this datacenter. Call it when all that moved in this
    /// step is in the log.
    pub(in crate::replica) fn update_members(&mut self) {
        if self.members.is_quiet() {
            return;
        }
        if !self.lifecycle.may_enter() {
            return;
        }
        if self.members.has_left() {
            return self.follow_epochs();
        }
        self.announce_if_owed();
        self.enter_epochs();
        self.free_slots();
        self.leave_if_done();
        // A lock that nobody holds here may be reclaimed: then it needs the part, too.
        if self.lifecycle.awaits_reclaims() && !self.config.bugs.has(Bug::NamesInGrace) {
            return;
        }
        let parts: DcSet = self.members.joins.iter().map(Join::part).collect();
        parts.iter().for_each(|part| self.help_to_join(part));
    }

    fn help_to_join(&mut self, part: DcId) {
        let Some(place) = self.members.joins.iter().position(|join| join.part() == part) else { return };
        let (join, row) = (&self.members.joins[place], self.locks.owners().sponsors().get(part));
        if let (Task::Name, Some(row)) = (self.members.task(join, row), row) {
            let mut naming = join.naming.unwrap_or_else(|| self.locks.member_changes().begin_naming(row));
            let is_over = self.locks.member_changes().name_some(&mut naming);
            self.members.joins[place].naming = (!is_over).then_some(naming);
            let ops = self.locks.take_ops();
            if !ops.is_empty() {
                self.make_entries(ops);
            }
            // A crash may have taken back only what followed the split.
            if is_over && row.sponsor == self.config.dc && !row.split {
                self.make_entry(vec![Op::Split { part }]);
            }
            if is_over {
                self.make_entry(vec![Op::Done { part }]);
            }
        }
    }

    pub(in crate::replica) fn take_in_split(&mut self, part: DcId) {
        self.locks.member_changes().split(part);
    }

    /// `dc` has named the part everywhere. Once all have, it is settled, which changes no owner.
    pub(in crate::replica) fn take_in_done(&mut self, dc: DcId, part: DcId) {
        let Some(place) = self.members.joins.iter().position(|join| join.part() == part) else { return };
        self.members.joins[place].done.insert(dc);
        self.settle_complete();
    }

    /// Settles the parts of which all older members that are left have said that they are done.
    pub(super) fn settle_complete(&mut self) {
        let is_split = |part| self.locks.owners().sponsors().get(part).is_some_and(|row| row.split);
        let is_complete = |join: &&Join| join.done.is_superset(join.older) && is_split(join.part());
        let complete: DcSet = self.members.joins.iter().filter(is_complete).map(Join::part).collect();
        self.members.joins.retain(|join| !complete.contains(join.part()));
        complete.iter().for_each(|part| self.locks.member_changes().settle(part));
        if complete.contains(self.config.dc) {
            self.members.settled_by = Some(self.out.position);
            self.members.goes_on_at = Some(self.out.position);
        }
    }

    /// Applies what entries beyond an installed state, which is recorded at `position`, say of the members.
    /// The ownership map has the splits already, and what this datacenter has entered is in the state.
    pub(in crate::replica) fn take_in_beyond(&mut self, beyond: &[(DcId, Op)], position: Position) {
        let me = self.config.dc;
        for (dc, op) in beyond.iter().filter(|(dc, op)| !(*dc == me && matches!(op, Op::Enter { .. }))) {
            self.take_in_membership(*dc, op, position);
        }
    }
}

impl Decisions<'_> {
    /// A new member proposes that it is settled as soon as it has on disk that all are done. A proposal may
    /// be lost, so it is repeated with each heartbeat.
    pub(in crate::replica) fn propose_settled(&mut self) {
        let me = self.config.dc;
        let Some(generation) = self.members.unsettled_generation() else { return };
        let is_done = self.members.contains(me) && self.locks.owners().sponsors().get(me).is_none();
        let is_durable = match self.members.settled_by {
            Some(position) => self.out.output_commit.may_emit(position),
            None => self.log.durable().covers(self.log.applied()),
        };
        if is_done && is_durable && !self.members.awaits_state() {
            let command = Command::Settled { dc: me, generation };
            let proposal = Proposal { checked: self.members.config().revision(), command };
            self.out.effects.push_back(Effect::Propose(Box::new(proposal)));
        }
    }
}
