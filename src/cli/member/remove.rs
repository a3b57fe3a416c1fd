//! `geolock member remove`: a datacenter that leaves in order.

use geolock_client::AdminClient;
use tokio::time::sleep;

use super::LOOK_EVERY;
use crate::cli::connect;
use crate::cli::failure::Failure;
use crate::cli::print::print;
use geolock_api::names::DcId;

/// Lets a datacenter leave, or takes that back.
pub(super) async fn remove(admin: &AdminClient, dc: DcId, wait: bool, cancel: bool) -> Result<(), Failure> {
    if cancel {
        let decision = admin.cancel_removal(dc.get().into()).await.map_err(connect::failure)?;
        return print(format_args!("{dc} stays (decision {decision})."));
    }
    let decision = admin.remove_member(dc.get().into()).await.map_err(connect::failure)?;
    print(format_args!("{dc} leaves (decision {decision})."))?;
    if wait { gone(admin, dc).await } else { Ok(()) }
}

/// Waits until a datacenter has left.
async fn gone(admin: &AdminClient, dc: DcId) -> Result<(), Failure> {
    loop {
        let list = admin.members().await.map_err(connect::failure)?;
        if list.members.iter().all(|member| member.dc != u32::from(dc.get())) {
            return print(format_args!("{dc} has left (decision {}).", list.decision));
        }
        sleep(LOOK_EVERY).await;
    }
}
