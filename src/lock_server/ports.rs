//! What the actor needs of the machine, the journal and the links: the seams where tests put their own.

use std::future::Future;

use bytes::Bytes;

use crate::histogram::Histogram;
use crate::journal::{Figures, Journal, JournalError};
use crate::names::DcId;
use crate::replica::{Effect, Event, Position, Replica, Urgency};
use crate::telemetry::LinkFigures;
use crate::time::{Instant, Now};

/// The machine: [`Replica`], whose methods these are.
pub trait Machine: Send + 'static {
    fn handle(&mut self, now: Now, event: Event);
    fn poll_effect(&mut self) -> Option<Effect>;
    fn next_deadline(&self) -> Option<Instant>;
}

impl Machine for Replica {
    fn handle(&mut self, now: Now, event: Event) {
        Replica::handle(self, now, event);
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        Replica::poll_effect(self)
    }

    fn next_deadline(&self) -> Option<Instant> {
        Replica::next_deadline(self)
    }
}

/// The journal: [`Journal`], whose methods these are. No call waits for the disk but the last.
pub trait Store: Send + 'static {
    fn append(&mut self, position: Position, record: &[u8]);
    /// Keeps this state once everything up to `position` is durable, and forgets what it covers.
    fn checkpoint(&mut self, position: Position, state: Vec<u8>);
    fn figures(&self) -> Figures;
    fn sync_times(&self) -> Histogram;
    /// Makes everything durable and stops.
    fn close(self) -> Result<(), JournalError>;
}

impl Store for Journal {
    fn append(&mut self, position: Position, record: &[u8]) {
        Journal::append(self, position.0, record);
    }

    fn checkpoint(&mut self, position: Position, state: Vec<u8>) {
        Journal::checkpoint(self, position.0, state);
    }

    fn figures(&self) -> Figures {
        Journal::figures(self)
    }

    fn sync_times(&self) -> Histogram {
        Journal::sync_times(self)
    }

    fn close(self) -> Result<(), JournalError> {
        Journal::close(self)
    }
}

/// What a link says. Of the messages that left its queue, so many `batches` were entries.
#[derive(Debug)]
pub enum LinkInput {
    /// `version`: of the protocol, as agreed for this link.
    Up {
        peer: DcId,
        version: u16,
    },
    Down {
        peer: DcId,
    },
    Received {
        peer: DcId,
        message: Bytes,
    },
    Flushed {
        peer: DcId,
        messages: usize,
        batches: usize,
    },
}

/// The links to other datacenters.
pub trait Links: Send + 'static {
    /// What they put into the actor's mailbox.
    type Event: Send + 'static;

    /// What this says. Called once for each event, in their order: what is sent goes to the link that was up last.
    fn read(&mut self, event: Self::Event) -> LinkInput;
    /// Queues a message on the link to `peer`. Urgent ones may overtake others. Without a link, or without room,
    /// it is lost, and the link goes down.
    fn send(&mut self, peer: DcId, urgency: Urgency, message: Vec<u8>);
    /// Closes the link to `peer`, telling it why.
    fn close(&mut self, peer: DcId, reason: &str);
    /// Whether messages that are not urgent are received: not while the disk is behind, as they would be written.
    fn take_bulk(&mut self, takes: bool);
    fn figures(&self) -> Vec<LinkFigures>;
    /// Whether there can be no links any more, until a restart.
    fn have_failed(&self) -> bool;
    /// Sends what is queued, as far as a short time allows, and closes everything.
    fn shutdown(self) -> impl Future<Output = ()> + Send;
}
