//! The members of the cluster, to messages, and the call that invites one.

use crate::lock_server::MembersView;
use crate::membership::{Attempt, Epoch, MemberName, Phase};
use crate::server::api::error::BorderError;
use crate::server::members::MembersApi;
use geolock_api::names::{DcId, DcSet};
use geolock_api::proto::{
    AddMemberRequest, EvictMembersRequest, Invitation, ListMembersResponse, Member, MemberPhase,
};

pub(in crate::server::api) fn list(members: &MembersApi) -> ListMembersResponse {
    let (view, leader) = members.list();
    ListMembersResponse {
        members: rows(&view),
        decision: view.config.index().0,
        epoch: view.config.epoch().0,
        invitations: view.config.invitations().map(|(name, sponsor)| invited(name, sponsor)).collect(),
        leader: leader.map(|leader| leader.get().into()),
    }
}

fn rows(view: &MembersView) -> Vec<Member> {
    let entered = |dc: DcId| view.entered.iter().find(|(other, _)| *other == dc).map(|(_, epoch)| *epoch);
    let evicting = view.config.attempt().map_or(DcSet::EMPTY, Attempt::evicting);
    let row = |(dc, member): (DcId, &crate::membership::Member)| Member {
        dc: dc.get().into(),
        name: member.name.to_string(),
        address: member.address.to_string(),
        generation: member.generation.0.into(),
        phase: if evicting.contains(dc) { MemberPhase::Evicting } else { phase(member.phase) }.into(),
        votes: view.config.voters().contains_member(dc),
        entered_epoch: entered(dc).unwrap_or(Epoch(0)).0,
    };
    view.config.members().map(row).collect()
}

fn phase(phase: Phase) -> MemberPhase {
    match phase {
        Phase::Joining => MemberPhase::Joining,
        Phase::Settled => MemberPhase::Member,
        Phase::Leaving => MemberPhase::Leaving,
    }
}

fn invited(name: &MemberName, sponsor: Option<DcId>) -> Invitation {
    Invitation { name: name.to_string(), sponsor: sponsor.map(|dc| dc.get().into()) }
}

/// Returns the datacenter with this number.
pub(in crate::server::api) fn dc(id: u32) -> Result<DcId, BorderError> {
    u8::try_from(id).ok().and_then(DcId::new).ok_or(BorderError::NoDc(id))
}

/// Returns the datacenters that are to be evicted.
pub(in crate::server::api) fn lost(message: &EvictMembersRequest) -> Result<Vec<DcId>, BorderError> {
    message.dcs.iter().map(|id| dc(*id)).collect()
}

/// Returns the name and the sponsor of a server that is to be invited.
pub(in crate::server::api) fn invitation(
    message: &AddMemberRequest,
) -> Result<(MemberName, Option<DcId>), BorderError> {
    Ok((MemberName::new(&message.name)?, message.sponsor.map(dc).transpose()?))
}
