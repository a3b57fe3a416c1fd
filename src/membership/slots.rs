//! The slots of the cluster: the present members, and the former ones.

use std::collections::BTreeMap;

use geolock_api::names::{DcId, DcSet};
use serde::{Deserialize, Serialize};

use super::attempt::Cut;
use super::ids::{Epoch, Generation, ServerId};
use super::refused::Refused;
use super::slot::{EndCause, Member, Past, Phase, Slot};

/// The slots that were ever given out.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Slots(BTreeMap<DcId, Slot>);

impl Slots {
    /// Returns the slots in increasing order.
    pub fn iter(&self) -> impl Iterator<Item = (DcId, &Slot)> {
        self.0.iter().map(|(dc, slot)| (*dc, slot))
    }

    /// Returns the slot, if it was ever given out.
    pub fn get(&self, dc: DcId) -> Option<&Slot> {
        self.0.get(&dc)
    }

    pub(super) fn get_mut(&mut self, dc: DcId) -> Option<&mut Slot> {
        self.0.get_mut(&dc)
    }

    /// Sets a slot, whatever invariants that breaks.
    #[cfg(test)]
    pub(super) fn fill(&mut self, dc: DcId, slot: Slot) {
        self.0.insert(dc, slot);
    }

    pub(super) fn member_mut(&mut self, dc: DcId) -> Option<&mut Member> {
        self.get_mut(dc)?.member.as_mut()
    }

    /// Gives the slot to a member.
    pub(super) fn admit(&mut self, dc: DcId, member: Member) {
        self.0.entry(dc).or_default().member = Some(member);
    }

    /// Returns the members, in increasing order of their slots.
    pub fn members(&self) -> impl Iterator<Item = (DcId, &Member)> {
        self.iter().filter_map(|(dc, slot)| Some((dc, slot.member.as_ref()?)))
    }

    /// Returns the slots that have a member.
    pub fn member_set(&self) -> DcSet {
        self.members().map(|(dc, _)| dc).collect()
    }

    /// Returns the member with this slot.
    pub fn member(&self, dc: DcId) -> Option<&Member> {
        self.get(dc)?.member.as_ref()
    }

    /// Returns the member, if it has this generation.
    pub(in crate::membership) fn current(
        &self,
        dc: DcId,
        generation: Generation,
    ) -> Result<&Member, Refused> {
        let member = self.member(dc).ok_or(Refused::NotMember { dc })?;
        if member.generation != generation {
            return Err(Refused::OldGeneration { dc, asked: generation, now: member.generation });
        }
        Ok(member)
    }

    /// Returns the generation of the member with this slot.
    pub fn generation(&self, dc: DcId) -> Option<Generation> {
        Some(self.member(dc)?.generation)
    }

    /// Returns the generation that the next member with this slot has, or `None` if the slot has a member or
    /// cannot be given out again.
    pub fn next_generation(&self, dc: DcId) -> Option<Generation> {
        match self.get(dc) {
            None => Some(Generation(0)),
            Some(slot) if slot.member.is_none() => slot.next_generation(),
            Some(_) => None,
        }
    }

    /// Returns the end of a generation that is over, as long as it is remembered.
    pub fn past(&self, dc: DcId, generation: Generation) -> Option<&Past> {
        self.get(dc)?.past.iter().find(|past| past.generation == generation)
    }

    /// Returns the last generation of the slot that is over.
    pub fn last_past(&self, dc: DcId) -> Option<&Past> {
        self.get(dc)?.past.last()
    }

    /// Returns true if the slot had a member, and has none.
    pub fn has_ended(&self, dc: DcId) -> bool {
        self.member(dc).is_none() && self.last_past(dc).is_some()
    }

    /// Returns the end of a server's membership, if it was a member, and as long as that is remembered.
    pub fn end_of(&self, server: ServerId) -> Option<&Past> {
        self.0.values().flat_map(|slot| &slot.past).find(|past| past.server == server)
    }

    /// Returns true if this generation of the slot is over. One that never began is not.
    pub fn is_over(&self, dc: DcId, generation: Generation) -> bool {
        let Some(slot) = self.get(dc) else { return false };
        match &slot.member {
            Some(member) => generation < member.generation,
            None => slot.past.last().is_some_and(|last| generation <= last.generation),
        }
    }

    /// Returns the number of the last entry that counts of a generation that is over, or `None` if it is not
    /// over or not remembered: see [`MAX_PAST`](super::MAX_PAST).
    pub fn cut(&self, dc: DcId, generation: Generation) -> Option<u64> {
        Some(self.past(dc, generation)?.cut)
    }

    /// Returns the member with whose parts the parts of this member go: itself once it is settled.
    pub fn sponsor(&self, dc: DcId) -> Option<DcId> {
        Some(self.member(dc)?.sponsor)
    }

    /// Returns true for a member whose parts are its own: a founder, or one whose `Settled` is decided.
    pub fn is_settled(&self, dc: DcId) -> bool {
        self.member(dc).is_some_and(|member| member.phase != Phase::Joining)
    }

    /// Returns these members and every joining one whose sponsor is among them: they end together.
    pub fn with_joiners(&self, members: DcSet) -> DcSet {
        let joiners = self.members().filter(|(_, it)| it.phase == Phase::Joining);
        let theirs = joiners.filter(|(_, it)| members.contains(it.sponsor)).map(|(dc, _)| dc);
        members.union(theirs.collect())
    }

    /// Returns the members of a recovery that were lost, once it is decided, as far as they are remembered.
    pub fn lost_at(&self, epoch: Epoch) -> impl Iterator<Item = Cut> {
        let lost = move |past: &&super::Past| past.ended == epoch && past.cause == EndCause::Lost;
        let cut = |dc, past: &super::Past| Cut { dc, generation: past.generation, seq: past.cut };
        self.iter().flat_map(move |(dc, slot)| slot.past.iter().filter(lost).map(move |past| cut(dc, past)))
    }

    /// Returns true if the last member with this slot was lost, and it has no other.
    pub fn is_lost(&self, dc: DcId) -> bool {
        self.member(dc).is_none() && self.last_past(dc).is_some_and(|past| past.cause == EndCause::Lost)
    }
}
