//! Events of links for the rest of the server.

use std::fmt;

use bytes::Bytes;

use super::error::DownReason;
use crate::base::wire::CONTROL_VERSION;
use geolock_api::names::DcId;

/// One link to a peer, from its `Up` to its `Down`. A message names the link it is meant for: it must not be
/// sent on the successor of that link.
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

/// The independent streams in each direction of a link. Order is kept within a lane, not between lanes. When
/// the path is full, small messages are sent first: [`Lane::Urgent`], [`Lane::Control`], [`Lane::Bulk`],
/// [`Lane::State`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Lane {
    /// Small messages that are waited for.
    Urgent,
    /// Ordered messages that are waited for.
    Bulk,
    /// Large messages that can wait.
    State,
    /// Frames of the control group, on links that speak [`CONTROL_VERSION`] or later. A frame that finds its
    /// queue full is lost, and the link stays.
    Control,
}

impl Lane {
    pub(super) const COUNT: usize = 4;
    /// All lanes, each at its number on the wire.
    pub(super) const ALL: [Lane; Lane::COUNT] = [Lane::Urgent, Lane::Bulk, Lane::State, Lane::Control];

    /// Returns the lanes of a link that speaks this version.
    pub(super) fn of_version(version: u16) -> &'static [Lane] {
        if version >= CONTROL_VERSION { &Lane::ALL } else { &Lane::ALL[..Lane::COUNT - 1] }
    }

    pub(super) fn index(self) -> usize {
        match self {
            Lane::Urgent => 0,
            Lane::Bulk => 1,
            Lane::State => 2,
            Lane::Control => 3,
        }
    }

    /// Returns the priority of its stream: higher ones are sent first.
    pub(super) fn priority(self) -> i32 {
        match self {
            Lane::Urgent => 4,
            Lane::Control => 3,
            Lane::Bulk => 2,
            Lane::State => 1,
        }
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lane::Urgent => "urgent",
            Lane::Bulk => "bulk",
            Lane::State => "state",
            Lane::Control => "control",
        })
    }
}

/// An event of a link. Events of one peer are strictly ordered: `Up`, then the events of that link, then its
/// `Down`, and only then the next `Up`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// The link is up: both sides know each other's cluster, datacenter and epoch, and speak protocol
    /// `version`.
    Up { peer: DcId, link: LinkId, version: u16 },
    /// The link is down. Messages that were sent and not yet received are lost.
    Down { peer: DcId, reason: DownReason },
    /// A message from the peer. Frames of [`Lane::Control`] go to
    /// [`InterdcConfig::control`](super::InterdcConfig::control) instead, if that is set, and are not
    /// reported as flushed.
    Received { peer: DcId, lane: Lane, bytes: Bytes },
    /// That many sent messages have left their queue, which has room again.
    Flushed { peer: DcId, lane: Lane, messages: usize },
}
