//! A datacenter put together: journal, links and machine, and the actor that runs them.

use std::net::UdpSocket;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::interdc_links::InterdcLinks;
use super::journal_inbox::JournalInbox;
use super::options::LockServerOptions;
use super::recover::recover;
use super::start::{LockServer, Parts, StartError};
use crate::interdc::{Interdc, InterdcConfig, InterdcError};
use crate::journal::{Journal, JournalOptions, MemberNames, keep_members};
use crate::replica::{Position, ReplicaConfig};
use crate::telemetry::Board;

/// Events of links that wait for the actor; beyond, links are not read. A message can have 8 MiB.
const LINK_EVENTS: usize = 64;

/// All that a datacenter is started with.
#[derive(Clone, Debug)]
pub struct DatacenterConfig {
    pub replica: ReplicaConfig,
    pub journal: JournalOptions,
    pub links: InterdcConfig,
    pub server: LockServerOptions,
    /// All members, by id, with their names: those of the data directory, or it is refused.
    pub members: MemberNames,
}

/// Starts a datacenter: opens its journal, recovers, dials the others. Blocks while it reads the journal.
///
/// `socket` is the UDP socket of its links, for whoever has to know all ports before anything starts; otherwise
/// `links.listen` is bound. `board` shows how the server is.
pub fn start_datacenter(
    config: DatacenterConfig,
    socket: Option<UdpSocket>,
    board: Arc<Board>,
) -> Result<LockServer, StartError> {
    let dc = config.replica.dc;
    let inbox = Arc::new(JournalInbox::default());
    let sink = Arc::clone(&inbox);
    let dir = config.journal.dir.clone();
    let (store, recovered) = Journal::open(config.journal, move |event| sink.put(event))?;
    // Before it is read with other members in mind.
    keep_members(&dir, &config.members)?;
    let checkpoint = recovered.checkpoint.as_ref().map(|(_, state)| &state[..]);
    let records = recovered.records.into_iter().map(|(position, record)| (Position(position), record));
    let (mut machine, last) = recover(config.replica, checkpoint, records)?;
    tracing::info!(%dc, position = last.0, "recovered");
    if recovered.restored {
        tracing::warn!(%dc, "the data directory is a restored copy: nothing is granted before every member was heard \
             and before leases it does not know must be over");
        machine.begin_restored();
    }
    if recovered.resolved {
        tracing::warn!(%dc, "an operator has decided that the history of this data directory is kept");
        machine.resolve_fork();
    }
    let (events, link_events) = mpsc::channel(LINK_EVENTS);
    let socket = match socket {
        Some(socket) => socket,
        None => {
            let address = config.links.listen;
            UdpSocket::bind(address).map_err(|source| InterdcError::Listen { address, source })?
        }
    };
    let interdc = Interdc::start_on(socket, config.links, events)?;
    let links = InterdcLinks::new(interdc);
    let parts = Parts { dc, machine, last, store, journal: inbox, links, link_events, board };
    LockServer::start(config.server, parts)
}
