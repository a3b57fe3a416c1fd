//! `geolock member remove`: a datacenter that leaves in order.

use std::time::Duration;

use geolock_client::AdminClient;
use tokio::time::{Instant, sleep};

use super::LOOK_EVERY;
use crate::cli::at_stake;
use crate::cli::confirm::confirm;
use crate::cli::connect;
use crate::cli::failure::Failure;
use crate::cli::print::{print, tell};
use geolock_api::names::DcId;
use geolock_api::proto::Member;

/// A wait that is shorter is no surprise, and not told.
const FIRST_CAUSE: Duration = Duration::from_secs(2);

/// The ways of the command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Removal {
    pub dc: DcId,
    /// Wait until it has left.
    pub wait: bool,
    /// It stays after all.
    pub cancel: bool,
    /// Ask nothing.
    pub yes: bool,
}

/// Lets a datacenter leave, or takes that back.
pub(super) async fn remove(admin: &AdminClient, removal: Removal) -> Result<(), Failure> {
    let Removal { dc, wait, cancel, yes } = removal;
    let id = dc.get().into();
    if cancel {
        let decision = admin.cancel_removal(id).await.map_err(connect::failure)?;
        return print(format_args!("{dc} stays (decision {decision})."));
    }
    if !yes {
        confirm(format!(
            "{dc} is to leave the cluster: it refuses new requests of its clients, and its server ends when none of them holds \
             a lock. Go on?"
        ))
        .await?;
    }
    let decision = admin.remove_member(id).await.map_err(connect::failure)?;
    print(format_args!("{dc} leaves (decision {decision})."))?;
    if wait { gone(admin, dc).await } else { Ok(()) }
}

/// Waits until a datacenter has left, and says what it waits for.
async fn gone(admin: &AdminClient, dc: DcId) -> Result<(), Failure> {
    let (begun, mut told) = (Instant::now(), None);
    loop {
        let list = admin.members().await.map_err(connect::failure)?;
        let Some(member) = list.members.iter().find(|member| member.dc == u32::from(dc.get())) else {
            return print(format_args!("{dc} has left (decision {}).", list.decision));
        };
        if begun.elapsed() >= FIRST_CAUSE && told != Some(member.heard) {
            told = Some(member.heard);
            tell(waits_for(dc, member));
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Returns the cause of the wait.
fn waits_for(dc: DcId, member: &Member) -> String {
    let at_stake = member.at_stake.unwrap_or_default();
    if !member.heard {
        let since = at_stake::heard(&at_stake).map(|ago| format!(", for {ago} now")).unwrap_or_default();
        return format!(
            "geolock: waits for {dc}, which is not heard{since}: start it, and it goes on; or evict it if it is lost for good"
        );
    }
    format!(
        "geolock: waits until no client of {dc} holds a lock, and {dc} has returned its parts ({} locks have parts of others \
         there). `geolock locks --held`, with --connect to {dc}, lists the holders; `geolock member remove {} --cancel` there \
         takes the removal back",
        at_stake.away_locks,
        dc.get()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use geolock_api::proto::AtStake;

    #[test]
    fn the_cause_of_the_wait_is_a_holder_or_a_datacenter_that_is_down() {
        let dc = DcId::new(2).expect("small");
        let at_stake = AtStake { away_locks: 412, heard_ms: Some(12_500), ..AtStake::default() };
        let mut member = Member { dc: 2, heard: true, at_stake: Some(at_stake), ..Member::default() };
        let said = waits_for(dc, &member);
        assert!(
            said.contains("until no client of dc2 holds a lock") && said.contains("(412 locks"),
            "{said}"
        );
        assert!(said.contains("`geolock member remove 2 --cancel`"), "{said}");
        member.heard = false;
        let said = waits_for(dc, &member);
        assert!(said.contains("waits for dc2, which is not heard, for 12.5 s now: start it"), "{said}");
    }
}
