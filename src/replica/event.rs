//! All that can happen to a datacenter.

use crate::names::{DcId, Position};
use crate::replica::call::{Call, CallId, SessionId};
use crate::replica::message::Message;
use crate::room::{Load, Room};

/// An input of [`super::Replica::handle`]. Passing time is none: every event brings the time with it, and
/// [`Event::Tick`] brings nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A deadline has come.
    Tick,
    /// The journal is durable up to here.
    Durable { position: Position },
    /// How much room the journal's disk has now; at first it is [`Room::Enough`].
    Disk { room: Room },
    /// Whether this datacenter keeps up with what clients ask; at first it does.
    Load { load: Load },
    /// A link to `peer` is up: both sides know each other's cluster, epoch and version.
    LinkUp { peer: DcId },
    /// It is gone, with everything sent and not yet received. Comes before the next [`Event::LinkUp`].
    LinkDown { peer: DcId },
    /// `peer` sent this on its link.
    Received { peer: DcId, message: Message },
    /// The link to `peer` took that many of the messages sent off its queue, `batches` of them entries: there is room again.
    Flushed { peer: DcId, messages: usize, batches: usize },
    /// A client asks.
    Client { call: CallId, request: Call },
    /// A client's session is closed: nothing sent to it arrives any more.
    SessionClosed { session: SessionId },
    /// State shall go to disk. Answered by [`super::Effect::Checkpoint`], perhaps some steps later.
    Checkpoint,
    /// Shutting down: acquire nothing more.
    Drain,
}
