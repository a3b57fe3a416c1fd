//! What datacenters say to each other on a link, after the link's own hello.
//!
//! Wire types: enum variants are encoded by position (append only), golden bytes in `wire.rs`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::causal_log::Entry;
use crate::crdt::VersionVector;
use crate::keys::Key;
use crate::names::{DcId, DcSet, LockName};
use crate::replica::call::HolderInfo;
use crate::replica::terms::Terms;
use crate::replica::{Floor, NotServing, StatePiece, SumAt};
use crate::store_state::Digest;
use crate::time::Timestamp;

/// A message between two datacenters. On one link, entries arrive in the order sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// [`Message::Heartbeat`] from or for a peer that knows version 1 only.
    HeartbeatV1(#[serde(with = "super::v1::heartbeat")] Box<Heartbeat>),
    /// [`Message::Entries`] from or for a peer that knows version 1 only.
    EntriesV1(#[serde(with = "crate::causal_log::v1::entries")] Vec<Arc<Entry>>),
    /// "I hold entries back for want of others; this is what I have."
    HeldBack { durable: VersionVector },
    /// Who holds these locks at your place?
    AskHolders { query: u64, locks: Vec<LockName> },
    /// By lock, in the order asked.
    Holders { query: u64, holders: Vec<Vec<HolderInfo>> },
    /// A round of anti-entropy: this is what I have and, if I can say so at this vector, the sum over what readers see.
    Compare { durable: VersionVector, sum: Option<u128> },
    /// "At this vector, which was yours too, I show something else": bucket by bucket.
    Digests { durable: VersionVector, digest: Digest },
    /// A client here wants to take that much more from a bounded counter than this datacenter has rights to.
    AskRights { key: Key, amount: u64 },
    /// Entries that the receiver lacks are not kept here any more: it may ask for the state.
    TooFarBehind { truncated: VersionVector },
    /// So many more pieces of the sender's state, please; `anew`: from its beginning, as it is now.
    AskState { anew: bool, more: u32 },
    /// The next piece of it.
    State(StatePiece),
    /// How much of the log of `of`, which asks, do you have? Goes to everybody, by whatever way. `run` names the run of
    /// `of`, `round` rises.
    AskLog { of: DcId, run: u64, round: u64 },
    /// `by` has that much of it.
    KnowsLog { of: DcId, run: u64, by: DcId, seq: u64 },
    /// The first message on a link, and one every `heartbeat`.
    Heartbeat(Box<Heartbeat>),
    /// In causal order.
    Entries(Vec<Arc<Entry>>),
    /// Sums over what the sender showed, and over who owned which part, at vectors that it passed, the latest first.
    Sums { shown: Vec<SumAt>, owned: Vec<SumAt> },
    /// The sender has restarted and stamps nothing yet: this is its wall clock, in milliseconds since the Unix epoch. What it has,
    /// with the heads of these logs, as in [`Heartbeat`]: it passes entries on before it can send one.
    WallClock { millis: u64, durable: VersionVector, heads: Vec<(DcId, u64)> },
}

/// What a datacenter says of itself and of others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The sender's hybrid clock; strictly increasing, so it also numbers its heartbeats.
    pub clock: Timestamp,
    /// What the sender has, durably.
    pub durable: VersionVector,
    /// The peers that the sender has a link to.
    pub linked: DcSet,
    /// What the sender last heard of others, directly or not, and of the receiver directly: the clock of that heartbeat, and
    /// how many milliseconds ago.
    pub heard: Vec<(DcId, Timestamp, u32)>,
    /// What further commits of each datacenter will have seen, as far as the sender knows.
    pub floors: Vec<Floor>,
    /// Those who do not serve, and why: the sender, and others by the heartbeats in `heard`.
    pub not_serving: Vec<(DcId, NotServing)>,
    /// What all members must have in common.
    pub terms: Terms,
    /// [`Entry::hash`] of the last entries in `durable`, of those whose hash the sender knows.
    pub heads: Vec<(DcId, u64)>,
    /// The sender has stopped: this entry of the log of this datacenter is not the same everywhere.
    pub fork: Option<(DcId, u64)>,
    /// The members that the sender knows to know version 2.
    pub upgraded: DcSet,
    /// By how many milliseconds the sender's tokens are ahead of its clock.
    pub lead_ms: u64,
    /// The highest reading that the sender heard of the receiver before this link, and how many milliseconds ago: for one that has
    /// lost its disk. With what its tokens may have been ahead by: as much as those of the sender.
    pub yours: Option<(Timestamp, u64)>,
    /// The durable vectors of members that the receiver has no link to, as they told the sender.
    pub acknowledged: Vec<(DcId, VersionVector)>,
}

/// How a message travels. Order is kept among those of the same urgency only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// It may overtake all others on the way: small, and what failure detection rests on.
    Urgent,
    /// Entries: in their order. Locks travel in them.
    InOrder,
    /// A state transfer: as much as the way carries beside the others.
    Background,
}

impl Message {
    /// The same for a peer that knows version 1 only.
    pub fn for_version_1(&self) -> Option<Message> {
        match self {
            Message::Heartbeat(heartbeat) => Some(Message::HeartbeatV1(heartbeat.clone())),
            Message::Entries(entries) => Some(Message::EntriesV1(entries.clone())),
            _ => None,
        }
    }

    pub fn urgency(&self) -> Urgency {
        match self {
            Message::Entries(_) | Message::EntriesV1(_) => Urgency::InOrder,
            Message::State(_) => Urgency::Background,
            _ => Urgency::Urgent,
        }
    }
}
