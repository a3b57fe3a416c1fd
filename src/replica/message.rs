//! Messages between datacenters, after the hello of the link (`docs/wire.md` has the bytes).
//!
//! Wire types: enum variants are encoded by position (append only), golden bytes are in `wire.rs`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::base::access_digests::AccessDigests;
use crate::base::time::Timestamp;
use crate::causal_log::Entry;
use crate::crdt::VersionVector;
use crate::membership::{Generation, Index, Proposal};
use crate::replica::call::HolderInfo;
use crate::replica::members::{ListState, RecoveryMessage};
use crate::replica::peers::terms::Terms;
use crate::replica::{Floor, NotServing, StatePiece, SumAt};
use crate::store_state::Digest;
use geolock_api::keys::Key;
use geolock_api::names::{DcId, DcSet, LockName};

/// A message between two datacenters. On one link, entries arrive in the order sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each variant explains its fields")]
pub enum Message {
    /// [`Message::Heartbeat`] from or for a peer that knows version 1 only.
    HeartbeatV1(#[serde(with = "crate::replica::record::v1::heartbeat")] Box<Heartbeat>),
    /// [`Message::Entries`] from or for a peer that knows version 1 only.
    EntriesV1(#[serde(with = "crate::causal_log::v1::entries")] Vec<Arc<Entry>>),
    /// The sender lacks entries: it holds some back that depend on others, or dropped some while its disk was
    /// full. `durable` is its durable vector; the receiver sends what it lacks.
    HeldBack { durable: VersionVector },
    /// Asks for the holders of these locks, at most 8, in the receiver's datacenter. The reply repeats the
    /// number `query`.
    AskHolders { query: u64, locks: Vec<LockName> },
    /// The reply to the [`Message::AskHolders`] with this number: holders by lock, in the order of the query.
    Holders { query: u64, holders: Vec<Vec<HolderInfo>> },
    /// A round of comparison: the sender's durable vector and, if available at this vector, the sum over the
    /// data that readers see.
    Compare { durable: VersionVector, sum: Option<u128> },
    /// The sender has other data at this vector, which the receiver announced, too: digests bucket by bucket.
    Digests { durable: VersionVector, digest: Digest },
    /// A client of the sender wants to decrement the bounded counter `key` by `amount` more than the sender
    /// has rights to. If the receiver can give rights, they come as a commit in its log.
    AskRights { key: Key, amount: u64 },
    /// The sender has truncated the entries in this vector, and the receiver lacks some of them; the receiver
    /// may ask for the state.
    TooFarBehind { truncated: VersionVector },
    /// Asks for `more` pieces of the receiver's state; `anew`: from the beginning of its present state.
    AskState { anew: bool, more: u32 },
    /// The next piece of the state.
    State(StatePiece),
    /// Datacenter `of` asks how much of its log the receiver has. Passed on along all links. `run` identifies
    /// the run of `of`, `round` rises.
    AskLog { of: DcId, run: u64, round: u64 },
    /// The answer to the [`Message::AskLog`] of this run: `by` has the log of `of` up to `seq`, on disk. Goes
    /// back along the path of the question.
    KnowsLog { of: DcId, run: u64, by: DcId, seq: u64 },
    /// [`Message::Heartbeat`] from or for a peer that knows version 2 only.
    HeartbeatV2(#[serde(with = "crate::replica::record::v2::heartbeat")] Box<Heartbeat>),
    /// Entries in causal order.
    Entries(Vec<Arc<Entry>>),
    /// Sums over the data that readers of the sender saw, and over the ownership of parts, at vectors that
    /// the sender passed, latest first.
    Sums { shown: Vec<SumAt>, owned: Vec<SumAt> },
    /// The sender has restarted and stamps nothing yet: its wall clock, in milliseconds since the Unix epoch,
    /// and its durable vector with the heads of these logs, as in [`Heartbeat`]. It relays entries before it
    /// can send a heartbeat.
    WallClock { millis: u64, durable: VersionVector, heads: Vec<(DcId, u64)> },
    /// The first message on a link, and one every `heartbeat`.
    Heartbeat(Box<Heartbeat>),
    /// Commits of the sender wait for a majority: it asks for an [`Message::Acknowledged`] when the receiver
    /// has the sender's log up to `seq`, or a part of what it lacks, on disk. From version 3 on.
    AckWanted { seq: u64 },
    /// The answer: the durable vector of the sender, with the heads of these logs, as in [`Heartbeat`]. Only
    /// after a heartbeat on the same link.
    Acknowledged { durable: VersionVector, heads: Vec<(DcId, u64)> },
    /// The sender knows the decisions of the control group up to this number. The receiver sends those that
    /// follow.
    KnowsDecisions { index: Index },
    /// Decisions of the control group, beginning with the one after this number.
    Decisions { after: Index, proposals: Vec<Proposal> },
    /// Under the eviction policy `auto`, with each heartbeat: the clocks of the heartbeats that the sender
    /// acknowledges as a voter (`own`), and of those of the receiver that other voters have acknowledged.
    HeartbeatAcks { own: Vec<(DcId, Timestamp)>, of_receiver: Vec<(DcId, Timestamp)> },
    /// Between survivors of a lost majority.
    Recovery(Box<RecoveryMessage>),
    /// From a witness, with each of its heartbeats: the members that it hears or heard, each with the clock
    /// of its last heartbeat, and how many milliseconds ago it heard that.
    WitnessHears { hears: Vec<(DcId, Timestamp, u32)> },
    /// How long the leases of the clients of these members may be, in milliseconds: of the sender, and of
    /// others as far as it knows. From version 5 on.
    LongestLeases { of: Vec<(DcId, Generation, u32)> },
    /// The digests of the files that say what clients of the sender may do. From version 5 on.
    AccessRules(AccessDigests),
    /// The answer to [`Message::KnowsDecisions`] if decisions that follow are compacted here: the state after
    /// those. From version 6 on.
    Compacted(Box<ListState>),
}

/// The state of a datacenter, and its reports of others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The sender's hybrid clock. Strictly increasing, so it also numbers its heartbeats.
    pub clock: Timestamp,
    /// The sender's durable vector.
    pub durable: VersionVector,
    /// The peers that the sender has a link to.
    pub linked: DcSet,
    /// The last heartbeats that the sender knows of others, directly or through others, and of the receiver
    /// directly: the clock of the heartbeat, and its age in milliseconds.
    pub heard: Vec<(DcId, Timestamp, u32)>,
    /// The stability floors of all datacenters, as far as the sender knows.
    pub floors: Vec<Floor>,
    /// The members that do not serve, with the reason: the sender itself, and others according to the
    /// heartbeats in `heard`.
    pub not_serving: Vec<(DcId, NotServing)>,
    /// The options that must be equal in the cluster.
    pub terms: Terms,
    /// [`Entry::hash`] of the last entries in `durable`, as far as the sender knows them.
    pub heads: Vec<(DcId, u64)>,
    /// The sender has stopped because of a fork: entry `seq` of the log of this datacenter exists in two
    /// versions.
    pub fork: Option<(DcId, u64)>,
    /// The highest version of the protocol that each member speaks, as far as the sender knows; of the sender
    /// itself, too. A member that is missing is known to speak version 1.
    pub speaks: Vec<(DcId, u16)>,
    /// The token lead of the sender, in milliseconds.
    pub lead_ms: u64,
    /// The highest reading that the sender heard from the receiver before this link, and its age in
    /// milliseconds: for a receiver that has lost its disk. Includes the lead that the receiver's tokens may
    /// have had: at least that of the sender.
    pub yours: Option<(Timestamp, u64)>,
    /// The durable vectors of members without a link to the receiver, as they announced them to the sender.
    pub acknowledged: Vec<(DcId, VersionVector)>,
}

/// The lane of a message. The order is kept only among messages of the same urgency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// May overtake all others: small messages, on which failure detection rests.
    Urgent,
    /// Entries, in their order. Parts of locks move in them.
    InOrder,
    /// A state transfer: uses the bandwidth that the others leave.
    Background,
}

impl Message {
    /// Returns the message that says the same in this version of the protocol; `None` if that is this one.
    pub fn for_version(&self, version: u16) -> Option<Message> {
        match (self, version) {
            (Message::Heartbeat(heartbeat), 1) => Some(Message::HeartbeatV1(heartbeat.clone())),
            (Message::Heartbeat(heartbeat), 2) => {
                let mut heartbeat = heartbeat.clone();
                heartbeat.speaks.iter_mut().for_each(|(_, speaks)| *speaks = 2.min(*speaks));
                Some(Message::HeartbeatV2(heartbeat))
            }
            (Message::Entries(entries), 1) => Some(Message::EntriesV1(entries.clone())),
            _ => None,
        }
    }

    /// Returns the lane in which the message is sent.
    pub fn urgency(&self) -> Urgency {
        match self {
            Message::Entries(_) | Message::EntriesV1(_) => Urgency::InOrder,
            Message::State(_) => Urgency::Background,
            _ => Urgency::Urgent,
        }
    }
}
