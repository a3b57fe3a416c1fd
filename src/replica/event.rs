//! All inputs of a datacenter.

use crate::base::access_digests::AccessDigests;
use crate::base::capacity::{DiskSpace, Load};
use crate::membership::{Command, Index, Lineage, Proposal, RecoveryPlan};
use crate::replica::call::{Call, CallId, ClientId, SessionId};
use crate::replica::message::Message;
use geolock_api::names::{DcId, Position};

/// An input of [`super::Replica::handle`]. The passing of time is not an event of its own: every call carries
/// the time, and [`Event::Tick`] carries nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant explains its fields")]
pub enum Event {
    /// A deadline has passed.
    Tick,
    /// The journal is durable up to this position.
    Durable { position: Position },
    /// How much room the journal's disk has. Initially [`DiskSpace::Enough`].
    Disk { room: DiskSpace },
    /// Tells the machine if this server keeps up with the calls of its clients. Initially it does.
    Load { load: Load },
    /// The digests of the files that say what clients may do, as read at the start or since.
    AccessRules { digests: AccessDigests },
    /// A link to `peer` is up: both sides have checked cluster and epoch, and agreed on `version` of the
    /// protocol.
    LinkUp { peer: DcId, version: u16 },
    /// The link to `peer` is down. All messages that were sent and not yet received are lost. Comes before
    /// the next [`Event::LinkUp`] of that peer.
    LinkDown { peer: DcId },
    /// `peer` sent this message on its link.
    Received { peer: DcId, message: Message },
    /// The link to `peer` took `messages` sent messages off its queue, `batches` of them with entries, so the
    /// queue has room again.
    Flushed { peer: DcId, messages: usize, batches: usize },
    /// A client made a call. `call`: the address of the reply.
    Client { call: CallId, client: ClientId, request: Call },
    /// A client's session is closed: replies and notices to it no longer arrive.
    SessionClosed { session: SessionId },
    /// The control group of this lineage has made this decision, which has this number. Decisions come in
    /// their order, and may come again.
    Decided { lineage: Lineage, index: Index, proposal: Box<Proposal> },
    /// An operator, or a server that joins, wants this command proposed to the control group.
    Propose { command: Box<Command> },
    /// An operator says that the lost members of this plan are gone for good, and the survivors go on.
    Recover { plan: RecoveryPlan },
    /// An operator takes the leave of this datacenter back.
    CancelLeave,
    /// The edge wants a checkpoint. [`super::Effect::Checkpoint`] follows, perhaps some steps later.
    Checkpoint,
    /// This server was evicted, the cluster was recovered without it, or another server runs with its
    /// identity: all leases of its clients end, and it serves nobody any more. The machine knows of an
    /// eviction from the decisions, too, if it gets them.
    Ended,
    /// The server shuts down: it opens no leases and accepts no new acquires and transactions. Never ends.
    Drain,
}

impl Event {
    /// Returns true if this event changes nothing but locks, and what clients have of them, unless it appends
    /// a record.
    #[inline]
    pub(super) fn concerns_only_locks(&self) -> bool {
        matches!(self, Event::Client { request: Call::Acquire(_) | Call::Release { .. }, .. })
    }
}
