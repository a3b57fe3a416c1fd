//! Witnesses: voters without data.
//!
//! A witness has links and a certificate as members have them, and so the id of a datacenter. It is no slot:
//! no member ever has that id, and no other witness. So a statement about a link is about one server, and
//! nothing has to be forgotten when a witness is removed.

use std::collections::BTreeMap;

use geolock_api::names::{DcId, DcSet};
use serde::{Deserialize, Serialize};

use super::history::VoterSet;
use super::ids::{ServerId, Voter, WitnessId};
use super::refused::Refused;
use super::slot::Witness;
use super::slots::Slots;

/// The witnesses of the cluster, and those that were removed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Witnesses {
    current: BTreeMap<WitnessId, Witness>,
    /// Those that were removed, by the ids of their links: neither is used again.
    past: BTreeMap<DcId, ServerId>,
}

impl Witnesses {
    /// Returns the witnesses, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (WitnessId, &Witness)> {
        self.current.iter().map(|(id, witness)| (*id, witness))
    }

    /// Returns true if this is a witness now.
    pub fn contains(&self, id: WitnessId) -> bool {
        self.current.contains_key(&id)
    }

    /// Returns the ids with which witnesses have links.
    pub fn dcs(&self) -> DcSet {
        self.current.values().map(|witness| witness.dc).collect()
    }

    /// Returns the witness whose links have this id.
    pub fn at(&self, dc: DcId) -> Option<(WitnessId, &Witness)> {
        self.iter().find(|(_, witness)| witness.dc == dc)
    }

    /// Returns the witness with this server.
    pub fn of(&self, server: ServerId) -> Option<WitnessId> {
        self.iter().find(|(_, witness)| witness.server == server).map(|(id, _)| id)
    }

    /// Returns true if this server was a witness and was removed: it is none again.
    pub fn is_past(&self, server: ServerId) -> bool {
        self.past.values().any(|past| *past == server)
    }

    /// Returns true if a witness has, or had, this id.
    pub fn has_id(&self, dc: DcId) -> bool {
        self.at(dc).is_some() || self.past.contains_key(&dc)
    }

    /// Returns the ids of witnesses that were removed.
    pub fn past_dcs(&self) -> DcSet {
        self.past.keys().copied().collect()
    }

    /// Returns the servers of witnesses that were removed.
    pub(super) fn past_servers(&self) -> impl Iterator<Item = ServerId> {
        self.past.values().copied()
    }

    /// Returns the id with which a voter has links; `None` for a witness that was removed.
    pub fn link_id(&self, voter: Voter) -> Option<DcId> {
        match voter {
            Voter::Member { dc, .. } => Some(dc),
            Voter::Witness(id) => self.current.get(&id).map(|witness| witness.dc),
        }
    }

    /// Returns the ids with which these voters have links, without witnesses that were removed.
    pub fn link_ids(&self, set: &VoterSet) -> DcSet {
        set.voters.iter().filter_map(|voter| self.link_id(*voter)).collect()
    }

    pub(super) fn add(&mut self, id: WitnessId, witness: Witness) {
        let before = self.current.insert(id, witness);
        assert_eq!(before, None, "the id of a witness is the number of a decision");
    }

    /// Removes a witness. Its id and its server are not used again.
    pub(super) fn end(&mut self, id: WitnessId) {
        let Some(witness) = self.current.remove(&id) else { return };
        let before = self.past.insert(witness.dc, witness.server);
        assert_eq!(before, None, "the id {} had one witness", witness.dc);
    }

    /// Returns an error if a witness has, or had, this id.
    pub(super) fn never_had(&self, dc: DcId) -> Result<(), Refused> {
        if self.has_id(dc) { Err(Refused::IdOfWitness { dc }) } else { Ok(()) }
    }

    /// Forgets all witnesses, so that the config breaks an invariant.
    #[cfg(test)]
    pub(super) fn clear(&mut self) {
        self.current.clear();
    }
}

/// Returns an error if a member has, or had, this id.
pub(super) fn is_no_slot(slots: &Slots, dc: DcId) -> Result<(), Refused> {
    if slots.get(dc).is_some() { Err(Refused::IdOfMember { dc }) } else { Ok(()) }
}
