//! The epoch that the own log has entered, and the members of it: this datacenter acts by these.

use super::decided::Decided;
use crate::lock_state::{Known, Parting};
use crate::membership::{Config, Epoch, Index};
use geolock_api::names::{DcId, DcSet, MAX_DCS};

/// The entered epoch, and how far the other members are.
pub(in crate::replica) struct Entered {
    epoch: Epoch,
    /// The members of it.
    all: DcSet,
    /// Those that had been members before it, and whose slots have no others.
    ended: DcSet,
    /// The slots that have had a member before it which has ended: they are no homes any more.
    no_homes: DcSet,
    /// Members of it that leave: nothing is given to them any more, or they have left.
    parting: Parting,
    /// The last epoch that each member has entered, as the applied entries say.
    by: [Epoch; MAX_DCS],
}

impl Entered {
    /// Returns the state before the first decision. `all`: the members of the configuration.
    pub(super) fn new(all: DcSet) -> Entered {
        assert!(!all.is_empty(), "a cluster has a member");
        Entered {
            epoch: Epoch(0),
            all,
            ended: DcSet::EMPTY,
            no_homes: DcSet::EMPTY,
            parting: Parting::default(),
            by: [Epoch(0); MAX_DCS],
        }
    }

    /// Returns the epoch that the own log has entered.
    #[inline]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns all members, this datacenter included.
    #[inline]
    pub fn all(&self) -> DcSet {
        self.all
    }

    /// Returns true if `dc` is a member.
    #[inline]
    pub fn contains(&self, dc: DcId) -> bool {
        self.all.contains(dc)
    }

    /// Returns the members that had left before, or were evicted.
    pub fn ended(&self) -> DcSet {
        self.ended
    }

    /// Returns true if the slot of no member has ended before.
    pub(super) fn has_no_end(&self) -> bool {
        self.no_homes.is_empty()
    }

    /// Returns the datacenters that an entry of this epoch may name.
    pub(super) fn known(&self) -> Known {
        Known { members: self.all, left: self.ended, no_homes: self.no_homes }
    }

    /// Returns the last epoch that a member has entered, as the applied entries say.
    #[inline]
    pub fn epoch_of(&self, dc: DcId) -> Epoch {
        self.by[dc.index()]
    }

    /// Returns true if all of these have entered an epoch, as the applied entries say.
    pub(super) fn have_entered(&self, members: DcSet, epoch: Epoch) -> bool {
        members.iter().all(|dc| self.epoch_of(dc) >= epoch)
    }

    /// Returns the number of decisions that all members have entered, as the applied entries say: each of
    /// them knows these.
    pub(super) fn by_all(&self, config: &Config) -> Index {
        let least = config.slots().members().map(|(dc, _)| self.epoch_of(dc)).min().unwrap_or_default();
        // Those after the last epoch change nothing that has to be entered.
        if least >= config.epoch() { config.index() } else { Index(least.0) }
    }

    /// Returns the members that leave.
    pub(super) fn parting(&self) -> Parting {
        self.parting
    }

    /// Returns the members that have said that they leave, and whose end is not entered.
    pub fn left(&self) -> DcSet {
        self.parting.left
    }

    /// Returns true if `dc` has said, as the last entry of its log, that it leaves.
    pub fn has_left(&self, dc: DcId) -> bool {
        self.parting.left.contains(dc)
    }

    /// Returns true if nothing is given to `dc` any more, because it leaves.
    pub fn is_parting(&self, dc: DcId) -> bool {
        self.parting.leaving.union(self.parting.left).contains(dc)
    }

    /// Returns the members that have not left: they make further entries.
    pub(super) fn staying(&self) -> DcSet {
        self.all.difference(self.parting.left)
    }

    /// Returns a member to which `me`, which leaves, gives what is its own.
    pub fn heir(&self, me: DcId) -> Option<DcId> {
        let others = self.all.difference(DcSet::only(me));
        others.iter().find(|dc| !self.is_parting(*dc))
    }

    /// Sets the members, and how far each is, as a state or a checkpoint says.
    pub(super) fn install(&mut self, epoch: Epoch, by: &[(DcId, Epoch)], parting: Parting) {
        assert!(epoch >= self.epoch, "{epoch:?} is installed, {:?} is entered", self.epoch);
        (self.epoch, self.parting) = (epoch, parting);
        self.by = [Epoch(0); MAX_DCS];
        for (dc, epoch) in by {
            self.by[dc.index()] = *epoch;
        }
    }

    /// Sets the members of the entered epoch as the decisions say.
    pub(super) fn install_members(&mut self, decided: &Decided) {
        let Known { members, left, no_homes } = decided.known_at(self.epoch);
        (self.all, self.ended, self.no_homes) = (members, left, no_homes);
    }

    /// This member enters the next epoch: silently, until an entry of its log says so.
    pub(super) fn enter(&mut self, epoch: Epoch) {
        assert!(epoch > self.epoch, "epoch {epoch:?} is entered after {:?}", self.epoch);
        self.epoch = epoch;
    }

    /// Notes that `dc` has entered an epoch, as an entry of it says.
    pub(super) fn note_entered(&mut self, dc: DcId, epoch: Epoch) {
        let entered = &mut self.by[dc.index()];
        *entered = epoch.max(*entered);
    }

    /// A member is admitted. Returns the members of before.
    pub(super) fn admit(&mut self, dc: DcId) -> DcSet {
        let older = self.all;
        assert!(!older.contains(dc), "{dc} is admitted to {older:?}");
        self.all.insert(dc);
        self.ended.remove(dc);
        older
    }

    /// A member is to leave: nothing is given to it any more.
    pub(super) fn begin_leaving(&mut self, dc: DcId) {
        assert!(self.all.contains(dc), "{dc} is to leave {:?}", self.all);
        self.parting.leaving.insert(dc);
    }

    /// A member does not leave: it is given what it asks for again.
    pub(super) fn stay(&mut self, dc: DcId) {
        assert!(self.all.contains(dc), "{dc} is to stay in {:?}", self.all);
        self.parting.leaving.remove(dc);
    }

    /// A member has left: the last entry of its log is applied.
    pub(super) fn note_left(&mut self, dc: DcId) {
        self.parting.leaving.remove(dc);
        self.parting.left.insert(dc);
    }

    /// These members are over.
    pub(super) fn end(&mut self, ended: DcSet) {
        assert!(self.all.is_superset(ended), "{ended:?} are over, the members are {:?}", self.all);
        self.all = self.all.difference(ended);
        self.ended = self.ended.union(ended);
        self.no_homes = self.no_homes.union(ended);
        self.parting.leaving = self.parting.leaving.difference(ended);
        self.parting.left = self.parting.left.difference(ended);
        ended.iter().for_each(|dc| self.by[dc.index()] = Epoch(0));
        assert!(!self.all.is_empty(), "somebody stays when {ended:?} are over");
    }

    /// Asserts the relations of these sets.
    pub(super) fn check(&self) {
        let (all, ended, no_homes) = (self.all, self.ended, self.no_homes);
        assert!(all.intersection(ended).is_empty(), "{ended:?} have ended, {all:?} are members");
        assert!(no_homes.is_superset(ended), "{ended:?} have ended, {no_homes:?} are no homes");
        let Parting { leaving, left } = self.parting;
        assert!(leaving.intersection(left).is_empty(), "{leaving:?} are to leave, {left:?} have left");
        assert!(all.is_superset(leaving.union(left)), "{leaving:?} and {left:?} leave, of {all:?}");
    }
}
