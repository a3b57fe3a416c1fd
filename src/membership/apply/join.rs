//! Invitations, admissions, and the end of a join.

use geolock_api::names::DcId;

use super::Effect;
use crate::membership::command::{Admission, Credentials};
use crate::membership::config::{Config, MAX_INVITATIONS};
use crate::membership::ids::{Generation, Index, MemberName, ServerId};
use crate::membership::policy::JoinPolicy;
use crate::membership::refused::Refused;
use crate::membership::slot::{EndCause, Member, Phase};

impl Config {
    pub(super) fn invite(&mut self, name: &MemberName, sponsor: Option<DcId>) -> Result<Effect, Refused> {
        self.name_is_free(name)?;
        if let Some(sponsor) = sponsor {
            self.can_sponsor(sponsor)?;
        }
        if self.invitations.len() >= MAX_INVITATIONS && !self.invitations.contains_key(name) {
            return Err(Refused::TooManyInvitations);
        }
        self.invitations.insert(name.clone(), sponsor);
        Ok(Effect::Changed)
    }

    pub(super) fn cancel_invitation(&mut self, name: &MemberName) -> Result<Effect, Refused> {
        match self.invitations.remove(name) {
            Some(_) => Ok(Effect::Changed),
            None => Err(Refused::NoInvitation { name: name.clone() }),
        }
    }

    pub(super) fn admit(&mut self, index: Index, admission: &Admission) -> Result<Effect, Refused> {
        let Admission { dc, generation, server, name, sponsor, .. } = admission;
        self.no_attempt()?;
        self.credentials_fit(&admission.credentials)?;
        if let Some(member) = self.member(*dc) {
            return Err(Refused::SlotUsed { dc: *dc, server: member.server });
        }
        let expected = self.next_generation(*dc).ok_or(Refused::SlotExhausted { dc: *dc })?;
        if *generation != expected {
            return Err(Refused::WrongGeneration { dc: *dc, asked: *generation, expected });
        }
        self.server_is_new(*server)?;
        self.name_is_free(name)?;
        self.can_sponsor(*sponsor)?;
        self.is_invited(name, self.join_policy(*dc))?;
        if self.invitations.get(name).is_some_and(|named| named.is_some_and(|named| named != *sponsor)) {
            let fault = "is not the one that the invitation names";
            return Err(Refused::Sponsor { sponsor: *sponsor, fault });
        }

        self.invitations.remove(name);
        self.begin_epoch(index, self.voters().clone());
        self.slots.entry(*dc).or_default().member = Some(Member {
            generation: *generation,
            server: *server,
            name: name.clone(),
            address: admission.address.clone(),
            phase: Phase::Joining,
            sponsor: *sponsor,
            admitted: self.epoch,
            wants_vote: admission.votes,
        });
        Ok(Effect::Epoch)
    }

    /// A member that is to be evicted is not settled any more: the eviction may have begun without waiting
    /// for it to be silent, because it grants nothing before it is settled.
    pub(super) fn settled(&mut self, dc: DcId, generation: Generation) -> Result<Effect, Refused> {
        let member = self.current(dc, generation)?;
        if member.phase != Phase::Joining {
            return Err(Refused::AlreadySettled { dc });
        }
        if self.attempt.as_ref().is_some_and(|attempt| attempt.evicting().contains(dc)) {
            self.no_attempt()?;
        }
        let member = self.slots.get_mut(&dc).and_then(|slot| slot.member.as_mut());
        let member = member.expect("it was found above");
        member.phase = Phase::Settled;
        member.sponsor = dc;
        Ok(Effect::Changed)
    }

    pub(super) fn credentials_fit(&self, theirs: &Credentials) -> Result<(), Refused> {
        if let Some(ours) = self.cluster.filter(|ours| *ours != theirs.cluster) {
            return Err(Refused::WrongCluster { theirs: theirs.cluster, ours });
        }
        if let Some(lineage) = theirs.lineage.filter(|lineage| *lineage != self.lineage) {
            return Err(Refused::WrongLineage { theirs: lineage, ours: self.lineage });
        }
        if theirs.version < self.version {
            return Err(Refused::OldVersion { theirs: theirs.version, ours: self.version });
        }
        Ok(())
    }

    /// A server needs a new id for each generation: one that forgot the end of its generation in a crash
    /// would otherwise believe a member that lags behind and still lists it.
    pub(super) fn server_is_new(&self, server: ServerId) -> Result<(), Refused> {
        let used = self.slots.values().any(|slot| {
            slot.member.as_ref().is_some_and(|member| member.server == server)
                || slot.past.iter().any(|past| past.server == server)
        });
        if used || self.witnesses.values().any(|witness| witness.server == server) {
            return Err(Refused::ServerUsed { server });
        }
        Ok(())
    }

    pub(super) fn name_is_free(&self, name: &MemberName) -> Result<(), Refused> {
        let used = self.members().any(|(_, member)| member.name == *name);
        if used || self.witnesses.values().any(|witness| witness.name == *name) {
            return Err(Refused::NameUsed { name: name.clone() });
        }
        Ok(())
    }

    pub(super) fn is_invited(&self, name: &MemberName, needs: JoinPolicy) -> Result<(), Refused> {
        if needs == JoinPolicy::Operator && !self.invitations.contains_key(name) {
            return Err(Refused::NotInvited { name: name.clone() });
        }
        Ok(())
    }

    fn can_sponsor(&self, sponsor: DcId) -> Result<(), Refused> {
        let fault = match self.member(sponsor).map(|member| member.phase) {
            Some(Phase::Settled) => return Ok(()),
            Some(Phase::Joining) => "is joining itself",
            Some(Phase::Leaving) => "is leaving",
            None => "is no member",
        };
        Err(Refused::Sponsor { sponsor, fault })
    }

    /// Returns the servers that may join with this slot.
    pub fn join_policy(&self, dc: DcId) -> JoinPolicy {
        if self.was_evicted(dc) { self.policy.rejoin } else { self.policy.join }
    }

    fn was_evicted(&self, dc: DcId) -> bool {
        let last = self.slots.get(&dc).and_then(|slot| slot.past.last());
        last.is_some_and(|past| past.cause != EndCause::Left)
    }
}
