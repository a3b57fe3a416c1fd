//! Entering an epoch: by an entry of the own log, from which on this datacenter acts by the members of that
//! decision.
//!
//! An entry of an epoch that is not entered here is held back: the decision comes, or is on its way. So
//! entries of two epochs are applied in any causal order, and each is judged by the members of its own.

use super::pending::{Admitted, Kind};
use super::{Members, MembersState};

use crate::base::bugs::{Bug, Bugs};
use crate::base::entry_number::is_first;
use crate::causal_log::{Entry, EntryFault, Op};
use crate::crdt::{AsOf, HomeRules, VersionVector};
use crate::lock_state::{Known, Parting};
use crate::membership::Epoch;
use crate::replica::members::Decisions;
use crate::replica::record::Record;
use crate::replica::writer::Writer;
use geolock_api::names::{DcId, DcSet};

impl Members {
    /// Returns the next epoch to enter. A directory that awaits a state enters those of the state. The
    /// sponsor of a new member must be settled as seen here: who decided that may have applied more.
    /// `may_be_fenced`: if it could be evicted by time, it would be backed now, and no client relies on it
    /// for longer than the policy permits.
    fn to_enter(
        &self,
        applied: &VersionVector,
        rules: &HomeRules,
        bugs: Bugs,
        may_be_fenced: bool,
    ) -> Option<Epoch> {
        let change = self.pending.next().filter(|_| !self.decided.awaits_state())?;
        assert!(change.epoch > self.entered.epoch(), "epoch {:?} is entered once", change.epoch);
        let joins = |sponsor: DcId| self.joins.find(sponsor).is_some();
        let waits = match change.kind {
            Kind::Admits(admitted) => {
                (joins(admitted.sponsor) && !bugs.has(Bug::SponsorUnsettled))
                    || self.ended_slots.names(admitted.dc)
                    || !self.have_rehomed(rules)
            }
            // All that it did before it left has to be known.
            Kind::Ends(dc, _) => dc == self.decided.me() || !self.entered.has_left(dc),
            Kind::Evicts(evicted) => !self.may_enter_end(evicted, applied, bugs),
            // So nobody stops granting because the policy changes. Another policy may have followed.
            Kind::Policy => self.decided.evict_by_time() && !may_be_fenced,
            Kind::Rules => !self.may_enter_rule(rules),
            Kind::Leaves(_) | Kind::Stays(_) | Kind::None => false,
        };
        (!waits).then_some(change.epoch)
    }

    /// The own log enters the next epoch. Returns its change.
    fn enter(&mut self, epoch: Epoch) -> Kind {
        let kind = self.pending.enter(epoch);
        self.entered.enter(epoch);
        match kind {
            Kind::Admits(admitted) => {
                let older = self.entered.admit(admitted.dc);
                self.ended_slots.admit(admitted.dc);
                self.joins.admit(admitted, epoch, older);
            }
            Kind::Leaves(dc) => self.entered.begin_leaving(dc),
            Kind::Stays(dc) => self.entered.stay(dc),
            Kind::Ends(dc, _) => self.end(DcSet::only(dc)),
            Kind::Evicts(evicted) => {
                self.end(evicted.members);
                self.joins.end(evicted.members);
            }
            Kind::Policy | Kind::Rules | Kind::None => {}
        }
        kind
    }

    /// These members are over.
    fn end(&mut self, ended: DcSet) {
        assert!(!ended.contains(self.decided.me()), "no member enters its own end");
        self.entered.end(ended);
        self.ended_slots.end(ended);
    }

    /// Returns the datacenters of the epoch of an entry, which is entered here.
    pub fn of(&self, entry: &Entry) -> Known {
        let epoch = Epoch(entry.epoch);
        if epoch == self.entered.epoch() || !self.decided.has_decisions() {
            return self.entered.known();
        }
        self.decided.known_at(epoch)
    }

    /// Returns what the maker of an entry, whose epoch is entered here, knew of homes.
    pub fn homes_as_of<'a>(&self, entry: &'a Entry) -> AsOf<'a> {
        AsOf { no_homes: self.of(entry).no_homes, entry: Some((entry.epoch, &entry.deps)) }
    }

    /// Checks the epoch of an entry that is the next of its datacenter. Returns `None` if it has to wait
    /// until that epoch is entered here.
    pub fn admit_entry(&self, entry: &Entry) -> Option<Result<(), EntryFault>> {
        if entry.epoch > self.entered.epoch().0 {
            return None;
        }
        if is_first(entry.seq) && !self.decided.begins_generation(entry) {
            return Some(Err(EntryFault::Generation { epoch: entry.epoch }));
        }
        let before = self.entered.epoch_of(entry.dc).0;
        let enters = entry.ops.iter().any(|op| matches!(op, Op::Enter { epoch } if *epoch == entry.epoch));
        let is_wrong = entry.epoch < before || (entry.epoch > before && !enters);
        Some(if is_wrong { Err(EntryFault::Epoch { epoch: entry.epoch, before }) } else { Ok(()) })
    }
}

impl Writer<'_> {
    /// Enters the epochs that are known and not entered, if entries can be made. Call it when all that moved
    /// in this step is in the log.
    pub(super) fn enter_epochs(&mut self) {
        let may_be_fenced = self.may_be_fenced();
        while let Some(epoch) = self.next_epoch(self.config.bugs, may_be_fenced) {
            self.announce_epoch(epoch);
        }
    }

    fn may_be_fenced(&self) -> bool {
        let (now, lease) = (self.now.mono, &self.lifecycle.member_lease);
        let leases_fit = lease.leases_fit(now) || self.config.bugs.has(Bug::LeasesOutlivePolicy);
        lease.would_be_backed(now) && leases_fit
    }

    fn next_epoch(&self, bugs: Bugs, may_be_fenced: bool) -> Option<Epoch> {
        let rules = self.locks.owners().sponsors().rules();
        self.members.to_enter(self.log.applied(), rules, bugs, may_be_fenced)
    }

    /// Follows the epochs that this datacenter enters silently, because it has left: nothing follows `Leave`
    /// in its log. The others have to give it their entries, so that it sees them enter.
    pub(in crate::replica) fn follow_epochs(&mut self) {
        // It grants nothing any more, and its clients have gone.
        while let Some(epoch) = self.next_epoch(self.config.bugs, true) {
            self.enter(epoch);
        }
    }

    /// Follows the epochs silently while own entries come back that this disk has lost: those that enter
    /// them are among these, and may have followed entries that others made in them. New ones in their place
    /// would make two histories.
    pub(super) fn follow_while_regaining(&mut self) {
        let may_be_fenced = self.may_be_fenced();
        while let Some(epoch) = self.next_epoch(self.config.bugs, may_be_fenced) {
            self.out.persist(Record::EnteredAgain { epoch });
            self.enter(epoch);
        }
    }

    /// Reads from the journal that this epoch was entered again.
    pub(in crate::replica) fn replay_entered_again(&mut self, epoch: Epoch) {
        if epoch > self.members.entered.epoch() {
            self.enter(epoch);
        }
    }

    /// Appends the entry that enters an epoch.
    fn announce_epoch(&mut self, epoch: Epoch) {
        assert!(!self.members.entered.has_left(self.config.dc), "nothing follows `Leave` in a log");
        self.report_loss(epoch);
        let kind = self.enter(epoch);
        let made = self.make_entry(vec![Op::Enter { epoch: epoch.0 }]);
        if matches!(kind, Kind::Ends(..) | Kind::Evicts(_)) {
            self.locks.member_changes().rest_on(made);
        }
    }

    /// Acts by the members of an epoch from now on.
    fn enter(&mut self, epoch: Epoch) -> Kind {
        if let Some(slot) = self.members.pending.to_admit(epoch) {
            self.forget_at_once(slot);
        }
        self.settle_orphans();
        let kind = self.members.enter(epoch);
        match kind {
            Kind::Admits(Admitted { dc, generation, sponsor }) => {
                self.locks.member_changes().admit(dc, sponsor, epoch.0);
                self.log.admit(dc, generation.base());
            }
            Kind::Leaves(dc) => self.locks.member_changes().begin_leaving(dc),
            Kind::Stays(dc) => {
                self.data.counter_escrow.stop_handing();
                self.locks.member_changes().stay(dc);
            }
            Kind::Ends(dc, cut) => {
                assert_eq!(self.log.applied().get(dc), cut, "all that {dc} did is known when its end is");
                self.locks.member_changes().end(DcSet::only(dc), epoch.0);
                self.log.peers_mut().set_members(self.members.entered.all());
            }
            Kind::Evicts(evicted) => {
                self.name_fallen(evicted, epoch);
                self.enter_end(evicted.members, epoch);
            }
            Kind::Rules => self.begin_rule(epoch),
            Kind::Policy | Kind::None => {}
        }
        kind
    }

    /// Applies the operation by which `dc` enters an epoch.
    pub(in crate::replica) fn take_in_enter(&mut self, dc: DcId, epoch: Epoch) {
        if dc == self.config.dc && epoch > self.members.entered.epoch() {
            // Read from the journal again.
            self.enter(epoch);
        }
        self.members.entered.note_entered(dc, epoch);
    }

    /// Says, in the own log, that this member has entered an epoch, if that came with a state, or a crash
    /// took the entry back. What that does is in the state.
    pub(in crate::replica) fn announce_if_owed(&mut self) {
        if !self.members.owes_announcement() {
            return;
        }
        let epoch = self.members.entered.epoch();
        self.members.entered.note_entered(self.config.dc, epoch);
        self.make_entry(vec![Op::Enter { epoch: epoch.0 }]);
    }
}

impl Decisions<'_> {
    /// Sets the members as of a checkpoint or a state, which has the entries up to this vector.
    pub(in crate::replica) fn install_members(&mut self, state: &MembersState, vector: &VersionVector) {
        self.members.install(state);
        self.members.joins.note_split(vector);
        self.members.note_promise(self.out.position, self.now.mono);
        let all = self.members.entered.all();
        // The locks of this datacenter know nothing of its own end.
        let me = DcSet::only(self.config.dc);
        let left = state.parting.left.union(self.members.entered.ended()).difference(me);
        let parting = Parting { leaving: state.parting.leaving.difference(me), left };
        let counting = all.difference(left);
        self.locks.member_changes().install_members(parting, counting, state.sponsors());
        match state.parting.leaving.contains(self.config.dc) {
            true => self.locks.member_changes().begin_leaving(self.config.dc),
            false => self.locks.member_changes().stay(self.config.dc),
        }
        self.log.peers_mut().set_members(all);
        for join in &state.joins {
            self.log.admit(join.part, join.generation.base());
        }
        self.members.rehoming.follow(self.config.dc, self.locks.owners().sponsors().rules());
        self.follow_peers();
    }
}
