//! Entries as version 1 of wire and disk encodes them: without the hash of their predecessor, and without the
//! token lead. A maker leaves both at 0 until all members are known to speak version 2, so version 1 loses
//! nothing.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::base::time::Timestamp;
use crate::causal_log::entry::{Entry, Op};
use crate::crdt::VersionVector;
use geolock_api::names::{ClusterId, DcId};

/// Wire and disk type: this never changes.
#[derive(Serialize)]
struct EntryOut<'a> {
    cluster: ClusterId,
    epoch: u64,
    dc: DcId,
    seq: u64,
    at: Timestamp,
    deps: &'a VersionVector,
    ops: &'a [Op],
}

/// The same, as it is read.
#[derive(Deserialize)]
struct EntryIn {
    cluster: ClusterId,
    epoch: u64,
    dc: DcId,
    seq: u64,
    at: Timestamp,
    deps: VersionVector,
    ops: Vec<Op>,
}

impl<'a> From<&'a Entry> for EntryOut<'a> {
    fn from(entry: &'a Entry) -> EntryOut<'a> {
        let Entry { cluster, epoch, dc, seq, at, deps, ops, prev: _, lead_ms: _ } = entry;
        EntryOut { cluster: *cluster, epoch: *epoch, dc: *dc, seq: *seq, at: *at, deps, ops }
    }
}

impl From<EntryIn> for Arc<Entry> {
    fn from(entry: EntryIn) -> Arc<Entry> {
        let EntryIn { cluster, epoch, dc, seq, at, deps, ops } = entry;
        Arc::new(Entry { cluster, epoch, dc, seq, at, deps, ops, prev: 0, lead_ms: 0 })
    }
}

/// Encoding of one entry, for `#[serde(with)]`.
pub mod entry {
    use super::{Arc, Deserialize, Deserializer, Entry, EntryIn, EntryOut, Serialize, Serializer};

    /// Encodes as version 1.
    pub fn serialize<S: Serializer>(entry: &Entry, serializer: S) -> Result<S::Ok, S::Error> {
        EntryOut::from(entry).serialize(serializer)
    }

    /// Decodes version 1.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<Entry>, D::Error> {
        Ok(EntryIn::deserialize(deserializer)?.into())
    }
}

/// Encoding of a list of entries, for `#[serde(with)]`.
pub mod entries {
    use super::{Arc, Deserialize, Deserializer, Entry, EntryIn, EntryOut, Serializer};

    /// Encodes as version 1.
    pub fn serialize<S: Serializer>(entries: &[Arc<Entry>], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(entries.iter().map(|entry| EntryOut::from(&**entry)))
    }

    /// Decodes version 1.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Arc<Entry>>, D::Error> {
        Ok(Vec::<EntryIn>::deserialize(deserializer)?.into_iter().map(Arc::from).collect())
    }
}
