//! Witnesses and votes. A change of the voters is an epoch: consecutive sets then differ by one voter as seen
//! by every member, so a majority that acknowledges a member shares a voter with one that is silent about it.

use geolock_api::names::DcId;

use super::join::{credentials_fit, is_invited, name_is_free, server_is_new};
use super::leave::other_voters_stay;
use super::{Effect, begin_epoch, no_attempt};
use crate::membership::command::NewWitness;
use crate::membership::config::{Config, MAX_VOTERS};
use crate::membership::history::VoterSet;
use crate::membership::ids::{Generation, Index, Voter, WitnessId};
use crate::membership::refused::Refused;
use crate::membership::slot::{Phase, Witness};
use crate::membership::witnesses::is_no_slot;

pub(super) fn add_witness(
    config: &mut Config,
    index: Index,
    witness: &NewWitness,
) -> Result<Effect, Refused> {
    let NewWitness { dc, server, name, address, credentials } = witness;
    no_attempt(config)?;
    credentials_fit(config, credentials)?;
    server_is_new(config, *server)?;
    name_is_free(config, name)?;
    is_no_slot(config.slots(), *dc)?;
    config.witnesses().never_had(*dc)?;
    is_invited(config, name, config.policy.join)?;
    let voters = voters_with(config, Voter::Witness(WitnessId(index.0)))?;
    config.invitations.remove(name);
    let witness = Witness { dc: *dc, server: *server, name: name.clone(), address: address.clone() };
    config.voters.witnesses.add(WitnessId(index.0), witness);
    begin_epoch(config, index, voters);
    Ok(Effect::Epoch)
}

pub(super) fn remove_witness(config: &mut Config, index: Index, id: WitnessId) -> Result<Effect, Refused> {
    if !config.witnesses().contains(id) {
        return Err(Refused::NotWitness(id));
    }
    no_attempt(config)?;
    let voter = Voter::Witness(id);
    other_voters_stay(config, voter)?;
    config.voters.witnesses.end(id);
    config.marks.retain(|(by, _), _| *by != voter);
    begin_epoch(config, index, voters_without(config, voter));
    Ok(Effect::Epoch)
}

pub(super) fn vote(
    config: &mut Config,
    index: Index,
    dc: DcId,
    generation: Generation,
    votes: bool,
) -> Result<Effect, Refused> {
    let member = config.slots().current(dc, generation)?;
    let voter = Voter::Member { dc, generation };
    if config.voters().voters.contains(&voter) == votes {
        return Err(Refused::NoChange { what: "its vote" });
    }
    no_attempt(config)?;
    let voters = if votes {
        match member.phase {
            Phase::Settled => voters_with(config, voter)?,
            Phase::Joining => return Err(Refused::StillJoining { dc, sponsor: member.sponsor }),
            Phase::Leaving => return Err(Refused::AlreadyLeaving { dc }),
        }
    } else {
        other_voters_stay(config, voter)?;
        voters_without(config, voter)
    };
    let member = config.slots.member_mut(dc);
    member.expect("it was found above").wants_vote = votes;
    begin_epoch(config, index, voters);
    Ok(Effect::Epoch)
}

fn voters_with(config: &Config, voter: Voter) -> Result<VoterSet, Refused> {
    let mut set = config.voters().clone();
    if set.voters.len() >= MAX_VOTERS {
        return Err(Refused::TooManyVoters);
    }
    set.voters.insert(voter);
    Ok(set)
}

fn voters_without(config: &Config, voter: Voter) -> VoterSet {
    let mut set = config.voters().clone();
    set.voters.remove(&voter);
    set
}
