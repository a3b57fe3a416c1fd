//! What the actor needs of the machine, the journal and the links: the seams where tests put their own.

use std::future::Future;

use bytes::Bytes;

use crate::names::DcId;
use crate::replica::{Checkpoint, Effect, Event, Position, Replica};
use crate::time::{Instant, Now};

/// The machine: [`Replica`], whose methods these are.
pub trait Machine: Send + 'static {
    fn handle(&mut self, now: Now, event: Event);
    fn poll_effect(&mut self) -> Option<Effect>;
    fn next_deadline(&self) -> Option<Instant>;
    fn checkpoint(&self) -> Checkpoint;
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

    fn checkpoint(&self) -> Checkpoint {
        Replica::checkpoint(self)
    }
}

/// Why a journal stopped.
pub type StoreError = Box<dyn std::error::Error + Send + Sync>;

/// What a journal says.
#[derive(Debug)]
pub enum StoreEvent {
    /// Every record up to this is durable.
    Durable(Position),
    CheckpointDone,
    /// Nothing becomes durable any more: the process has to stop.
    Failed(StoreError),
}

/// The journal. No call waits for the disk but the last.
pub trait Store: Send + 'static {
    fn append(&mut self, position: Position, record: &[u8]);
    /// Keeps this state once everything up to `position` is durable, and forgets what it covers.
    fn checkpoint(&mut self, position: Position, state: Vec<u8>);
    fn bytes_since_checkpoint(&self) -> u64;
    /// Bytes that wait for the disk.
    fn backlog_bytes(&self) -> u64;
    /// Finishes writing. Waits for the disk.
    fn close(self) -> Result<(), StoreError>;
}

/// What links say.
#[derive(Debug)]
pub enum LinkInput {
    Up { peer: DcId },
    Down { peer: DcId, reason: String },
    Received { peer: DcId, message: Bytes },
    Flushed { peer: DcId, messages: usize },
}

/// The links to other datacenters.
pub trait Links: Send + 'static {
    /// Queues a message on the link to `peer`. Urgent ones may overtake others. Without a link, or without room,
    /// it is lost, and the link goes down.
    fn send(&mut self, peer: DcId, urgent: bool, message: Vec<u8>);
    /// Closes the link to `peer`, telling it why.
    fn close(&mut self, peer: DcId, reason: &str);
    fn traffic(&self) -> Vec<LinkTraffic>;
    /// Sends what is queued, as far as a short time allows, and closes everything.
    fn shutdown(self) -> impl Future<Output = ()> + Send;
}

/// What went over the links to a peer since the start of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkTraffic {
    pub peer: DcId,
    /// Round trip in microseconds; `None` without a link.
    pub rtt_us: Option<u64>,
    pub messages_sent: u64,
    pub messages_received: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}
