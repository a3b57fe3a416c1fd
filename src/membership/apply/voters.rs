//! Witnesses and votes. A change of the voters is an epoch: consecutive sets then differ by one voter as seen
//! by every member, so a majority that acknowledges a member shares a voter with one that is silent about it.

use geolock_api::names::DcId;

use super::Effect;
use crate::membership::command::NewWitness;
use crate::membership::config::{Config, MAX_VOTERS};
use crate::membership::history::VoterSet;
use crate::membership::ids::{Generation, Index, Voter, WitnessId};
use crate::membership::refused::Refused;
use crate::membership::slot::{Phase, Witness};

impl Config {
    pub(super) fn add_witness(&mut self, index: Index, witness: &NewWitness) -> Result<Effect, Refused> {
        let NewWitness { server, name, address, credentials } = witness;
        self.no_attempt()?;
        self.credentials_fit(credentials)?;
        self.server_is_new(*server)?;
        self.name_is_free(name)?;
        self.is_invited(name, self.policy.join)?;
        let voters = self.voters_with(Voter::Witness(WitnessId(index.0)))?;
        self.invitations.remove(name);
        let witness = Witness { server: *server, name: name.clone(), address: address.clone() };
        self.witnesses.insert(WitnessId(index.0), witness);
        self.begin_epoch(index, voters);
        Ok(Effect::Epoch)
    }

    pub(super) fn remove_witness(&mut self, index: Index, id: WitnessId) -> Result<Effect, Refused> {
        if !self.witnesses.contains_key(&id) {
            return Err(Refused::NotWitness(id));
        }
        self.no_attempt()?;
        let voter = Voter::Witness(id);
        self.other_voters_stay(voter)?;
        self.witnesses.remove(&id);
        self.marks.retain(|(by, _), _| *by != voter);
        self.begin_epoch(index, self.voters_without(voter));
        Ok(Effect::Epoch)
    }

    pub(super) fn vote(
        &mut self,
        index: Index,
        dc: DcId,
        generation: Generation,
        votes: bool,
    ) -> Result<Effect, Refused> {
        let member = self.current(dc, generation)?;
        let voter = Voter::Member { dc, generation };
        if self.voters().voters.contains(&voter) == votes {
            return Err(Refused::NoChange { what: "its vote" });
        }
        self.no_attempt()?;
        let voters = if votes {
            match member.phase {
                Phase::Settled => self.voters_with(voter)?,
                Phase::Joining => return Err(Refused::StillJoining { dc, sponsor: member.sponsor }),
                Phase::Leaving => return Err(Refused::AlreadyLeaving { dc }),
            }
        } else {
            self.other_voters_stay(voter)?;
            self.voters_without(voter)
        };
        let member = self.slots.get_mut(&dc).and_then(|slot| slot.member.as_mut());
        member.expect("it was found above").wants_vote = votes;
        self.begin_epoch(index, voters);
        Ok(Effect::Epoch)
    }

    fn voters_with(&self, voter: Voter) -> Result<VoterSet, Refused> {
        let mut set = self.voters().clone();
        if set.voters.len() >= MAX_VOTERS {
            return Err(Refused::TooManyVoters);
        }
        set.voters.insert(voter);
        Ok(set)
    }

    fn voters_without(&self, voter: Voter) -> VoterSet {
        let mut set = self.voters().clone();
        set.voters.remove(&voter);
        set
    }
}
