//! What a datacenter keeps on disk: records in its journal, now and then a checkpoint.
//!
//! Disk types: enum variants are encoded by position (append only), golden bytes in `wire.rs`.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::causal_log::Entry;
use crate::crdt::{Ownership, VersionVector};
use crate::keys::Key;
pub use crate::lock_state::RequestRow;
use crate::names::{DcId, DcSet, LeaseId, Position, Secret};
use crate::replica::call::OnDisconnect;
use crate::replica::forced::Forced;
use crate::replica::fork::Fork;
use crate::replica::{OutcomeRow, Past, StatePiece};
use crate::store_state::Content;
use crate::time::Timestamp;

/// One record of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// [`Record::Entry`] as version 1 wrote it.
    EntryV1(#[serde(with = "crate::causal_log::v1::entry")] Arc<Entry>),
    /// No clock reading above `clock`, no request number from `n` on, was handed out before the next bound.
    Bound {
        clock: Timestamp,
        n: u64,
    },
    LeaseOpened(LeaseRecord),
    LeaseEnded {
        lease: LeaseId,
    },
    /// Every member was heard once, and what they knew is here: nobody knows more of this datacenter's log than it does itself.
    Joined,
    /// The next piece of another datacenter's state. It means nothing yet.
    StatePiece(StatePiece),
    /// All pieces since number 0 are taken over: what was applied there, at `vector`, is applied here.
    StateTaken {
        vector: VersionVector,
    },
    /// All before this is a copy of a data directory that went on elsewhere: more was handed out than is known here.
    Restored,
    /// A request that was held lost its locks to an operator: it can never be reclaimed.
    Forced(Arc<Forced>),
    /// An entry, own or foreign, in the order of application.
    Entry(Arc<Entry>),
    /// There are two histories: nothing is granted, made or applied from here on.
    Forked(Fork),
    /// This one is kept: an operator has taken the others away.
    ForkResolved,
    /// Tokens are ahead of the clock by that many milliseconds from here on.
    TokenLead {
        millis: u64,
    },
    /// Of the entries before this record, those up to here are not kept any more: they come first in the order of application.
    Forgotten {
        entries: VersionVector,
    },
}

/// A lease as it is kept on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRecord {
    pub lease: LeaseId,
    pub secret: Secret,
    pub ttl: Duration,
    pub on_disconnect: OnDisconnect,
}

/// State on disk: all that the records up to `position` amount to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    pub position: Position,
    pub members: DcSet,
    /// Every member was heard once.
    pub joined: bool,
    pub clock: Timestamp,
    pub n: u64,
    pub applied: VersionVector,
    pub last_stamps: Vec<(DcId, Timestamp)>,
    pub ownership: Ownership,
    /// The request table, by id.
    pub requests: Vec<RequestRow>,
    /// By id.
    pub leases: Vec<LeaseRecord>,
    /// What keys have, in no order.
    pub contents: Vec<(Key, Content)>,
    /// How transactions of clients ended, by lease.
    pub outcomes: Vec<OutcomeRow>,
    /// Entries that some member may lack still, in the order of application.
    pub log: Vec<Arc<Entry>>,
    /// What else watches can go on from.
    pub past: Past,
    /// What was taken from whom: the last ones, and all of leases that live. By number.
    pub forced: Vec<Arc<Forced>>,
    /// Of each log the hashes of its last entries, up to `applied`; 0 for one that is not known.
    pub hashes: Vec<(DcId, Vec<u64>)>,
    /// All members have known version 2: own entries name their predecessor.
    pub chained: bool,
    pub fork: Option<Fork>,
    /// By how many milliseconds tokens are ahead of the clock.
    pub lead_ms: u64,
}
