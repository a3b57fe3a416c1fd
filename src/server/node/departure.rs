//! The end of a server whose datacenter has left the cluster, or was evicted.
//!
//! An evicted server ends the leases of its clients and stops at once, and joins again if the policy lets it.
//! A server that has left may still be needed: it no longer serves, but the other members may need its vote
//! for its own departure, because a majority of two is both. They end their links to it once they do not need
//! it, and then it stops. If it hears no member for a while, none needs it.

use std::future::pending;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::interdc::Links;
use crate::lock_server::{LockServerHandle, MembersInput, MembersView};
use crate::membership::ServerId;
use crate::pki::Credentials;
use crate::runtime::tasks::joined;
use crate::server::members::{ServerEnd, ask_for_end};
use geolock_api::names::{DcId, DcSet};

/// How long a server that has left, and is started again, waits for links.
const LINKED_WITHIN: Duration = Duration::from_secs(5);
/// How long the other members have to let it go.
const PATIENCE: Duration = Duration::from_secs(60);

/// The reason why a datacenter is no member any more.
#[derive(Clone, Copy, Debug)]
pub enum Departure {
    Left,
    Evicted,
    /// It was evicted, and joins again at its next start.
    Returns,
    /// The others recovered the cluster by force without it.
    Lost,
    /// Another server runs with its identity: a copy of its machine or data directory.
    RunsTwice,
}

/// A server that may cease to be a member.
pub(super) struct Departing {
    pub me: DcId,
    pub id: ServerId,
    pub data_dir: PathBuf,
    pub tls: watch::Receiver<Credentials>,
    pub links: Links,
    pub view: watch::Receiver<MembersView>,
    pub server: LockServerHandle,
    pub inputs: mpsc::Sender<MembersInput>,
}

/// Asks the members that refuse a link because this server is none of theirs, until one answers that it has
/// ended.
pub(super) async fn told_by_refusals(
    links: &Links,
    tls: &watch::Receiver<Credentials>,
    id: ServerId,
) -> ServerEnd {
    let mut refusals = links.disowned_by();
    loop {
        if refusals.changed().await.is_err() {
            return pending().await;
        }
        let Some(address) = refusals.borrow_and_update().clone() else { continue };
        let credentials = tls.borrow().clone();
        match ask_for_end(&credentials, &address, id).await {
            Ok(Some(end)) => return end,
            // It may have fewer decisions than this server.
            Ok(None) => tracing::debug!(address, "refused by a member that knows no end of this one"),
            Err(error) => tracing::debug!(%error, "refused, without an answer to why"),
        }
    }
}

/// Waits until a member says this of this server. Returns which.
async fn told_by(said: &mut watch::Receiver<Option<DcId>>) -> Option<DcId> {
    let by = said.wait_for(Option::is_some).await.map(|by| *by);
    match by {
        Ok(by) => by,
        Err(_) => pending().await,
    }
}

impl Departing {
    /// Stops the server once its datacenter was evicted, or has left and the others need it no more. Returns
    /// which it was; `None` if the server has stopped for another reason.
    pub(super) async fn watch(self) -> Option<Departure> {
        let (mut lost_to, mut runs_twice) = (self.links.lost_to(), self.links.runs_twice());
        let end = tokio::select! {
            end = self.decided() => end?,
            end = told_by_refusals(&self.links, &self.tls, self.id) => end,
            by = told_by(&mut lost_to) => return Some(self.lost(by).await),
            by = told_by(&mut runs_twice) => return Some(self.runs_twice(by).await),
            () = self.server.stopped() => return None,
        };
        match end.was_evicted() {
            true => Some(self.evicted(&end).await),
            false => Some(self.left().await),
        }
    }

    /// Waits for the decision that ends this member. `None` if there are no more decisions.
    async fn decided(&self) -> Option<ServerEnd> {
        // An earlier server with its slot may have ended, too: a server that joins learns that first.
        let has_ended = |view: &MembersView| view.config.slots().end_of(self.id).is_some();
        let mut view = self.view.clone();
        let view = view.wait_for(has_ended).await.ok()?;
        ServerEnd::of(&view.config, self.id)
    }

    async fn evicted(&self, end: &ServerEnd) -> Departure {
        let me = self.me;
        let returns = match end.returning() {
            Some(note) => {
                let dir = self.data_dir.clone();
                let noted = joined(spawn_blocking(move || note.remember(&dir)).await);
                let failed =
                    |error: &_| tracing::error!(dc = %me, %error, "this server cannot join again by itself");
                noted.inspect_err(failed).is_ok()
            }
            None => false,
        };
        if returns {
            tracing::warn!(dc = %me, "this datacenter was evicted: stopping, to join again with an empty data directory");
        } else {
            tracing::error!(dc = %me, "this datacenter was evicted: stopping. To return, start with an \
                empty data directory and --join; what no other member has is only in the present one");
        }
        self.end().await;
        if returns { Departure::Returns } else { Departure::Evicted }
    }

    /// Others may be granted what the clients of this server hold: it ends their leases before anything else,
    /// and stops once no lock is held any more.
    async fn end(&self) {
        // An error means that the server has stopped.
        let _ended = self.inputs.send(MembersInput::Ended).await;
        self.server.drain();
    }

    async fn lost(&self, by: Option<DcId>) -> Departure {
        let by = by.map_or_else(String::new, |by| by.to_string());
        tracing::error!(dc = %self.me, %by, "the cluster was recovered by force without this datacenter: stopping. \
            To return, start with an empty data directory and --join; what no other member has is only in the present one");
        self.end().await;
        Departure::Lost
    }

    async fn runs_twice(&self, by: Option<DcId>) -> Departure {
        let by = by.map_or_else(String::new, |by| by.to_string());
        tracing::error!(dc = %self.me, %by, "two servers run at the same time with the identity of this one: its data \
            directory or machine was copied. Both stop: others may be granted what clients of this one hold. Remove \
            the copy, and start the other one");
        self.end().await;
        Departure::RunsTwice
    }

    /// Waits until the others need this server no more.
    async fn left(&self) -> Departure {
        tracing::info!(dc = %self.me, "this datacenter has left the cluster: stopping as soon as no other needs it");
        let mut peers = self.links.control_peers();
        // After a restart the links come first.
        let linked = peers.wait_for(|peers| *peers != DcSet::EMPTY);
        let _linked = timeout(LINKED_WITHIN, linked).await.is_ok();
        let released = peers.wait_for(|peers| *peers == DcSet::EMPTY);
        if timeout(PATIENCE, released).await.is_err() {
            tracing::warn!("other members still have links to this one: stopping all the same");
        }
        self.server.drain();
        Departure::Left
    }
}
