//! The links as the actor sees them: one per peer, where [`Interdc`] has a series of links.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::ports::{LinkInput, Links};
use crate::interdc::{Interdc, Lane, LinkEvent, LinkId, PeerStats};
use crate::replica::Urgency;
use crate::telemetry::LinkFigures;
use geolock_api::names::DcId;

/// Maps peers to their current links.
pub(super) struct InterdcLinks {
    interdc: Interdc,
    peers: BTreeMap<DcId, Peer>,
}

#[derive(Default)]
struct Peer {
    /// The last link whose start the actor has heard of.
    link: Option<LinkId>,
    connects: u64,
    /// Messages sent and not flushed.
    queued: u64,
}

impl InterdcLinks {
    pub(super) fn new(interdc: Interdc) -> InterdcLinks {
        InterdcLinks { interdc, peers: BTreeMap::new() }
    }

    fn link(&self, peer: DcId) -> Option<LinkId> {
        self.peers.get(&peer)?.link
    }

    fn figures_of(&self, stats: &PeerStats) -> LinkFigures {
        let peer = self.peers.get(&stats.peer);
        LinkFigures {
            peer: stats.peer,
            messages_sent: stats.messages_sent(),
            messages_received: stats.messages_received(),
            bytes_sent: stats.wire.bytes_sent,
            bytes_received: stats.wire.bytes_received,
            queued: peer.map_or(0, |peer| peer.queued),
            connects: peer.map_or(0, |peer| peer.connects),
            rtt: stats.rtt,
        }
    }
}

impl Links for InterdcLinks {
    type Event = LinkEvent;

    fn read(&mut self, event: LinkEvent) -> LinkInput {
        match event {
            LinkEvent::Up { peer, link, version } => {
                tracing::debug!(%peer, version, "protocol version agreed");
                let known = self.peers.entry(peer).or_default();
                *known = Peer { link: Some(link), connects: known.connects + 1, queued: 0 };
                LinkInput::Up { peer, version }
            }
            LinkEvent::Down { peer, .. } => {
                let known = self.peers.entry(peer).or_default();
                (known.link, known.queued) = (None, 0);
                LinkInput::Down { peer }
            }
            LinkEvent::Received { peer, lane: _, bytes } => LinkInput::Received { peer, message: bytes },
            LinkEvent::Flushed { peer, lane, messages } => {
                let known = self.peers.entry(peer).or_default();
                known.queued = known.queued.saturating_sub(messages as u64);
                let batches = if lane == Lane::Bulk { messages } else { 0 };
                LinkInput::Flushed { peer, messages, batches }
            }
        }
    }

    fn send(&mut self, peer: DcId, urgency: Urgency, message: Vec<u8>) {
        let Some(known) = self.peers.get_mut(&peer) else { return };
        let Some(link) = known.link else { return };
        let lane = match urgency {
            Urgency::Urgent => Lane::Urgent,
            Urgency::InOrder => Lane::Bulk,
            Urgency::Background => Lane::State,
        };
        match self.interdc.send(link, lane, Bytes::from(message)) {
            Ok(()) => known.queued += 1,
            // The end of the link is reported by an event.
            Err(error) => tracing::debug!(%peer, %error, "a message was not sent"),
        }
    }

    fn close(&mut self, peer: DcId, reason: &str) {
        if let Some(link) = self.link(peer) {
            self.interdc.close(link, reason);
        }
    }

    fn take_bulk(&mut self, takes: bool) {
        self.interdc.take_bulk(takes);
    }

    fn add_peer(&mut self, peer: DcId, address: &str, generation: u16) {
        self.interdc.links().add_peer(peer, address, generation);
    }

    fn figures(&self) -> Vec<LinkFigures> {
        self.interdc.stats().peers.iter().map(|stats| self.figures_of(stats)).collect()
    }

    fn have_failed(&self) -> bool {
        self.interdc.has_failed()
    }

    async fn shutdown(self) {
        self.interdc.shutdown().await;
    }
}
