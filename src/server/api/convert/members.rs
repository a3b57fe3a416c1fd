//! The members of the cluster, to messages, and the call that invites one.

use std::time::Duration;

use super::fields::name;
use crate::base::time::Timestamp;
use crate::lock_server::MembersView;
use crate::membership::{
    Attempt, Config, EndCause, Epoch, EvictPolicy, Fallen, JoinPolicy, LossReport, LostMember, MAX_EVICTIONS,
    MemberName, Past, Phase, Policy, PolicyChange, Prefix,
};
use crate::replica::Decision;
use crate::replica::call::{PeerStatus, Status};
use crate::server::api::error::BorderError;
use crate::server::members::{Lost, MembersApi};
use geolock_api::keys::Key;
use geolock_api::names::{ClusterId, DcId, DcSet, LockName};
use geolock_api::proto::{
    self, AddMemberRequest, AtStake, DecisionRecord, EndedMember, EvictMembersRequest, EvictMembersResponse,
    Invitation, LastHeard, ListMembersResponse, Member, MemberPhase, MemberPolicy, PrefixHome,
    SetHomeRequest,
};

/// `status`: the state of the datacenter that answers.
pub(in crate::server::api) fn list(members: &MembersApi, status: &Status) -> ListMembersResponse {
    let (view, leader) = members.list();
    ListMembersResponse {
        members: rows(&view, members, status),
        decision: view.config.index().0,
        epoch: view.config.epoch().0,
        invitations: view.config.invitations().map(|(name, sponsor)| invited(name, sponsor)).collect(),
        leader: leader.map(|leader| leader.get().into()),
        policy: view.config.cluster().map(|_| shown(view.config.policy())),
        missing_reports: view.config.missing_reports().iter().map(|dc| dc.get().into()).collect(),
        backed_for_ms: status.backed_for_ms,
        waiting_is_least: status.members.waiting_is_least,
        homes: view.config.rules().homes().map(|(prefix, home)| prefix_home_of(prefix, home)).collect(),
        evictions_left: MAX_EVICTIONS.saturating_sub(view.config.evictions()).into(),
        witnesses: witnesses_of(&view, members, status),
        ended: ended(&view.config),
        cluster: view.config.cluster().map(ClusterId::get),
        former_voters: ids(members.former_voters(&view.config)),
    }
}

fn ended(config: &Config) -> Vec<EndedMember> {
    let row = |dc: DcId, past: &Past| EndedMember {
        dc: dc.get().into(),
        generation: past.generation.0.into(),
        last_entry: past.cut - past.generation.base(),
        cause: match past.cause {
            EndCause::Left => proto::EndCause::Left,
            EndCause::Evicted | EndCause::EvictedBySilence => proto::EndCause::Evicted,
            EndCause::Lost => proto::EndCause::Lost,
        }
        .into(),
    };
    config.slots().iter().flat_map(|(dc, slot)| slot.past.iter().map(move |past| row(dc, past))).collect()
}

fn prefix_home_of(prefix: &Prefix, home: DcId) -> PrefixHome {
    PrefixHome { prefix: prefix.as_bytes().to_vec().into(), home: home.get().into() }
}

/// Returns the prefix and the home that a message names.
pub(in crate::server::api) fn prefix_home(
    message: &SetHomeRequest,
) -> Result<(Prefix, Option<DcId>), BorderError> {
    Ok((Prefix::new(&message.prefix)?, message.home.map(dc).transpose()?))
}

/// Returns the servers that only vote. `status`: the state of the datacenter that answers.
pub(super) fn witnesses(members: &MembersApi, status: &Status) -> Vec<proto::Witness> {
    // Without any, a status is not worth a copy of the list.
    if status.witnesses.is_empty() { Vec::new() } else { witnesses_of(&members.list().0, members, status) }
}

fn witnesses_of(view: &MembersView, members: &MembersApi, status: &Status) -> Vec<proto::Witness> {
    let counted = members.counted_voters();
    let heard = |dc| status.witnesses.iter().find(|known| known.dc == dc)?.heard_ms;
    let row = |witness: &crate::membership::Witness| proto::Witness {
        dc: witness.dc.get().into(),
        name: witness.name.to_string(),
        address: witness.address.to_string(),
        heard: view.witnesses.0.contains(witness.dc),
        votes: counted.is_none_or(|counted| counted.contains(witness.dc)),
        heard_ms: heard(witness.dc),
    };
    view.config.witnesses().iter().map(|(_, witness)| row(witness)).collect()
}

/// Returns the consequences if the datacenter that answers died now.
pub(super) fn own_stake(status: &Status) -> AtStake {
    let (own, counts) = (&status.members.own, &status.counts);
    AtStake {
        leases: Some(counts.leases),
        held: Some(counts.held),
        only_here: status.members.only_here,
        ..stake(own, 0)
    }
}

/// Returns the consequences if a peer died now.
pub(super) fn stake_of(peer: &PeerStatus) -> AtStake {
    stake(&peer.at_stake, peer.missing_entries)
}

fn stake(at_stake: &crate::replica::call::AtStake, missing_entries: u64) -> AtStake {
    let crate::replica::call::AtStake { away_locks, waiting, heard_ms, silent: _ } = *at_stake;
    AtStake { away_locks, waiting, heard_ms, missing_entries, ..AtStake::default() }
}

pub(in crate::server::api) fn decision(decision: Decision) -> DecisionRecord {
    let Decision { number, at_ms, text, is_refused } = decision;
    DecisionRecord { number, at_ms, text, refused: is_refused }
}

pub(super) fn ids(dcs: DcSet) -> Vec<u32> {
    dcs.iter().map(|dc| dc.get().into()).collect()
}

fn shown(policy: &Policy) -> MemberPolicy {
    let evict = match policy.evict {
        EvictPolicy::Wait => proto::EvictPolicy::Wait,
        EvictPolicy::Operator => proto::EvictPolicy::Operator,
        EvictPolicy::Auto => proto::EvictPolicy::Auto,
    };
    let join = |join| match join {
        JoinPolicy::Operator => proto::JoinPolicy::Operator,
        JoinPolicy::Auto => proto::JoinPolicy::Auto,
    };
    MemberPolicy {
        evict: Some(evict.into()),
        join: Some(join(policy.join).into()),
        rejoin: Some(join(policy.rejoin).into()),
        fence_after_ms: Some(policy.fence_after_ms),
        evict_after_ms: Some(policy.evict_after_ms),
        max_lease_ttl_ms: Some(policy.max_lease_ttl_ms),
    }
}

/// Returns the change of the policy that a message asks for.
pub(in crate::server::api) fn policy_change(asked: &MemberPolicy) -> Result<PolicyChange, BorderError> {
    let evict = |asked| match asked {
        proto::EvictPolicy::Unspecified => Err(BorderError::UnknownPolicy),
        proto::EvictPolicy::Wait => Ok(EvictPolicy::Wait),
        proto::EvictPolicy::Operator => Ok(EvictPolicy::Operator),
        proto::EvictPolicy::Auto => Ok(EvictPolicy::Auto),
    };
    let join = |asked| match asked {
        proto::JoinPolicy::Unspecified => Err(BorderError::UnknownPolicy),
        proto::JoinPolicy::Operator => Ok(JoinPolicy::Operator),
        proto::JoinPolicy::Auto => Ok(JoinPolicy::Auto),
    };
    Ok(PolicyChange {
        evict: asked.evict.map(|_| evict(asked.evict())).transpose()?,
        join: asked.join.map(|_| join(asked.join())).transpose()?,
        rejoin: asked.rejoin.map(|_| join(asked.rejoin())).transpose()?,
        fence_after_ms: asked.fence_after_ms,
        evict_after_ms: asked.evict_after_ms,
        max_lease_ttl_ms: asked.max_lease_ttl_ms,
    })
}

fn rows(view: &MembersView, members: &MembersApi, status: &Status) -> Vec<Member> {
    let (me, counted) = (members.me(), members.counted_voters());
    // If the others were lost before the control group has followed the decision, no leader could be elected.
    let votes =
        |dc| view.config.voters().contains_member(dc) && counted.is_none_or(|counted| counted.contains(dc));
    let peer = |dc: DcId| status.peers.iter().find(|peer| peer.dc == dc);
    let at_stake = |dc| if dc == me { Some(own_stake(status)) } else { peer(dc).map(stake_of) };
    let entered = |dc: DcId| view.entered.iter().find(|(other, _)| *other == dc).map(|(_, epoch)| *epoch);
    let evicting = view.config.attempt().map_or(DcSet::EMPTY, Attempt::evicting);
    let row = |(dc, member): (DcId, &crate::membership::Member)| Member {
        dc: dc.get().into(),
        name: member.name.to_string(),
        address: member.address.to_string(),
        generation: member.generation.0.into(),
        phase: if evicting.contains(dc) { MemberPhase::Evicting } else { phase(member.phase) }.into(),
        votes: votes(dc),
        entered_epoch: entered(dc).unwrap_or(Epoch(0)).0,
        heard: dc == me || view.heard.contains(dc),
        silent: {
            let silent = view.config.silent_about(dc).filter_map(|by| view.config.witnesses().link_id(by));
            silent.map(|by| by.get().into()).collect()
        },
        at_stake: at_stake(dc),
        timed_since: view.config.fenced_since(dc).map(|epoch| epoch.0),
    };
    view.config.slots().members().map(row).collect()
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
pub(in crate::server::api) fn lost(message: &EvictMembersRequest) -> Result<Vec<Lost>, BorderError> {
    let clock =
        |id: u32| message.last_heard.iter().find(|heard| heard.dc == id).map_or(0, |heard| heard.clock);
    let lost = |id: &u32| Ok(Lost { dc: dc(*id)?, last_heard: Timestamp::from_raw(clock(*id)) });
    message.dcs.iter().map(lost).collect()
}

/// Returns the answer to a check.
pub(in crate::server::api) fn checked(max_lease_ttl: Duration, lost: &[Lost]) -> EvictMembersResponse {
    let heard = |lost: &Lost| LastHeard { dc: lost.dc.get().into(), clock: lost.last_heard.raw() };
    EvictMembersResponse {
        decision: 0,
        max_lease_ttl_ms: max_lease_ttl.as_millis() as u64,
        last_heard: lost.iter().map(heard).collect(),
    }
}

/// Returns the datacenters with these numbers.
pub(in crate::server::api) fn dcs(ids: &[u32]) -> Result<Vec<DcId>, BorderError> {
    ids.iter().map(|id| dc(*id)).collect()
}

pub(in crate::server::api) fn loss(report: LossReport) -> proto::LossReport {
    let id = |dc: DcId| u32::from(dc.get());
    let lost = |it: LostMember| proto::LostMember {
        dc: id(it.dc),
        generation: it.generation.0.into(),
        name: it.name.to_string(),
        last_entry: it.last_entry,
        last_entry_ms: it.stamp.map_or(0, Timestamp::millis),
    };
    proto::LossReport {
        decision: report.decision.0,
        lineage: report.lineage.0,
        survivors: report.survivors.iter().map(id).collect(),
        lost: report.lost.into_iter().map(lost).collect(),
        locks: report.locks,
    }
}

pub(in crate::server::api) fn fallen(fallen: Fallen) -> proto::Fallen {
    let lock = |lock: LockName| proto::FallenLock { name: name(&lock), home: lock.home_field() };
    let key =
        |key: &Key| proto::Key { bucket: key.bucket().to_vec().into(), name: key.name().to_vec().into() };
    let counter = |(of, rights): (Key, u64)| proto::FallenCounter { key: Some(key(&of)), rights };
    proto::Fallen {
        decision: fallen.epoch.0,
        dcs: fallen.members.iter().map(|dc| u32::from(dc.get())).collect(),
        locks: fallen.locks,
        names: fallen.names.into_iter().map(lock).collect(),
        counters: fallen.counters.into_iter().map(counter).collect(),
        more_counters: fallen.more_counters,
    }
}

/// Returns the name and the sponsor of a server that is to be invited.
pub(in crate::server::api) fn invitation(
    message: &AddMemberRequest,
) -> Result<(MemberName, Option<DcId>), BorderError> {
    Ok((MemberName::new(&message.name)?, message.sponsor.map(dc).transpose()?))
}
