//! Entering an epoch: by an entry of the own log, from which on this datacenter acts by the members of that
//! decision.
//!
//! An entry of an epoch that is not entered here is held back: the decision comes, or is on its way. So
//! entries of two epochs are applied in any causal order, and each is judged by the members of its own.

use super::join::Join;
use super::{Change, Members, MembersState};
use crate::base::bugs::{Bug, Bugs};
use crate::causal_log::{Entry, EntryFault, Op};
use crate::membership::Epoch;
use crate::replica::members::Decisions;
use crate::replica::writer::Writer;
use geolock_api::names::{DcId, DcSet};

impl Members {
    /// Returns the next epoch to enter. A directory that awaits a state enters those of the state. The
    /// sponsor of a new member must be settled as seen here: who decided that may have applied more.
    fn to_enter(&self, bugs: Bugs) -> Option<Epoch> {
        let change = self.pending.front().filter(|_| !self.awaits_state)?;
        let joins = |sponsor: DcId| self.joins.iter().any(|join| join.part() == sponsor);
        let waits = change.admitted.is_some_and(|admitted| joins(admitted.sponsor));
        (!waits || bugs.has(Bug::SponsorUnsettled)).then_some(change.epoch)
    }

    /// The own log enters the next epoch. Returns its change.
    fn enter(&mut self, epoch: Epoch) -> Option<Change> {
        let change = self.pending.pop_front().filter(|change| change.epoch == epoch);
        self.entered = epoch;
        self.entered_by[self.me.index()] = epoch;
        if let Some(admitted) = change.and_then(|change| change.admitted) {
            let older = self.all;
            self.all.insert(admitted.dc);
            self.joins.push(Join::new(admitted, epoch, older));
        }
        change
    }

    /// Returns the members of the epoch of an entry.
    pub fn of(&self, entry: &Entry) -> DcSet {
        self.at(Epoch(entry.epoch))
    }

    /// Checks the epoch of an entry that is the next of its datacenter. Returns `None` if it has to wait
    /// until that epoch is entered here.
    pub fn admit_entry(&self, entry: &Entry) -> Option<Result<(), EntryFault>> {
        if entry.epoch > self.entered.0 {
            return None;
        }
        let before = self.entered_by(entry.dc).0;
        let enters = entry.ops.iter().any(|op| matches!(op, Op::Enter { epoch } if *epoch == entry.epoch));
        let is_wrong = entry.epoch < before || (entry.epoch > before && !enters);
        Some(if is_wrong { Err(EntryFault::Epoch { epoch: entry.epoch, before }) } else { Ok(()) })
    }
}

impl Writer<'_> {
    /// Enters the epochs that are known and not entered, if entries can be made. Call it when all that moved
    /// in this step is in the log.
    pub(super) fn enter_epochs(&mut self) {
        while let Some(epoch) = self.members.to_enter(self.config.bugs) {
            self.announce_epoch(epoch);
        }
    }

    /// Appends the entry that enters an epoch.
    fn announce_epoch(&mut self, epoch: Epoch) {
        self.enter(epoch);
        self.make_entry(vec![Op::Enter { epoch: epoch.0 }]);
    }

    /// Acts by the members of an epoch from now on.
    fn enter(&mut self, epoch: Epoch) {
        let Some(admitted) = self.members.enter(epoch).and_then(|change| change.admitted) else { return };
        let (dc, base) = (admitted.dc, admitted.generation.base());
        self.locks.admit(dc, admitted.sponsor);
        self.log.admit(dc, base);
    }

    /// Applies the operation by which `dc` enters an epoch.
    pub(in crate::replica) fn take_in_enter(&mut self, dc: DcId, epoch: Epoch) {
        if dc == self.config.dc && epoch > self.members.entered {
            // Read from the journal again.
            self.enter(epoch);
        }
        let entered = &mut self.members.entered_by[dc.index()];
        *entered = epoch.max(*entered);
    }

    /// Says, in the own log, that this new member has a state and has entered its epoch. What that does is in
    /// the state.
    pub(super) fn announce_state(&mut self) {
        let epoch = self.members.entered;
        self.members.entered_by[self.config.dc.index()] = epoch;
        self.make_entry(vec![Op::Enter { epoch: epoch.0 }]);
    }
}

impl Decisions<'_> {
    /// Sets the members as of a checkpoint or a state.
    pub(in crate::replica) fn install_members(&mut self, state: &MembersState) {
        self.members.install(state);
        let all = self.members.all();
        self.locks.install_members(all, state.sponsors());
        self.log.set_members(all);
        for join in &state.joins {
            self.log.admit(join.part, join.generation.base());
        }
        self.follow_peers();
    }
}
