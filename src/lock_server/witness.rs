//! Starts a witness: the actor of a lock server around a machine that only votes.

use std::net::UdpSocket;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::clock;
use super::datacenter::{Datacenter, LINK_EVENTS};
use super::interdc_links::InterdcLinks;
use super::journal_inbox::JournalInbox;
use super::members::MembersPort;
use super::options::LockServerOptions;
use super::start::{LockServer, Parts, StartError};
use crate::base::wire;
use crate::interdc::{Interdc, InterdcConfig};
use crate::journal::{Journal, JournalOptions};
use crate::replica::{Position, Record, Witness, WitnessConfig};
use crate::telemetry::Board;

/// The configuration of a witness.
#[derive(Clone, Debug)]
pub struct WitnessServerConfig {
    pub witness: WitnessConfig,
    pub journal: JournalOptions,
    pub links: InterdcConfig,
    pub server: LockServerOptions,
}

/// Starts a witness: opens its journal, recovers, dials the members. Blocks while it reads the journal.
pub fn start_witness(
    config: WitnessServerConfig,
    socket: UdpSocket,
    members: MembersPort,
    board: Arc<Board>,
) -> Result<Datacenter, StartError> {
    let dc = config.witness.dc;
    let inbox = Arc::new(JournalInbox::default());
    let sink = Arc::clone(&inbox);
    let (store, recovered) = Journal::open(config.journal, move |event| sink.put(event))?;
    let mut records = Vec::new();
    for record in recovered.records {
        let (position, bytes) = record?;
        let position = Position(position);
        let record = wire::decode::<Record>("journal record", &bytes);
        records.push((position, record.map_err(|source| StartError::Record { position, source })?));
    }
    let last = records.last().map_or(Position(0), |(position, _)| *position);
    let machine = Witness::recover(config.witness, clock::now(), records)?;
    tracing::info!(%dc, position = last.0, "recovered, as a witness");
    let (events, link_events) = mpsc::channel(LINK_EVENTS);
    let interdc = Interdc::start_on(socket, config.links, events)?;
    let (lanes, links) = (interdc.links(), InterdcLinks::new(interdc));
    let parts = Parts { dc, machine, last, store, journal: inbox, links, link_events, board, members };
    Ok(Datacenter { server: LockServer::start(config.server, parts)?, links: lanes })
}
