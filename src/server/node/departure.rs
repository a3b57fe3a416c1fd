//! The end of a server whose datacenter has left the cluster, or was evicted.
//!
//! One that was evicted stops at once. One that has left may still be needed: its end is decided, so it
//! serves nothing any more, but the other members may need its vote to let it go: a majority of two is both.
//! They end their links to it once they do not, and then it stops. If it hears of nobody for a while, nobody
//! needs it.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use crate::interdc::Links;
use crate::lock_server::{LockServerHandle, MembersView};
use crate::membership::{EndCause, ServerId};
use geolock_api::names::{DcId, DcSet};

/// How long a server that has left, and is started again, waits for links.
const LINKED_WITHIN: Duration = Duration::from_secs(5);
/// How long the other members have to let it go.
const PATIENCE: Duration = Duration::from_secs(60);

/// The reason why a datacenter is no member any more.
#[derive(Clone, Copy, Debug)]
pub(super) enum Departure {
    Left,
    Evicted,
    /// The others recovered the cluster by force without it.
    Lost,
}

/// Stops the server once its datacenter was evicted, or has left and the others need it no more. Returns
/// which it was; `None` if the server has stopped for another reason.
pub(super) async fn watch(
    (me, id): (DcId, ServerId),
    links: Links,
    mut view: watch::Receiver<MembersView>,
    server: LockServerHandle,
) -> Option<Departure> {
    // An earlier server with its slot may have ended, too: a server that joins learns that first.
    let end = |view: &MembersView| view.config.end_of(id).map(|past| past.cause);
    let has_ended = |view: &MembersView| end(view).is_some();
    let mut lost_to = links.lost_to();
    tokio::select! {
        ended = view.wait_for(has_ended) => if ended.is_err() {
            return None;
        },
        Ok(by) = lost_to.wait_for(Option::is_some) => {
            let by = by.map_or_else(String::new, |by| by.to_string());
            tracing::error!(dc = %me, %by, "the cluster was recovered by force without this datacenter: stopping. To return, \
                start with an empty data directory and --join; what no other member has is only in the present one");
            server.drain();
            return Some(Departure::Lost);
        }
        () = server.stopped() => return None,
    }
    let was_evicted = end(&view.borrow()).is_some_and(|cause| cause != EndCause::Left);
    if was_evicted {
        tracing::error!(dc = %me, "this datacenter was evicted: stopping. To return, start with an \
            empty data directory and --join; what no other member has is only in the present one");
        server.drain();
        return Some(Departure::Evicted);
    }
    tracing::info!(dc = %me, "this datacenter has left the cluster: stopping as soon as no other needs it");
    let mut peers = links.control_peers();
    // After a restart the links come first.
    let linked = peers.wait_for(|peers| *peers != DcSet::EMPTY);
    let _linked = timeout(LINKED_WITHIN, linked).await.is_ok();
    let released = peers.wait_for(|peers| *peers == DcSet::EMPTY);
    if timeout(PATIENCE, released).await.is_err() {
        tracing::warn!("other members still have links to this one: stopping all the same");
    }
    server.drain();
    Some(Departure::Left)
}
