//! Invitations, admissions, and the end of a join.

use geolock_api::names::DcId;

use super::{Effect, begin_epoch, no_attempt};

use crate::membership::command::{Admission, Credentials};
use crate::membership::config::{Config, MAX_INVITATIONS};
use crate::membership::ids::{Generation, Index, MemberName, ServerId};
use crate::membership::policy::JoinPolicy;
use crate::membership::refused::Refused;
use crate::membership::slot::{EndCause, Member, Phase};

impl Config {
    /// Returns the servers that may join with this slot.
    pub fn join_policy(&self, dc: DcId) -> JoinPolicy {
        if was_evicted(self, dc) { self.policy.rejoin } else { self.policy.join }
    }
}

pub(super) fn invite(
    config: &mut Config,
    name: &MemberName,
    sponsor: Option<DcId>,
) -> Result<Effect, Refused> {
    name_is_free(config, name)?;
    if let Some(sponsor) = sponsor {
        can_sponsor(config, sponsor)?;
    }
    if config.invitations.len() >= MAX_INVITATIONS && !config.invitations.contains_key(name) {
        return Err(Refused::TooManyInvitations);
    }
    config.invitations.insert(name.clone(), sponsor);
    Ok(Effect::Changed)
}

pub(super) fn cancel_invitation(config: &mut Config, name: &MemberName) -> Result<Effect, Refused> {
    match config.invitations.remove(name) {
        Some(_) => Ok(Effect::Changed),
        None => Err(Refused::NoInvitation { name: name.clone() }),
    }
}

pub(super) fn admit(config: &mut Config, index: Index, admission: &Admission) -> Result<Effect, Refused> {
    let Admission { dc, generation, server, name, sponsor, .. } = admission;
    no_attempt(config)?;
    credentials_fit(config, &admission.credentials)?;
    if let Some(member) = config.slots().member(*dc) {
        return Err(Refused::SlotUsed { dc: *dc, server: member.server });
    }
    let expected = config.slots().next_generation(*dc).ok_or(Refused::SlotExhausted { dc: *dc })?;
    if *generation != expected {
        return Err(Refused::WrongGeneration { dc: *dc, asked: *generation, expected });
    }
    server_is_new(config, *server)?;
    name_is_free(config, name)?;
    config.witnesses().never_had(*dc)?;
    can_sponsor(config, *sponsor)?;
    is_invited(config, name, config.join_policy(*dc))?;
    if config.invitations.get(name).is_some_and(|named| named.is_some_and(|named| named != *sponsor)) {
        let fault = "is not the one that the invitation names";
        return Err(Refused::Sponsor { sponsor: *sponsor, fault });
    }

    config.invitations.remove(name);
    begin_epoch(config, index, config.voters().clone());
    let member = Member {
        generation: *generation,
        server: *server,
        name: name.clone(),
        address: admission.address.clone(),
        phase: Phase::Joining,
        sponsor: *sponsor,
        admitted: config.numbers.epoch,
        wants_vote: admission.votes,
    };
    config.slots.admit(*dc, member);
    Ok(Effect::Epoch)
}

/// A member that is to be evicted is not settled any more: the eviction may have begun without waiting
/// for it to be silent, because it grants nothing before it is settled.
pub(super) fn settled(config: &mut Config, dc: DcId, generation: Generation) -> Result<Effect, Refused> {
    let member = config.slots().current(dc, generation)?;
    if member.phase != Phase::Joining {
        return Err(Refused::AlreadySettled { dc });
    }
    if config.attempt.as_ref().is_some_and(|attempt| attempt.evicting().contains(dc)) {
        no_attempt(config)?;
    }
    let member = config.slots.member_mut(dc);
    let member = member.expect("it was found above");
    member.phase = Phase::Settled;
    member.sponsor = dc;
    Ok(Effect::Changed)
}

pub(super) fn credentials_fit(config: &Config, theirs: &Credentials) -> Result<(), Refused> {
    if let Some(ours) = config.cluster.filter(|ours| *ours != theirs.cluster) {
        return Err(Refused::WrongCluster { theirs: theirs.cluster, ours });
    }
    if let Some(lineage) = theirs.lineage.filter(|lineage| *lineage != config.lineage) {
        return Err(Refused::WrongLineage { theirs: lineage, ours: config.lineage });
    }
    if theirs.version < config.version {
        return Err(Refused::OldVersion { theirs: theirs.version, ours: config.version });
    }
    Ok(())
}

/// A server needs a new id for each generation: a server that forgot the end of its generation in a crash
/// would otherwise rely on a member that lags behind and still lists it.
pub(super) fn server_is_new(config: &Config, server: ServerId) -> Result<(), Refused> {
    let used = config.slots.iter().map(|(_, slot)| slot).any(|slot| {
        slot.member.as_ref().is_some_and(|member| member.server == server)
            || slot.past.iter().any(|past| past.server == server)
    });
    if used || config.witnesses().of(server).is_some() || config.witnesses().is_past(server) {
        return Err(Refused::ServerUsed { server });
    }
    Ok(())
}

pub(super) fn name_is_free(config: &Config, name: &MemberName) -> Result<(), Refused> {
    let used = config.slots().members().any(|(_, member)| member.name == *name);
    if used || config.witnesses().iter().any(|(_, witness)| witness.name == *name) {
        return Err(Refused::NameUsed { name: name.clone() });
    }
    Ok(())
}

pub(super) fn is_invited(config: &Config, name: &MemberName, needs: JoinPolicy) -> Result<(), Refused> {
    if needs == JoinPolicy::Operator && !config.invitations.contains_key(name) {
        return Err(Refused::NotInvited { name: name.clone() });
    }
    Ok(())
}

fn can_sponsor(config: &Config, sponsor: DcId) -> Result<(), Refused> {
    let fault = match config.slots().member(sponsor).map(|member| member.phase) {
        Some(Phase::Settled) => return Ok(()),
        Some(Phase::Joining) => "is joining itself",
        Some(Phase::Leaving) => "is leaving",
        None => "is no member",
    };
    Err(Refused::Sponsor { sponsor, fault })
}

fn was_evicted(config: &Config, dc: DcId) -> bool {
    let last = config.slots.get(dc).and_then(|slot| slot.past.last());
    last.is_some_and(|past| past.cause != EndCause::Left)
}
