//! `geolock member add`: a server is invited to join, or is not any more.

use geolock_client::AdminClient;

use crate::cli::connect;
use crate::cli::failure::Failure;
use crate::cli::print::print;
use geolock_api::names::DcId;
use geolock_api::proto::{ListMembersResponse, MemberPhase};

/// Invites a server, and shows the command that starts it.
pub(super) async fn add(admin: &AdminClient, name: &str, sponsor: Option<DcId>) -> Result<(), Failure> {
    let sponsor = sponsor.map(|dc| dc.get().into());
    let decision = admin.add_member(name, sponsor).await.map_err(connect::failure)?;
    print(format_args!("{name} may join (decision {decision})."))?;
    let list = admin.members().await.map_err(connect::failure)?;
    print(format_args!(
        "On its machine, with an empty data directory and a certificate of the cluster with an id that is free (for a \
         witness: `geolock witness`):\n  {}",
        start_command(&list, name, sponsor, "HOST:7401")
    ))
}

/// Takes the invitation of a server back.
pub(super) async fn cancel(admin: &AdminClient, name: &str) -> Result<(), Failure> {
    let decision = admin.cancel_invitation(name).await.map_err(connect::failure)?;
    print(format_args!("{name} may not join any more (decision {decision})."))
}

/// Returns the command that starts a server which joins. `sponsor`: the member that it should ask.
pub(super) fn start_command(
    list: &ListMembersResponse,
    name: &str,
    sponsor: Option<u32>,
    address: &str,
) -> String {
    let stays = list.members.iter().filter(|member| member.phase() == MemberPhase::Member);
    let asked = stays.clone().find(|member| Some(member.dc) == sponsor).or_else(|| stays.clone().next());
    let join = asked.map_or("MEMBER:7401", |member| member.address.as_str());
    format!(
        "geolock server --join {join} --name {name} --address {address} --data-dir DIR --tls-dc DIR --listen-client ADDRESS:7400"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use geolock_api::proto::Member;

    #[test]
    fn the_command_names_the_sponsor_or_a_member_that_stays() {
        let member = |dc, phase: MemberPhase| Member {
            dc,
            address: format!("city{dc}:7401"),
            phase: phase.into(),
            ..Member::default()
        };
        let members = vec![
            member(0, MemberPhase::Leaving),
            member(1, MemberPhase::Member),
            member(2, MemberPhase::Member),
        ];
        let mut list = ListMembersResponse { members, ..Default::default() };
        let command = |list: &ListMembersResponse, sponsor| start_command(list, "syd", sponsor, "syd:7401");
        let said = "geolock server --join city1:7401 --name syd --address syd:7401 --data-dir DIR --tls-dc DIR \
                    --listen-client ADDRESS:7400";
        assert_eq!(command(&list, None), said);
        assert!(command(&list, Some(2)).contains("--join city2:7401 "));
        list.members.truncate(1);
        assert!(command(&list, Some(0)).contains("--join MEMBER:7401 "));
    }
}
