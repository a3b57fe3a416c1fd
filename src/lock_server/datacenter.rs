//! Starts a datacenter: journal, links and machine, and the actor that runs them.

use std::net::UdpSocket;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::interdc_links::InterdcLinks;
use super::journal_inbox::JournalInbox;
use super::members::MembersPort;
use super::options::LockServerOptions;
use super::recover::recover;
use super::start::{LockServer, Parts, StartError};
use crate::interdc::{Interdc, InterdcConfig, InterdcError, Links};
use crate::journal::{Journal, JournalOptions, MemberNames, check_members, keep_members};
use crate::replica::{Position, Replica, ReplicaConfig};
use crate::telemetry::Board;

/// Most events of links that wait for the actor; when full, links are not read. A message can have 8 MiB.
pub(super) const LINK_EVENTS: usize = 64;

/// The configuration of a datacenter.
#[derive(Clone, Debug)]
pub struct DatacenterConfig {
    pub replica: ReplicaConfig,
    pub journal: JournalOptions,
    pub links: InterdcConfig,
    pub server: LockServerOptions,
    /// The members that found the cluster, with their names, ordered by id. They must be those of the data
    /// directory, or the start is refused. None for a server that joins: its directory has the decisions.
    pub founders: Option<MemberNames>,
}

/// A running datacenter.
pub struct Datacenter {
    pub server: LockServer,
    /// Its links, for others that use them.
    pub links: Links,
}

/// The content of a data directory.
struct Opened {
    store: Journal,
    machine: Replica,
    /// The position of the last record.
    last: Position,
    /// The directory is a restored copy.
    restored: bool,
    /// An operator has decided that this history is kept.
    resolved: bool,
}

/// Opens a data directory and recovers its content. The names of the members are written into it only after
/// its journal was found to belong to them: names from a mistaken configuration could never be removed again.
fn open(
    journal: JournalOptions,
    inbox: &Arc<JournalInbox>,
    replica: ReplicaConfig,
    founders: Option<&MemberNames>,
) -> Result<Opened, StartError> {
    let (dir, sink) = (journal.dir.clone(), Arc::clone(inbox));
    founders.map_or(Ok(()), |founders| check_members(&dir, founders))?;
    let (store, recovered) = Journal::open(journal, move |event| sink.put(event))?;
    let checkpoint = recovered.checkpoint.as_ref().map(|(_, state)| &state[..]);
    let numbered = |(position, record)| (Position(position), record);
    let records = recovered.records.map(|record| record.map(numbered));
    let (machine, last) = recover(replica, checkpoint, records)?;
    founders.map_or(Ok(()), |founders| keep_members(&dir, founders))?;
    let (restored, resolved) = (recovered.restored, recovered.resolved);
    Ok(Opened { store, machine, last, restored, resolved })
}

/// Starts a datacenter: opens its journal, recovers, dials the others. Blocks while it reads the journal.
///
/// `socket` is the UDP socket of its links, for callers that need to know all ports before anything starts;
/// without it, `links.listen` is bound. The server publishes its status on `board`, and gets decisions
/// through `members`.
pub fn start_datacenter(
    config: DatacenterConfig,
    socket: Option<UdpSocket>,
    members: MembersPort,
    board: Arc<Board>,
) -> Result<Datacenter, StartError> {
    let dc = config.replica.dc;
    let inbox = Arc::new(JournalInbox::default());
    let Opened { store, mut machine, last, restored, resolved } =
        open(config.journal, &inbox, config.replica, config.founders.as_ref())?;
    tracing::info!(%dc, position = last.0, "recovered");
    if restored {
        tracing::warn!(%dc, "the data directory is a restored copy: nothing is granted before every member was heard \
             and before leases it does not know must be over");
        machine.begin_restored();
    }
    if resolved {
        tracing::warn!(%dc, "an operator has decided that the history of this data directory is kept");
        if machine.resolve_fork() {
            tracing::error!(%dc, "this data directory lacks decisions about the members: it needs the state of \
                 another datacenter. If no other directory of this history is kept, stop the servers and keep \
                 that of a datacenter that lacks none");
        }
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
    let (lanes, links) = (interdc.links(), InterdcLinks::new(interdc));
    let parts = Parts { dc, machine, last, store, journal: inbox, links, link_events, board, members };
    Ok(Datacenter { server: LockServer::start(config.server, parts)?, links: lanes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::wire;
    use crate::replica::{AgreedConfig, LocalConfig, Record};
    use geolock_api::names::{ClusterId, DcId, DcSet, LeaseId};

    #[test]
    fn a_directory_names_no_members_before_its_journal_is_found_to_be_theirs() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let (dc, cluster) = (DcId::new(0).expect("0 is an id"), ClusterId::of("test"));
        let journal = || JournalOptions::new(temp.path().to_owned(), cluster, dc);
        let start = || {
            let agreed = AgreedConfig::new(cluster, DcSet::only(dc));
            let replica = ReplicaConfig::new(dc, agreed, LocalConfig::default());
            open(journal(), &Arc::default(), replica, Some(&vec![(dc, "fra".to_owned())]))
        };
        let members = temp.path().join("members");
        let (mut store, _) = Journal::open(journal(), |_| {}).expect("a new directory");
        let ended = Record::LeaseEnded { lease: LeaseId::new(dc, 7) };
        store.append(1, &wire::encode("record", &ended).expect("it is small"));
        store.close().expect("it is written");
        assert!(matches!(start(), Err(StartError::Recovery(_))), "the lease was never opened");
        assert!(!members.exists());

        let other = tempfile::tempdir().expect("a temporary directory");
        let journal = JournalOptions::new(other.path().to_owned(), cluster, dc);
        let replica =
            ReplicaConfig::new(dc, AgreedConfig::new(cluster, DcSet::only(dc)), LocalConfig::default());
        let opened = open(journal, &Arc::default(), replica, Some(&vec![(dc, "fra".to_owned())]));
        let Ok(opened) = opened else { panic!("an empty one is of its members") };
        opened.store.close().expect("it is open");
        assert!(other.path().join("members").exists());
    }
}
