//! Messages and disk state of version 1.

use std::sync::Arc;

use serde::Deserialize;

use crate::base::time::Timestamp;
use crate::causal_log::{Entry, v1};
use crate::crdt::{Ownership, VersionVector};
use crate::replica::clients::force_release::ForceReleased;
use crate::replica::record::{Checkpoint, LeaseRecord, RequestRow};
use crate::replica::{OutcomeRow, Past};
use crate::store_state::Content;
use geolock_api::keys::Key;
use geolock_api::names::{DcId, DcSet, Position};

/// A heartbeat, for `#[serde(with)]`: the fields of version 2 are not sent, and read as empty.
pub mod heartbeat {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::base::time::Timestamp;
    use crate::crdt::VersionVector;
    use crate::replica::{Floor, Heartbeat};
    use geolock_api::names::{DcId, DcSet};

    /// Wire type: this never changes.
    #[derive(Serialize)]
    struct Out<'a> {
        clock: Timestamp,
        durable: &'a VersionVector,
        linked: DcSet,
        heard: &'a [(DcId, Timestamp, u32)],
        floors: &'a [Floor],
    }

    /// The same, for reading.
    #[derive(Deserialize)]
    struct In {
        clock: Timestamp,
        durable: VersionVector,
        linked: DcSet,
        heard: Vec<(DcId, Timestamp, u32)>,
        floors: Vec<Floor>,
    }

    pub fn serialize<S: Serializer>(heartbeat: &Heartbeat, serializer: S) -> Result<S::Ok, S::Error> {
        let Heartbeat { clock, durable, linked, heard, floors, .. } = heartbeat;
        Out { clock: *clock, durable, linked: *linked, heard, floors }.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<Heartbeat>, D::Error> {
        let In { clock, durable, linked, heard, floors } = In::deserialize(deserializer)?;
        Ok(Box::new(Heartbeat { clock, durable, linked, heard, floors, ..Heartbeat::default() }))
    }
}

/// Disk type: this never changes.
#[derive(Deserialize)]
struct PastV1 {
    forgotten: VersionVector,
    #[serde(with = "v1::entries")]
    entries: Vec<Arc<Entry>>,
}

/// A checkpoint of version 1. Disk type: this never changes.
#[derive(Deserialize)]
pub struct CheckpointV1 {
    position: Position,
    members: DcSet,
    joined: bool,
    clock: Timestamp,
    n: u64,
    applied: VersionVector,
    last_stamps: Vec<(DcId, Timestamp)>,
    ownership: Ownership,
    requests: Vec<RequestRow>,
    leases: Vec<LeaseRecord>,
    contents: Vec<(Key, Content)>,
    outcomes: Vec<OutcomeRow>,
    #[serde(with = "v1::entries")]
    log: Vec<Arc<Entry>>,
    past: PastV1,
    forced: Vec<Arc<ForceReleased>>,
}

impl From<CheckpointV1> for Checkpoint {
    fn from(old: CheckpointV1) -> Checkpoint {
        Checkpoint {
            position: old.position,
            members: old.members,
            joined: old.joined,
            clock: old.clock,
            n: old.n,
            applied: old.applied,
            last_stamps: old.last_stamps,
            ownership: old.ownership,
            requests: old.requests,
            leases: old.leases,
            contents: old.contents,
            outcomes: old.outcomes,
            log: old.log,
            past: Past { forgotten: old.past.forgotten, entries: old.past.entries },
            forced: old.forced,
            hashes: Vec::new(),
            all_speak: 1,
            fork: None,
            lead_ms: 0,
            members_state: None,
            lost_commits: Vec::new(),
            commit_contents: Vec::new(),
        }
    }
}
