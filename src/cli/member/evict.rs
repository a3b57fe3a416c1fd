//! `geolock member evict` and `replace`: datacenters that are lost for good.

use anyhow::anyhow;
use geolock_client::{AdminClient, EvictionCheck};
use tokio::time::sleep;

use super::add::start_command;
use super::{LOOK_EVERY, clients_rely, lost};
use crate::cli::connect;
use crate::cli::failure::Failure;
use crate::cli::print::print;
use geolock_api::names::DcId;
use geolock_api::proto::{JoinPolicy, Member, MemberPhase, MemberPolicy};

/// Evicts datacenters, and waits until that is done.
pub(super) async fn evict(admin: &AdminClient, dcs: &[DcId], clients_are_dead: bool) -> Result<(), Failure> {
    let ids: Vec<u32> = dcs.iter().map(|dc| dc.get().into()).collect();
    let names = dcs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let list = admin.members().await.map_err(connect::failure)?;
    // Another server may join with the id of one that is evicted.
    let is_named = |member: &&Member| ids.contains(&member.dc);
    list.members.iter().filter(is_named).try_for_each(|member| match &member.at_stake {
        Some(at_stake) if !member.heard => print(lost(member, at_stake, &list)),
        _ => Ok(()),
    })?;
    let server = |member: &Member| (member.dc, member.generation);
    let lost: Vec<(u32, u32)> = list.members.iter().filter(is_named).map(server).collect();
    let is_member = async || -> Result<bool, Failure> {
        let list = admin.members().await.map_err(connect::failure)?;
        Ok(list.members.iter().map(server).any(|member| lost.contains(&member)))
    };
    // One that is evicted already is no error.
    let is_under_way = |member: &Member| ids.contains(&member.dc) && member.phase() == MemberPhase::Evicting;
    let mut check = EvictionCheck::default();
    if !list.members.iter().any(is_under_way) {
        check = admin.check_eviction(&ids).await.map_err(connect::failure)?;
        let wait = check.max_lease_ttl;
        if !clients_are_dead && !wait.is_zero() {
            print(clients_rely(&names, wait))?;
            sleep(wait).await;
        }
    }
    // It is given up if one of them is heard, or another member is lost meanwhile.
    let mut decision = list.decision;
    while is_member().await? {
        decision = admin.evict_members(&ids, &check).await.map_err(connect::failure)?;
        sleep(LOOK_EVERY).await;
    }
    print(format_args!("{names} evicted (decision {decision})."))
}

/// Evicts a datacenter, and invites a new server with its id and name, if the policy requires that.
pub(super) async fn replace(admin: &AdminClient, dc: DcId, clients_are_dead: bool) -> Result<(), Failure> {
    let list = admin.members().await.map_err(connect::failure)?;
    let Some(member) = list.members.iter().find(|member| member.dc == u32::from(dc.get())) else {
        return Err(anyhow!(
            "{dc} is no member; if it was evicted, `geolock member add NAME` lets a new server join with its id"
        )
        .into());
    };
    evict(admin, &[dc], clients_are_dead).await?;
    let name = &member.name;
    let after = admin.members().await.map_err(connect::failure)?;
    let start = format!(
        "start its server with an empty data directory and the certificate of {dc}:\n  {}",
        start_command(&after, name, None, &member.address)
    );
    if list.policy.as_ref().map(MemberPolicy::rejoin) == Some(JoinPolicy::Auto) {
        return print(format_args!("{name} may join: {start}"));
    }
    let decision = admin.add_member(name, None).await.map_err(connect::failure)?;
    print(format_args!("{name} may join (decision {decision}): {start}"))
}
