//! A founder that has forgotten the members that joined later.
//!
//! A server that founded its cluster alone begins a cluster of its own if its data directory is lost, because
//! it does not know of the others. Locks that it grants may then be held elsewhere. But the others still dial
//! it as a member, so a server with a new directory, or a restored copy, stops as soon as one of them does. A
//! file in the directory prevents another start. Until the first of them dials, after about a second, it
//! grants: only the others can distinguish a lost directory from a new cluster.
//!
//! A directory with data is trusted: a foreign server with an error in its configuration stops no server.

use std::fs;
use std::future::pending;
use std::path::{Path, PathBuf};

use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::NodeError;
use crate::interdc::Links;
use crate::journal::{is_begun, is_restored_copy};
use crate::lock_server::{LockServerHandle, MembersView};
use crate::runtime::tasks::joined;
use crate::server::config::Config;
use geolock_api::names::DcId;

/// The file that says which member was not known here.
const FILE: &str = "unknown-member";

/// The watch over one server.
pub(super) struct LostHistory {
    /// The directory, if the server founds its cluster alone, with a directory that may lack decisions.
    suspect: Option<PathBuf>,
}

/// Refuses a directory in which a member was found to be unknown.
pub(super) fn check(config: &Config) -> Result<(), NodeError> {
    let by = fs::read_to_string(config.journal.dir.join(FILE));
    by.map_or(Ok(()), |by| Err(failure(&config.journal.dir, by.trim())))
}

fn failure(dir: &Path, by: &str) -> NodeError {
    NodeError::LostHistory { by: by.to_owned(), file: dir.join(FILE) }
}

impl LostHistory {
    pub(super) fn of(config: &Config, has_joined: bool) -> LostHistory {
        let dir = &config.journal.dir;
        let is_suspect =
            !has_joined && config.members.len() == 1 && (!is_begun(dir) || is_restored_copy(dir));
        LostHistory { suspect: is_suspect.then(|| dir.clone()) }
    }

    /// Stops the server if the decisions of the cluster are lost here, and returns the reason. Returns when
    /// the server has stopped.
    pub(super) async fn watch(
        self,
        links: Links,
        view: watch::Receiver<MembersView>,
        server: LockServerHandle,
    ) -> Option<NodeError> {
        let (dir, by) = tokio::select! {
            found = find(self.suspect, links, view) => found,
            () = server.stopped() => return None,
        };
        tracing::error!(%by, "a member of the cluster is not known here: stopping");
        server.drain();
        let failure = failure(&dir, &by.to_string());
        joined(spawn_blocking(move || remember(&dir, by)).await);
        Some(failure)
    }
}

/// Waits until another datacenter takes this server for a member that knows it, and it knows itself only.
async fn find(
    suspect: Option<PathBuf>,
    links: Links,
    mut view: watch::Receiver<MembersView>,
) -> (PathBuf, DcId) {
    let Some(dir) = suspect else { return pending().await };
    let is_alone = |view: &MembersView| view.config.slots().members().count() == 1;
    if view.wait_for(is_alone).await.is_err() {
        return pending().await;
    }
    // The id of a witness is used once: its server was removed, and may not know that.
    let was_witness = |view: &MembersView, dc| view.config.witnesses().has_id(dc);
    let is_unknown = |view: &MembersView, dc| is_alone(view) && !was_witness(view, dc);
    let mut stranger = links.stranger();
    loop {
        let found = *stranger.borrow_and_update();
        if let Some(by) = found.filter(|by| is_unknown(&view.borrow(), *by)) {
            return (dir, by);
        }
        if stranger.changed().await.is_err() {
            return pending().await;
        }
    }
}

fn remember(dir: &Path, by: DcId) {
    // The next start finds out again if this fails.
    if let Err(error) = fs::write(dir.join(FILE), format!("{by}\n")) {
        tracing::error!(%error, dir = %dir.display(), "cannot write the file {FILE}");
    }
}
