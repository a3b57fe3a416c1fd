//! Entering an epoch: by an entry of the own log, from which on this datacenter acts by the members of that
//! decision.
//!
//! An entry of an epoch that is not entered here is held back: the decision comes, or is on its way. So
//! entries of two epochs are applied in any causal order, and each is judged by the members of its own.

use super::join::Join;
use super::{Admitted, Kind, Members, MembersState};
use std::time::Duration;

use crate::base::bugs::{Bug, Bugs};
use crate::base::entry_number::is_first;
use crate::base::time::Instant;
use crate::causal_log::{Entry, EntryFault, Op};
use crate::crdt::VersionVector;
use crate::lock_state::{Known, Parting};
use crate::membership::{Epoch, Generation};
use crate::replica::members::Decisions;
use crate::replica::writer::Writer;
use geolock_api::names::{DcId, DcSet};

impl Members {
    /// Returns the next epoch to enter. A directory that awaits a state enters those of the state. The
    /// sponsor of a new member must be settled as seen here: who decided that may have applied more.
    /// `may_be_fenced`: it would be backed now if it could be evicted by time.
    fn to_enter(
        &self,
        applied: &VersionVector,
        bugs: Bugs,
        may_be_fenced: bool,
        now: Instant,
    ) -> Option<Epoch> {
        let change = self.pending.front().filter(|_| !self.awaits_state)?;
        let joins = |sponsor: DcId| self.joins.iter().any(|join| join.part() == sponsor);
        let waits = match change.kind {
            Kind::Admits(admitted) => {
                (joins(admitted.sponsor) && !bugs.has(Bug::SponsorUnsettled)) || self.slots.names(admitted.dc)
            }
            // All that it did before it left has to be known.
            Kind::Ends(dc, _) => dc == self.me || !self.parting.left.contains(dc),
            Kind::Evicts(evicted) => !self.may_enter_end(evicted, applied, bugs),
            // So nobody stops granting because the policy changes. Another policy may have followed.
            Kind::Policy => {
                self.evict_by_time() && (!may_be_fenced || self.leases_fit_at.is_none_or(|at| now < at))
            }
            Kind::Leaves(_) | Kind::None => false,
        };
        (!waits).then_some(change.epoch)
    }

    /// If the next epoch brings eviction by time, it waits for leases that are longer than the policy
    /// permits. From when the policy is known none is renewed for longer, so the time is known, too.
    /// `longest`: that of the leases of this run.
    fn await_leases(&mut self, longest: Duration, now: Instant) {
        let is_next = self.pending.front().is_some_and(|change| change.kind == Kind::Policy);
        let left = longest.max(self.longest_before).saturating_sub(self.config.policy().max_lease_ttl());
        self.leases_fit_at = is_next.then(|| self.leases_fit_at.unwrap_or(now + left));
    }

    /// The own log enters the next epoch. Returns its change.
    fn enter(&mut self, epoch: Epoch) -> Kind {
        let change = self.pending.pop_front().filter(|change| change.epoch == epoch);
        let kind = change.map_or(Kind::None, |change| change.kind);
        self.entered = epoch;
        if !self.has_left() {
            self.entered_by[self.me.index()] = epoch;
        }
        match kind {
            Kind::Admits(admitted) => {
                let older = self.all;
                self.all.insert(admitted.dc);
                self.ended.remove(admitted.dc);
                self.slots.admit(admitted.dc);
                self.joins.push(Join::new(admitted, epoch, older));
            }
            Kind::Leaves(dc) => self.parting.leaving.insert(dc),
            Kind::Ends(dc, _) => {
                self.all.remove(dc);
                self.parting.left.remove(dc);
                self.note_ended(DcSet::only(dc));
            }
            Kind::Evicts(evicted) => self.end_evicted(evicted.members),
            Kind::Policy => self.leases_fit_at = None,
            Kind::None => {}
        }
        kind
    }

    /// Returns the datacenters of the epoch of an entry.
    pub fn of(&self, entry: &Entry) -> Known {
        self.known_at(Epoch(entry.epoch))
    }

    /// These members are over.
    pub(super) fn note_ended(&mut self, ended: DcSet) {
        self.ended = self.ended.union(ended);
        self.no_homes = self.no_homes.union(ended);
        ended.iter().for_each(|dc| self.entered_by[dc.index()] = Epoch(0));
        self.slots.end(ended);
    }

    /// Returns the member that this epoch, which is the next one, admits.
    fn to_admit(&self, epoch: Epoch) -> Option<DcId> {
        match self.pending.front().filter(|change| change.epoch == epoch)?.kind {
            Kind::Admits(admitted) => Some(admitted.dc),
            _ => None,
        }
    }

    /// Returns true if its maker's generation is a member in the epoch of this entry, the first one of it.
    fn begins_generation(&self, entry: &Entry) -> bool {
        let generation = match self.are_decided() {
            true => self.config.slots().generation_at(entry.dc, Epoch(entry.epoch)),
            false => Some(Generation(0)),
        };
        generation == Some(Generation::of_seq(entry.seq))
    }

    /// Checks the epoch of an entry that is the next of its datacenter. Returns `None` if it has to wait
    /// until that epoch is entered here.
    pub fn admit_entry(&self, entry: &Entry) -> Option<Result<(), EntryFault>> {
        if entry.epoch > self.entered.0 {
            return None;
        }
        if is_first(entry.seq) && !self.begins_generation(entry) {
            return Some(Err(EntryFault::Generation { epoch: entry.epoch }));
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
        let (bugs, now) = (self.config.bugs, self.now.mono);
        self.members.await_leases(self.config.local.max_lease_ttl, now);
        let is_backed = self.lifecycle.member_lease.would_be_backed(now);
        while let Some(epoch) = self.members.to_enter(self.log.applied(), bugs, is_backed, now) {
            self.announce_epoch(epoch);
        }
    }

    /// Follows the epochs that this datacenter enters silently, because it has left: nothing follows `Leave`
    /// in its log. The others have to give it their entries, so that it sees them enter.
    pub(in crate::replica) fn follow_epochs(&mut self) {
        let (bugs, now) = (self.config.bugs, self.now.mono);
        self.members.await_leases(Duration::ZERO, now);
        // It grants nothing any more.
        while let Some(epoch) = self.members.to_enter(self.log.applied(), bugs, true, now) {
            self.enter(epoch);
        }
    }

    /// Appends the entry that enters an epoch.
    fn announce_epoch(&mut self, epoch: Epoch) {
        self.report_loss(epoch);
        let kind = self.enter(epoch);
        let made = self.make_entry(vec![Op::Enter { epoch: epoch.0 }]);
        if matches!(kind, Kind::Ends(..) | Kind::Evicts(_)) {
            self.locks.member_changes().rest_on(made);
        }
    }

    /// Acts by the members of an epoch from now on.
    fn enter(&mut self, epoch: Epoch) -> Kind {
        if let Some(slot) = self.members.to_admit(epoch) {
            self.forget_at_once(slot);
        }
        let kind = self.members.enter(epoch);
        match kind {
            Kind::Admits(Admitted { dc, generation, sponsor }) => {
                self.locks.member_changes().admit(dc, sponsor);
                self.log.admit(dc, generation.base());
            }
            Kind::Leaves(dc) => self.locks.member_changes().begin_leaving(dc),
            Kind::Ends(dc, cut) => {
                assert_eq!(self.log.applied().get(dc), cut, "all that {dc} did is known when its end is");
                self.locks.member_changes().end(DcSet::only(dc));
                self.log.peers_mut().set_members(self.members.all());
            }
            Kind::Evicts(evicted) => self.enter_end(evicted.members),
            Kind::Policy | Kind::None => {}
        }
        kind
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

    /// Says, in the own log, that this member has entered an epoch, if that came with a state, or a crash
    /// took the entry back. What that does is in the state.
    pub(in crate::replica) fn announce_if_owed(&mut self) {
        if !self.members.owes_announcement() {
            return;
        }
        let epoch = self.members.entered;
        self.members.entered_by[self.config.dc.index()] = epoch;
        self.make_entry(vec![Op::Enter { epoch: epoch.0 }]);
    }
}

impl Decisions<'_> {
    /// Sets the members as of a checkpoint or a state.
    pub(in crate::replica) fn install_members(&mut self, state: &MembersState) {
        self.members.install(state);
        self.members.note_promise(self.out.position, self.now.mono);
        let all = self.members.all();
        // The locks of this datacenter know nothing of its own end.
        let me = DcSet::only(self.config.dc);
        let left = state.parting.left.union(self.members.ended).difference(me);
        let parting = Parting { leaving: state.parting.leaving.difference(me), left };
        let counting = all.difference(left);
        self.locks.member_changes().install_members(parting, counting, state.sponsors());
        if state.parting.leaving.contains(self.config.dc) {
            self.locks.member_changes().begin_leaving(self.config.dc);
        }
        self.log.peers_mut().set_members(all);
        for join in &state.joins {
            self.log.admit(join.part, join.generation.base());
        }
        self.follow_peers();
    }
}
