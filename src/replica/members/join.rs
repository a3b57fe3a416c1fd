//! Joining: what members do for a new one, and what the new one does, until its part is settled.
//!
//! ```text
//! decision  Admit     every member enters its epoch; the new member's part goes along with its sponsor's
//! state               some member gives the new one its state, once all have entered
//! log       Enter     of the new member: it has the state
//! log       Done      of every older member but the sponsor: nothing goes along any more with what it owns
//! decision  Settled   proposed by the new member, once it has these on disk
//! log       Split     of the sponsor: the part is the new member's own where the sponsor's is at home
//! log       Done      of the sponsor. The new member may grant from here on
//! ```
//!
//! So the part goes along until the new member is settled: nobody needs a server that never served. Before
//! version 7 the order was `Split`, `Done` of every older member, `Settled`.

use super::decisions::may_be_relied_on;
use super::entered::Entered;
use super::pending::{Admitted, Kind, Pending};
use super::{JoinState, Members};
use crate::base::bugs::{Bug, Bugs};
use crate::base::wire::SETTLES_FIRST_VERSION;
use crate::causal_log::{Log, Op};
use crate::crdt::{Sponsored, Sponsors, VersionVector};
use crate::lock_state::Naming;
use crate::membership::{Command, Epoch, Proposal, Slots};
use crate::replica::effect::Effect;
use crate::replica::members::Decisions;
use crate::replica::peers::reachability::Reachability;
use crate::replica::writer::Writer;
use geolock_api::names::{DcId, DcSet, Position};

/// A member that is not settled, as seen here.
#[derive(Clone, Debug)]
pub(super) struct Join {
    admitted: Admitted,
    /// The epoch of its admission.
    epoch: Epoch,
    /// The members of before.
    older: DcSet,
    /// Those of them whose [`Op::Done`] is applied here.
    done: DcSet,
    naming: Option<Naming>,
}

impl Join {
    pub(super) fn part(&self) -> DcId {
        self.admitted.dc
    }

    /// Returns true if all older members that are left have entered its admission.
    pub(super) fn is_entered(&self, entered: &Entered) -> bool {
        entered.have_entered(self.older, self.epoch)
    }

    /// Returns true if `me` may name the part for locks that are here; then it splits it off, as the sponsor,
    /// or says that it is done. `row`: the part in the ownership map. `settles`: how far the decisions are.
    fn may_be_named(&self, row: Sponsored, entered: &Entered, me: DcId, settles: Settles) -> bool {
        if !self.older.contains(me) || self.done.contains(me) {
            return false;
        }
        let has_state = entered.epoch_of(self.part()) >= self.epoch;
        match row.sponsor == me {
            true => has_state && settles != Settles::First,
            false => has_state && self.is_entered(entered) && (row.split || settles != Settles::Last),
        }
    }

    /// Returns true if all older members have said that they are done, except its sponsor and `others`.
    fn are_others_done(&self, others: DcSet) -> bool {
        let except = others.union(DcSet::only(self.admitted.sponsor));
        self.done.union(except).is_superset(self.older)
    }
}

/// The order in which a new member is settled and its part is split off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Settles {
    /// It is settled first, and is not yet.
    First,
    /// It is settled: its part may be split off.
    Done,
    /// It is settled last: not all members speak version 7.
    Last,
}

/// Members that are admitted and, as seen here, not settled.
#[derive(Default)]
pub(super) struct Joins {
    /// In the order of their admissions, in all members.
    rows: Vec<Join>,
    /// The last [`Op::Done`] about the part of this datacenter is recorded at this position. Not set if that
    /// came with a state.
    done_by: Option<Position>,
    /// The last split and all [`Op::Done`] about its part are among these entries: all that was applied when
    /// that part was settled here, or a state or checkpoint came that knows of it.
    split_by: VersionVector,
}

impl Joins {
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the parts that are not settled.
    pub(super) fn parts(&self) -> DcSet {
        self.rows.iter().map(Join::part).collect()
    }

    pub(super) fn find(&self, part: DcId) -> Option<&Join> {
        self.rows.iter().find(|join| join.part() == part)
    }

    fn find_mut(&mut self, part: DcId) -> Option<&mut Join> {
        self.rows.iter_mut().find(|join| join.part() == part)
    }

    /// Returns true if the next step goes on naming a part.
    #[inline]
    pub(super) fn are_naming(&self) -> bool {
        self.rows.iter().any(|join| join.naming.is_some())
    }

    /// The epoch of an admission is entered. `older`: the members of before.
    pub(super) fn admit(&mut self, admitted: Admitted, epoch: Epoch, older: DcSet) {
        let Admitted { dc, sponsor, .. } = admitted;
        debug_assert!(!older.contains(dc), "{dc} joins {older:?}");
        debug_assert!(self.find(dc).is_none(), "{dc} joins once at a time");
        debug_assert!(older.contains(sponsor), "{dc} joins by {sponsor}, of {older:?}");
        self.rows.push(Join { admitted, epoch, older, done: DcSet::EMPTY, naming: None });
    }

    /// The end of these members is entered: nobody waits for them any more.
    pub(super) fn end(&mut self, ended: DcSet) {
        self.rows.retain(|join| !ended.contains(join.part()));
        for join in &mut self.rows {
            join.older = join.older.difference(ended);
            let Admitted { dc, sponsor, .. } = join.admitted;
            debug_assert!(join.older.contains(sponsor), "{dc} ends with {sponsor}, with which its part goes");
        }
    }

    /// Returns the parts that their sponsors, whose ends are decided, can split off no more: all that these
    /// have done is applied, and all others have said that they are done.
    pub(super) fn orphans(
        &self,
        pending: &Pending,
        slots: &Slots,
        applied: &VersionVector,
        bugs: Bugs,
    ) -> DcSet {
        let has_all =
            |dc: &DcId| slots.last_past(*dc).is_none_or(|past| past.is_reached_by(applied.get(*dc)));
        let over: DcSet = pending.evicted().iter().filter(has_all).collect();
        let is_orphan = |join: &&Join| over.contains(join.admitted.sponsor) && join.are_others_done(over);
        let orphans = self.rows.iter().filter(is_orphan).map(Join::part);
        if bugs.has(Bug::OrphansAwaited) { DcSet::EMPTY } else { orphans.collect() }
    }

    /// Returns the parts that are settled by entering the next epoch, if that is an eviction: their sponsors
    /// have not split them off, and end with it or after it. The same in every member: none enters it before
    /// it has all that the sponsor has done, and no part that was settled when it was decided goes along.
    fn settled_by_next(&self, pending: &Pending) -> DcSet {
        match pending.next().map(|change| change.kind) {
            Some(Kind::Evicts(end)) => self.parts().difference(pending.evicted()).difference(end.joining),
            _ => DcSet::EMPTY,
        }
    }

    /// Forgets parts that are settled without a split.
    pub(super) fn forget(&mut self, parts: DcSet) {
        self.rows.retain(|join| !parts.contains(join.part()));
    }

    /// Removes and returns the parts of which all older members that are left have said that they are done.
    fn take_complete(&mut self, is_split: impl Fn(DcId) -> bool) -> DcSet {
        let is_complete = |join: &&Join| join.done.is_superset(join.older) && is_split(join.part());
        let complete: DcSet = self.rows.iter().filter(is_complete).map(Join::part).collect();
        self.rows.retain(|join| !complete.contains(join.part()));
        debug_assert!(self.parts().intersection(complete).is_empty(), "{complete:?} are settled once");
        complete
    }

    /// Returns these members for a checkpoint or a state.
    pub(super) fn state(&self, sponsors: &Sponsors) -> Vec<JoinState> {
        let state = |join: &Join| {
            let Admitted { dc, generation, sponsor } = join.admitted;
            let split = sponsors.get(dc).is_some_and(|row| row.split);
            let (epoch, older, done) = (join.epoch, join.older, join.done);
            JoinState { part: dc, generation, sponsor, epoch, older, done, split }
        };
        self.rows.iter().map(state).collect()
    }

    /// All parts of settled members that are not among these are split off by some of these entries.
    pub(super) fn note_split(&mut self, by: &VersionVector) {
        by.iter().for_each(|(dc, seq)| self.split_by.raise(dc, seq));
    }

    /// Takes over these members from a checkpoint or a state.
    pub(super) fn install(&mut self, state: &[JoinState]) {
        self.rows = state.iter().map(Join::from).collect();
    }

    /// Asserts that each joins members, and none twice.
    pub(super) fn check(&self, members: DcSet) {
        assert_eq!(self.parts().len(), self.rows.len(), "a member joins once at a time");
        for join in &self.rows {
            let (part, older) = (join.part(), join.older);
            assert!(members.contains(part) && members.is_superset(older), "{part} joins {older:?}");
            assert!(!older.contains(part), "{part} is none of the older members");
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

/// Returns the members that can be reached and are not known to have on disk which parts were split off
/// ([`Unsettled`](crate::membership::Unsettled)).
pub(super) fn split_unseen(members: &Members, log: &Log, reachability: &Reachability, bugs: Bugs) -> DcSet {
    if bugs.has(Bug::SplitUnseen) {
        return DcSet::EMPTY;
    }
    let staying = members.entered.staying().difference(members.entered.left());
    let split_by = &members.joins.split_by;
    let has_all = |dc: DcId| {
        staying.iter().all(|of| may_be_relied_on(members, log, reachability, dc, (of, split_by.get(of))))
    };
    staying.iter().filter(|dc| !has_all(*dc)).collect()
}

impl Members {
    /// Returns true if the own log does not say that this member has entered its epoch: it came with a state,
    /// or a crash took that entry back.
    pub(super) fn owes_announcement(&self) -> bool {
        let Members { decided, entered, .. } = self;
        !decided.awaits_state()
            && decided.own_member().is_some()
            && entered.epoch_of(decided.me()) < entered.epoch()
    }
}

impl Writer<'_> {
    /// Does what the members that are joining need from this datacenter. Call it when all that moved in this
    /// step is in the log.
    pub(in crate::replica) fn update_members(&mut self) {
        if self.members.is_quiet() {
            return;
        }
        if self.lifecycle.is_regaining(self.log.applied()) {
            if !self.config.bugs.has(Bug::EpochAwaitsItsEntry) {
                self.follow_while_regaining();
            }
            return;
        }
        if !self.lifecycle.may_enter() || self.members.needs_state() {
            return;
        }
        if self.members.entered.has_left(self.config.dc) {
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
        self.rehome();
        self.members.joins.parts().iter().for_each(|part| self.help_to_join(part));
    }

    fn help_to_join(&mut self, part: DcId) {
        let Members { decided, entered, joins, .. } = self.members;
        let (Some(join), Some(row)) = (joins.find_mut(part), self.locks.owners().sponsors().get(part)) else {
            return;
        };
        let Admitted { dc, generation, .. } = join.admitted;
        let settles = match decided.has_settled(dc, generation) || self.config.bugs.has(Bug::SplitsUnsettled)
        {
            true => Settles::Done,
            false if self.lifecycle.versions.all_speak(SETTLES_FIRST_VERSION) => Settles::First,
            false => Settles::Last,
        };
        if !join.may_be_named(row, entered, self.config.dc, settles) {
            return;
        }
        let mut naming = join.naming.unwrap_or_else(|| self.locks.member_changes().begin_naming(row));
        let is_over = self.locks.member_changes().name_some(&mut naming);
        join.naming = (!is_over).then_some(naming);
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

    pub(in crate::replica) fn take_in_split(&mut self, part: DcId) {
        // It may have ended meanwhile.
        if self.members.joins.find(part).is_some() {
            self.locks.member_changes().split(part);
        }
    }

    /// `dc` has named the part everywhere. Once all have, it is settled, which changes no owner.
    pub(in crate::replica) fn take_in_done(&mut self, (dc, seq): (DcId, u64), part: DcId) {
        let Some(join) = self.members.joins.find_mut(part) else { return };
        join.done.insert(dc);
        if part == self.config.dc {
            self.members.joins.done_by = Some(self.out.position);
            self.members.goes_on_at = Some(self.out.position);
        }
        let mut by = self.log.applied().clone();
        by.raise(dc, seq);
        self.settle_complete(&by);
    }

    /// Settles the parts of which all older members that are left have said that they are done. `by`:
    /// the entries that are applied.
    pub(super) fn settle_complete(&mut self, by: &VersionVector) {
        let is_split = |part| self.locks.owners().sponsors().get(part).is_some_and(|row| row.split);
        let complete = self.members.joins.take_complete(is_split);
        complete.iter().for_each(|part| self.locks.member_changes().settle(part));
        if !complete.is_empty() {
            self.members.joins.note_split(by);
        }
    }

    /// Settles the parts that their sponsors can split off no more, if the next epoch is an eviction.
    pub(super) fn settle_orphans(&mut self) {
        let Members { decided, joins, pending, .. } = &*self.members;
        let orphans = joins.settled_by_next(pending);
        let slots = decided.config().slots();
        let expected = joins.orphans(pending, slots, self.log.applied(), self.config.bugs);
        assert!(
            expected.is_superset(orphans),
            "{orphans:?} have sponsors that go on, or parts that go along"
        );
        orphans.iter().for_each(|part| self.locks.member_changes().settle_orphan(part));
        self.members.joins.forget(orphans);
        if orphans.contains(self.config.dc) {
            self.members.goes_on_at = Some(self.out.position);
        }
    }

    /// Applies what entries beyond an installed state, which is recorded at `position`, say of the members.
    /// The ownership map has the splits already, and what this datacenter has entered is in the state.
    pub(in crate::replica) fn take_in_beyond(&mut self, beyond: &[(DcId, u64, Op)], position: Position) {
        let me = self.config.dc;
        let is_new = |(dc, _, op): &&(DcId, u64, Op)| !(*dc == me && matches!(op, Op::Enter { .. }));
        for (dc, seq, op) in beyond.iter().filter(is_new) {
            self.take_in_membership((*dc, *seq), op, position);
        }
    }
}

impl Decisions<'_> {
    /// A new member proposes that it is settled as soon as it has on disk that all are done but its sponsor.
    /// A proposal may be lost, so it is repeated with each heartbeat.
    pub(in crate::replica) fn propose_settled(&mut self) {
        let me = self.config.dc;
        let Some(generation) = self.members.decided.unsettled_generation() else { return };
        let join = self.members.joins.find(me);
        let is_done =
            self.members.entered.contains(me) && join.is_none_or(|join| join.are_others_done(DcSet::EMPTY));
        let is_durable = match self.members.joins.done_by {
            Some(position) => self.out.output_commit.may_emit(position),
            None => self.log.durable().covers(self.log.applied()),
        };
        if is_done && is_durable && !self.members.decided.awaits_state() {
            let command = Command::Settled { dc: me, generation };
            let proposal = Proposal { checked: self.members.decided.config().revision(), command };
            self.out.effects.push_back(Effect::Propose(Box::new(proposal)));
        }
    }
}
