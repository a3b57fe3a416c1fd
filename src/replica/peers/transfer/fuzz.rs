//! States as a peer might send them, for the fuzz targets (`crate::testkit::fuzz`).

use bytes::Bytes;
use crdts::CmRDT;

use super::stream::{Head, Incoming, Packer, StateItem, StatePiece};
use crate::base::time::Timestamp;
use crate::causal_log::{Action, Wants};
use crate::crdt::value::{At, Dot};
use crate::crdt::{Ownership, PartMove, VersionVector};
use crate::replica::record::RequestRow;
use crate::store_state::{Content, Store};
use geolock_api::keys::Key;
use geolock_api::names::{DcId, LockName, Mode, RequestId};

/// Returns true if this piece, as the first and last one, is a whole state of a cluster of three.
pub(crate) fn is_a_state(piece: &StatePiece) -> bool {
    let members = Some((0..3).filter_map(DcId::new).collect());
    let store = Store::new(DcId::new(0).expect("a small id"), 0);
    let mut incoming = Incoming::new(members, store, Ownership::new(0));
    incoming.push(piece).is_ok() && incoming.is_whole()
}

/// Encoded items, one after the other.
pub(crate) struct StateBytes(Packer, Vec<u8>);

impl StateBytes {
    pub fn new() -> StateBytes {
        StateBytes(Packer::default(), Vec::new())
    }

    fn item(mut self, item: &StateItem) -> StateBytes {
        self.0.push(item).expect("it is small");
        self
    }

    /// `stamps` are those of the first datacenters.
    pub fn head(self, vector: VersionVector, stamps: &[Timestamp]) -> StateBytes {
        let stamps = (0..).filter_map(DcId::new).zip(stamps.iter().copied()).collect();
        self.item(&StateItem::Head(Head { vector, stamps }))
    }

    pub fn part(self, lock: LockName, part: DcId, owner: DcId, version: u64) -> StateBytes {
        let mut ownership = Ownership::new(0);
        ownership.apply(PartMove { lock, part, owner, version });
        self.item(&StateItem::Locks(ownership))
    }

    pub fn request(self, id: RequestId, at: Timestamp, wants: Vec<(LockName, Mode)>, seq: u64) -> StateBytes {
        self.item(&StateItem::Request(RequestRow { id, at, wants: Wants::All(wants), seq }))
    }

    /// A key as one commit makes it.
    pub fn key(
        self,
        key: Key,
        (dc, seq): (DcId, u64),
        seen: &VersionVector,
        stamp: Timestamp,
        changes: &[Action],
    ) -> StateBytes {
        let mut content = Content::default();
        let at = At { dot: Dot { dc, seq }, stamp, index: 0, seen };
        changes.iter().for_each(|action| content.apply(action, &at));
        self.item(&StateItem::Key(key, content))
    }

    /// Bytes that are not an item.
    pub fn raw(mut self, bytes: &[u8]) -> StateBytes {
        self.1.extend_from_slice(bytes);
        self
    }

    pub fn finish(mut self) -> Bytes {
        let mut bytes = self.0.piece(true).map_or_else(Vec::new, |piece| piece.bytes.to_vec());
        bytes.extend_from_slice(&self.1);
        bytes.into()
    }
}
