//! Witnesses: voters without data.
//!
//! A witness has links and a certificate as members have them, and so the id of a datacenter. It is no slot:
//! no member ever has that id, and no other witness. So a statement about a link is about one server, and
//! nothing has to be forgotten when a witness is removed.

use geolock_api::names::{DcId, DcSet};

use super::config::Config;
use super::history::VoterSet;
use super::ids::{ServerId, Voter, WitnessId};
use super::refused::Refused;
use super::slot::Witness;

impl Config {
    /// Returns the witnesses, in the order of their ids.
    pub fn witnesses(&self) -> impl Iterator<Item = (WitnessId, &Witness)> {
        self.voters.witnesses.iter().map(|(id, witness)| (*id, witness))
    }

    /// Returns the ids with which witnesses have links.
    pub fn witness_dcs(&self) -> DcSet {
        self.witnesses().map(|(_, witness)| witness.dc).collect()
    }

    /// Returns the witness whose links have this id.
    pub fn witness_at(&self, dc: DcId) -> Option<(WitnessId, &Witness)> {
        self.witnesses().find(|(_, witness)| witness.dc == dc)
    }

    /// Returns the witness with this server.
    pub fn witness_of(&self, server: ServerId) -> Option<WitnessId> {
        self.witnesses().find(|(_, witness)| witness.server == server).map(|(id, _)| id)
    }

    /// Returns true if this server was a witness and was removed: it is none again.
    pub fn is_past_witness(&self, server: ServerId) -> bool {
        self.voters.past_witnesses.values().any(|past| *past == server)
    }

    /// Returns the id with which a voter has links; `None` for a witness that was removed.
    pub fn link_id(&self, voter: Voter) -> Option<DcId> {
        match voter {
            Voter::Member { dc, .. } => Some(dc),
            Voter::Witness(id) => self.voters.witnesses.get(&id).map(|witness| witness.dc),
        }
    }

    /// Returns the ids with which these voters have links, without witnesses that were removed.
    pub fn link_ids(&self, set: &VoterSet) -> DcSet {
        set.voters.iter().filter_map(|voter| self.link_id(*voter)).collect()
    }

    /// Removes a witness. Its id and its server are not used again.
    pub(super) fn end_witness(&mut self, id: WitnessId) {
        let Some(witness) = self.voters.witnesses.remove(&id) else { return };
        let before = self.voters.past_witnesses.insert(witness.dc, witness.server);
        assert_eq!(before, None, "the id {} had one witness", witness.dc);
        let voter = Voter::Witness(id);
        self.marks.retain(|(by, _), _| *by != voter);
    }
}

/// Returns an error if a witness has, or had, this id.
pub(super) fn is_no_witness(config: &Config, dc: DcId) -> Result<(), Refused> {
    match config.witness_at(dc).is_some() || config.voters.past_witnesses.contains_key(&dc) {
        true => Err(Refused::IdOfWitness { dc }),
        false => Ok(()),
    }
}

/// Returns an error if a member has, or had, this id.
pub(super) fn is_no_slot(config: &Config, dc: DcId) -> Result<(), Refused> {
    match config.slots().get(dc) {
        Some(_) => Err(Refused::IdOfMember { dc }),
        None => Ok(()),
    }
}
