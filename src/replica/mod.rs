//! Pure. One datacenter as one state machine: the rooms below composed.

pub mod call;
mod config;
mod effect;
mod event;
mod message;
mod record;

pub use config::{AgreedConfig, CLOCK_BOUND, LocalConfig, MIN_LEASE_TTL, ReplicaConfig};
pub use effect::{Effect, Notice, Report};
pub use event::Event;
pub use message::{Heartbeat, Message};
pub use crate::names::Position;
pub use record::{Checkpoint, LeaseRecord, Record, RequestRow};

use crate::time::{Instant, Now};

/// One datacenter.
pub struct Replica {}

/// Why state on disk is not that of this datacenter.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    #[error("record {} cannot follow what is before it: {why}", position.0)]
    Record { position: Position, why: String },
    #[error("the checkpoint is of a cluster with other members ({found:?}, configured: {configured:?})")]
    Members { found: crate::names::DcSet, configured: crate::names::DcSet },
}

impl Replica {
    /// The datacenter that `checkpoint` and the records after it amount to, restarted at `now`. Both are empty
    /// at its very first start.
    pub fn recover(
        _config: ReplicaConfig,
        _now: Now,
        _checkpoint: Option<Checkpoint>,
        _records: impl IntoIterator<Item = (Position, Record)>,
    ) -> Result<Replica, RecoveryError> {
        unimplemented!()
    }

    /// First fires whatever had expired by `now`, then the event. `now.mono` never goes back.
    pub fn handle(&mut self, _now: Now, _event: Event) {
        unimplemented!()
    }

    /// The next effect, to be performed in this order, after each [`Replica::handle`] until there is none.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        unimplemented!()
    }

    /// When to call [`Replica::handle`] with [`Event::Tick`] if nothing else happens before.
    pub fn next_deadline(&self) -> Option<Instant> {
        unimplemented!()
    }

    /// All that the records persisted so far amount to. To be kept once they are durable.
    pub fn checkpoint(&self) -> Checkpoint {
        unimplemented!()
    }

    /// Asserts the invariants that one datacenter can see by itself. Panics with what is broken.
    pub fn check(&self) {
        unimplemented!()
    }
}
