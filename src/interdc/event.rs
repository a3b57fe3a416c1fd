//! What the rest of the server hears of its links.

use std::fmt;

use bytes::Bytes;

use super::error::DownReason;
use crate::names::DcId;

/// One link to a peer, from its `Up` to its `Down`. What is sent names the link it is meant for: a message that
/// was meant for one that has gone meanwhile must not travel on its successor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LinkId {
    peer: DcId,
    generation: u64,
}

impl LinkId {
    pub(super) fn new(peer: DcId, generation: u64) -> LinkId {
        LinkId { peer, generation }
    }

    pub fn peer(self) -> DcId {
        self.peer
    }
}

/// The independent streams in each direction of a link. Order is kept within a lane, not between them. What waits for room on
/// the way goes by lane: the first ones first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Lane {
    /// Small, and waited for.
    Urgent,
    /// In its order, and waited for.
    Bulk,
    /// Large, and able to wait.
    State,
}

impl Lane {
    pub(super) const COUNT: usize = 3;
    pub(super) const ALL: [Lane; Lane::COUNT] = [Lane::Urgent, Lane::Bulk, Lane::State];

    pub(super) fn index(self) -> usize {
        match self {
            Lane::Urgent => 0,
            Lane::Bulk => 1,
            Lane::State => 2,
        }
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lane::Urgent => "urgent",
            Lane::Bulk => "bulk",
            Lane::State => "state",
        })
    }
}

/// An event of a link. For one peer they are strictly ordered: `Up`, then what happens on that link, then its
/// `Down`, and only then the next `Up`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// Both sides know each other's cluster, datacenter and epoch, and speak protocol `version`.
    Up { peer: DcId, link: LinkId, version: u16 },
    /// The link is gone, with everything sent and not yet received.
    Down { peer: DcId, reason: DownReason },
    /// The peer sent this.
    Received { peer: DcId, lane: Lane, bytes: Bytes },
    /// That many of the messages sent left their queue: there is room again.
    Flushed { peer: DcId, lane: Lane, messages: usize },
}
