//! A slot whose member has ended, until it may be given out again.
//!
//! ```text
//! log       Enter   of each: the end of the member with that slot
//! log       Freed   of each: it has applied everybody's Enter, so no entry that names that member is still
//!                   to come
//!           each walks over its ownership map: no register names that member any more
//! decision  Admit   of the next generation, once all members have said Freed. Each enters it after its walk
//! ```
//!
//! So registers and entries need not say which generation of a slot they mean: those of two generations never
//! meet.

use std::collections::BTreeMap;

use super::Members;
use super::decided::Decided;
use super::entered::Entered;
use crate::base::bugs::{Bug, Bugs};
use crate::causal_log::Op;
use crate::crdt::VersionVector;
use crate::membership::Generation;
use crate::replica::writer::Writer;
use geolock_api::names::{DcId, DcSet};

/// The slots whose members have ended, until they may be given out again.
#[derive(Clone, Debug, Default)]
pub(in crate::replica) struct EndedSlots {
    /// Slots that this member has to free.
    owed: DcSet,
    /// Slots whose last members may be named by registers here.
    named: DcSet,
    /// The walk over the ownership map: what it is about, and the number of rows that are left. From the last
    /// to the first: a row that leaves is replaced by the last one, which was examined.
    walk: Option<(DcSet, usize)>,
    /// By slot that is over: its last generation, and the members whose [`Op::Freed`] is applied here.
    freed: BTreeMap<DcId, (Generation, DcSet)>,
}

impl EndedSlots {
    /// Returns true if nothing is left to be done here.
    pub(super) fn is_quiet(&self) -> bool {
        self.owed.is_empty() && self.named.is_empty()
    }

    /// Returns true if the next step goes on with a walk over the ownership map.
    #[inline]
    pub(super) fn is_walking(&self) -> bool {
        self.walk.is_some()
    }

    /// Returns true if registers here may name an earlier member with this slot.
    pub(super) fn names(&self, slot: DcId) -> bool {
        self.named.contains(slot)
    }

    /// The end of these members is entered.
    pub(super) fn end(&mut self, ended: DcSet) {
        (self.owed, self.named) = (self.owed.union(ended), self.named.union(ended));
        self.walk = None;
        self.check();
    }

    /// The slot has a member again.
    pub(super) fn admit(&mut self, slot: DcId) {
        self.owed.remove(slot);
        self.named.remove(slot);
        self.freed.remove(&slot);
        self.check();
    }

    /// Sets what a state or a checkpoint says. `ended`: the slots that are over in it.
    pub(super) fn install(&mut self, me: DcId, ended: DcSet, freed: &[(DcId, Generation, DcSet)]) {
        self.freed = freed.iter().map(|(slot, generation, by)| (*slot, (*generation, *by))).collect();
        let owes = |slot: &DcId| !self.freed.get(slot).is_some_and(|(_, by)| by.contains(me));
        self.owed = ended.iter().filter(owes).collect();
        (self.named, self.walk) = (ended, None);
        self.check();
    }

    /// Returns the members that have freed each slot, with its last generation, for a checkpoint or a state.
    pub(super) fn state(&self) -> Vec<(DcId, Generation, DcSet)> {
        self.freed.iter().map(|(slot, (generation, by))| (*slot, *generation, *by)).collect()
    }

    /// Returns the members that have freed each slot that is over.
    pub fn freed(&self) -> BTreeMap<DcId, DcSet> {
        self.freed.iter().map(|(slot, (_, by))| (*slot, *by)).collect()
    }

    /// Returns a slot that this member can free now, with its last generation.
    fn to_free(&self, decided: &Decided, entered: &Entered, bugs: Bugs) -> Option<(DcId, Generation)> {
        self.owed.iter().find_map(|slot| {
            let past = decided.config().slots().past_at(slot, entered.epoch())?;
            let is_seen = entered.have_entered(entered.staying(), past.ended) || bugs.has(Bug::FreedUnseen);
            is_seen.then_some((slot, past.generation))
        })
    }

    /// `by` has freed a slot with this last generation.
    fn note_freed(&mut self, by: DcId, slot: DcId, generation: Generation) {
        let (of, freed) = self.freed.entry(slot).or_insert((generation, DcSet::EMPTY));
        if *of != generation {
            (*of, *freed) = (generation, DcSet::EMPTY);
        }
        freed.insert(by);
    }

    /// Asserts the relations of these slots. The walk is over slots that are freed: from then on no entry
    /// brings a register back that names their members.
    pub(super) fn check(&self) {
        let (owed, named) = (self.owed, self.named);
        assert!(named.is_superset(owed), "{owed:?} are to be freed, {named:?} may be named by registers");
        let walked = self.walk.map_or(DcSet::EMPTY, |(of, _)| of);
        assert!(
            owed.intersection(walked).is_empty(),
            "{owed:?} are to be freed, the walk is over {walked:?}"
        );
    }

    /// Asserts that all of this is about slots that have ended and have no other member.
    pub(super) fn check_ended(&self, ended: DcSet) {
        let freed = self.freed.keys().copied().collect::<DcSet>().union(self.named);
        assert!(ended.is_superset(freed), "{freed:?} wait to be given out again, {ended:?} have ended");
    }
}

impl Members {
    /// Returns an entry in this vector that was lost with its maker, and the last entry of that one that
    /// counts.
    pub fn lost_in(&self, vector: &VersionVector) -> Option<(DcId, u64, u64)> {
        if self.entered.has_no_end() {
            return None;
        }
        let lost = |(dc, seq): (DcId, u64)| {
            let cut = self.decided.config().slots().cut(dc, Generation::of_seq(seq))?;
            (seq > cut).then_some((dc, seq, cut))
        };
        vector.iter().find_map(lost)
    }

    /// `by` has freed a slot. Only its last generation counts, as long as the slot has no other member.
    pub(in crate::replica) fn note_freed(&mut self, by: DcId, slot: DcId, generation: Generation) {
        let last = self.decided.config().slots().past_at(slot, self.entered.epoch());
        let is_last = last.is_some_and(|past| past.generation == generation);
        if !self.entered.ended().contains(slot) || !is_last {
            return;
        }
        self.ended_slots.note_freed(by, slot, generation);
        if by == self.decided.me() {
            self.ended_slots.owed.remove(slot);
        }
    }
}

impl Writer<'_> {
    /// Frees the slots of members that have ended, as far as that is possible now.
    pub(super) fn free_slots(&mut self) {
        let bugs = self.config.bugs;
        while let Some((slot, generation)) =
            self.members.ended_slots.to_free(&self.members.decided, &self.members.entered, bugs)
        {
            self.make_entry(vec![Op::Freed { slot, generation: generation.0 }]);
        }
        let slots = &mut self.members.ended_slots;
        let ready = slots.named.difference(slots.owed);
        if ready.is_empty() {
            return;
        }
        let (of, left) = slots.walk.get_or_insert_with(|| (ready, self.locks.owners().map().len()));
        if bugs.has(Bug::RowsNotForgotten) {
            *left = 0;
        }
        self.locks.member_changes().forget_ended(left);
        if *left == 0 {
            slots.named = slots.named.difference(*of);
            slots.walk = None;
            slots.check();
        }
    }

    /// No register may name an earlier member with this slot from now on: what a walk has not reached, as
    /// while the journal is read again, is examined at once.
    pub(super) fn forget_at_once(&mut self, slot: DcId) {
        if self.members.ended_slots.names(slot) && !self.config.bugs.has(Bug::RowsNotForgotten) {
            let mut left = self.locks.owners().map().len();
            while left > 0 {
                self.locks.member_changes().forget_ended(&mut left);
            }
        }
    }
}
