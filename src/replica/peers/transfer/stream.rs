//! A state as bytes: items with a length prefix, one after the other, cut into pieces.
//!
//! Wire and disk types: enum variants are encoded by position (append only), golden bytes are in `wire.rs`.

use bytes::{Buf, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use crate::base::time::Timestamp;
use crate::base::wire::{self, WireError};
use crate::crdt::{DoubleOwner, Ownership, VersionVector};
use crate::replica::members::{ListState, MembersState};
use crate::replica::record::RequestRow;
use crate::store_state::{Content, Store};
use geolock_api::keys::Key;
use geolock_api::names::{DcId, DcSet};

/// Size of a piece in bytes, except the last.
const PIECE: usize = 256 << 10;
/// Size of the length prefix of an item, in bytes.
const LENGTH: usize = size_of::<u32>();

/// A piece of a state. On a link and in a journal, pieces are in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatePiece {
    /// From 0.
    pub number: u64,
    /// A part of the encoded state: 256 KiB, or less in the last piece.
    pub bytes: Bytes,
    /// No piece follows.
    pub last: bool,
}

impl StatePiece {
    /// Returns the vector of the state if this is its first piece. For the checker of output commit.
    pub(crate) fn vector(&self) -> Option<VersionVector> {
        let length = self.bytes.first_chunk::<LENGTH>().filter(|_| self.number == 0)?;
        let head = self.bytes.get(LENGTH..)?.get(..u32::from_le_bytes(*length) as usize)?;
        match wire::decode_state("the head of a state", head) {
            Ok(StateItem::Head(head)) => Some(head.vector),
            Ok(_) | Err(_) => None,
        }
    }
}

/// The items of a state, in this order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::replica) enum StateItem {
    Head(Head),
    /// The owners of the parts of some locks.
    Locks(Ownership),
    /// A row of the request table, by id.
    Request(RequestRow),
    Key(Key, Content),
    /// For each datacenter the [`crate::causal_log::Entry::hash`] of its last entries in the state, as far as
    /// they are known (0: not known); and the token lead, in milliseconds. Follows the head, for takers that
    /// know version 2.
    Chain {
        hashes: Vec<(DcId, Vec<u64>)>,
        lead_ms: u64,
    },
    /// The members, once there are decisions about them. Follows the head: before it nothing names a new one.
    Members(MembersState),
    /// The state after the decisions that are compacted. Before the members.
    Compacted(Box<ListState>),
}

/// The identity of a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::replica) struct Head {
    /// The applied entries.
    pub vector: VersionVector,
    /// The stamp of the last of these entries of each datacenter.
    pub stamps: Vec<(DcId, Timestamp)>,
}

/// Packs items into pieces.
#[derive(Default)]
pub(super) struct Packer {
    bytes: BytesMut,
    next: u64,
}

impl Packer {
    pub fn push(&mut self, item: &StateItem) -> Result<(), WireError> {
        let bytes = wire::encode_state("an item of a state", item)?;
        let length = u32::try_from(bytes.len()).expect("the codec's limit is below 4 GiB");
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(&bytes);
        Ok(())
    }

    /// Returns true if a piece is full.
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= PIECE
    }

    /// Returns a full piece; at the `end` also the last one.
    pub fn piece(&mut self, end: bool) -> Option<StatePiece> {
        let last = end && self.bytes.len() <= PIECE;
        if !last && !self.is_full() {
            return None;
        }
        let bytes = self.bytes.split_to(self.bytes.len().min(PIECE)).freeze();
        let (taken, left) = (bytes.len(), self.bytes.len());
        assert!(last || taken == PIECE, "piece {} of {taken} bytes is the last one", self.next);
        assert!(!last || left == 0, "{left} bytes follow the last piece");
        self.next += 1;
        Some(StatePiece { number: self.next - 1, bytes, last })
    }
}

/// The reason why pieces are not a state.
#[derive(Debug, thiserror::Error)]
pub(in crate::replica) enum StateFault {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("piece {found} does not follow: {wanted} should come")]
    Order { found: u64, wanted: u64 },
    #[error("{0} does not belong where it stands")]
    Misplaced(&'static str),
    #[error("it ends within an item")]
    Torn,
    #[error("it names {0}, which is no member of this cluster")]
    UnknownDc(DcId),
    #[error("no member can have a state with its decisions at epoch {0}")]
    Epoch(u64),
    #[error(transparent)]
    DoubleOwner(#[from] DoubleOwner),
}

/// A state that is being received.
pub(in crate::replica) struct Incoming {
    /// The members, if they cannot be others in the state.
    members: Option<DcSet>,
    bytes: BytesMut,
    next: u64,
    is_whole: bool,
    pub head: Option<Head>,
    pub hashes: Vec<(DcId, Vec<u64>)>,
    pub lead_ms: u64,
    compacted: Box<ListState>,
    pub members_state: Option<MembersState>,
    pub ownership: Ownership,
    pub requests: Vec<RequestRow>,
    pub store: Store,
    /// Keys that may expire or be done.
    pub expiring: Vec<Key>,
}

impl Incoming {
    /// For a cluster with these members, unless decisions say which they are; `store` and `ownership` are
    /// empty.
    pub fn new(members: Option<DcSet>, store: Store, ownership: Ownership) -> Incoming {
        let (bytes, requests, expiring) = (BytesMut::new(), Vec::new(), Vec::new());
        let (head, hashes, lead_ms) = (None, Vec::new(), 0);
        Incoming {
            members,
            bytes,
            next: 0,
            is_whole: false,
            head,
            hashes,
            lead_ms,
            compacted: Box::default(),
            members_state: None,
            ownership,
            requests,
            store,
            expiring,
        }
    }

    /// Adds the next piece. After an error no piece can be added.
    pub fn push(&mut self, piece: &StatePiece) -> Result<(), StateFault> {
        if piece.number != self.next || self.is_whole {
            return Err(StateFault::Order { found: piece.number, wanted: self.next });
        }
        self.next += 1;
        self.bytes.extend_from_slice(&piece.bytes);
        while let Some(item) = self.next_item()? {
            self.take_in(item)?;
        }
        if piece.last && !self.bytes.is_empty() {
            return Err(StateFault::Torn);
        }
        if piece.last && self.head.is_none() {
            return Err(StateFault::Misplaced("the end"));
        }
        self.is_whole = piece.last;
        Ok(())
    }

    fn is_strange(&self, dc: DcId) -> bool {
        self.members.is_some_and(|members| !members.contains(dc))
    }

    fn next_item(&mut self) -> Result<Option<StateItem>, StateFault> {
        let Some(length) = self.bytes.first_chunk::<LENGTH>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        wire::check_state_length("an item of a state", length)?;
        if self.bytes.len() < LENGTH + length {
            return Ok(None);
        }
        self.bytes.advance(LENGTH);
        let bytes = self.bytes.split_to(length);
        Ok(Some(wire::decode_state("an item of a state", &bytes)?))
    }

    fn take_in(&mut self, item: StateItem) -> Result<(), StateFault> {
        if self.head.is_some() == matches!(item, StateItem::Head(_)) {
            return Err(StateFault::Misplaced("its head"));
        }
        match item {
            StateItem::Head(head) => {
                let named = head.vector.iter().map(|(dc, _)| dc).chain(head.stamps.iter().map(|(dc, _)| *dc));
                if let Some(dc) = named.into_iter().find(|dc| self.is_strange(*dc)) {
                    return Err(StateFault::UnknownDc(dc));
                }
                self.head = Some(head);
            }
            StateItem::Chain { hashes, lead_ms } => {
                if let Some((dc, _)) = hashes.iter().find(|(dc, _)| self.is_strange(*dc)) {
                    return Err(StateFault::UnknownDc(*dc));
                }
                let last = |dc| self.head.as_ref().map_or(0, |head| head.vector.get(dc));
                if hashes.iter().any(|(dc, hashes)| hashes.len() as u64 > last(*dc)) {
                    return Err(StateFault::Misplaced("a hash of no entry"));
                }
                (self.hashes, self.lead_ms) = (hashes, lead_ms);
            }
            StateItem::Compacted(compacted) => {
                if self.members_state.is_some() {
                    return Err(StateFault::Misplaced("its compacted decisions"));
                }
                self.compacted = compacted;
            }
            StateItem::Members(state) => {
                if self.members_state.is_some() {
                    return Err(StateFault::Misplaced("its members"));
                }
                let state = MembersState { compacted: std::mem::take(&mut self.compacted), ..state };
                if !state.can_be_given() {
                    return Err(StateFault::Epoch(state.entered.0));
                }
                *self.ownership.sponsors_mut() = state.sponsors();
                self.members_state = Some(MembersState {
                    silent: Vec::new(),
                    recovery: None,
                    losses: Vec::new(),
                    stays: false,
                    fallen: Vec::new(),
                    ..state
                });
            }
            StateItem::Locks(locks) => {
                self.ownership.extend(locks.into_rows());
            }
            StateItem::Request(row) => {
                if self.requests.last().is_some_and(|before| before.id >= row.id) {
                    return Err(StateFault::Misplaced("a request"));
                }
                self.requests.push(row);
            }
            StateItem::Key(key, content) => {
                self.expiring.extend(content.is_expiring().then(|| key.clone()));
                if !self.store.take_in(key, content) {
                    return Err(StateFault::Misplaced("a key that was there before"));
                }
            }
        }
        Ok(())
    }

    pub fn is_whole(&self) -> bool {
        self.is_whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causal_log::Wants;
    use crate::crdt::PartMove;
    use crate::membership::Epoch;
    use geolock_api::names::{LockName, Mode, RequestId};

    fn dc(id: u8) -> DcId {
        DcId::new(id).expect("a small id")
    }

    fn items() -> Vec<StateItem> {
        let lock = LockName::new(b"a").expect("valid");
        let mut ownership = Ownership::new(3);
        crdts::CmRDT::apply(
            &mut ownership,
            PartMove { lock: lock.clone(), part: dc(1), owner: dc(0), version: 2 },
        );
        let wants = Wants::all(vec![(lock, Mode::Shared)]).expect("one lock");
        let row = RequestRow { id: RequestId { dc: dc(0), n: 1 }, at: Timestamp::ZERO, wants, seq: 1 };
        let vector = [(dc(0), 2)].into_iter().collect();
        vec![
            StateItem::Head(Head { vector, stamps: vec![(dc(0), Timestamp::from_raw(4))] }),
            StateItem::Locks(ownership),
            StateItem::Request(row),
            StateItem::Key(Key::new(b"b", b"k").expect("valid"), Content::default()),
            StateItem::Chain { hashes: vec![(dc(0), vec![5, 7])], lead_ms: 3 },
            StateItem::Compacted(Box::default()),
        ]
    }

    /// They are in journals, and are sent to members of the previous version.
    #[test]
    fn bytes_of_items() {
        let hex = [
            "0001020100 04",
            "01 01 0161 02 00 fb0002",
            "02 0001 00 00 01 0161 00 01",
            "03 0301626b 00 00",
            "04 0100020507 03",
            "06 0000000000000000000000000001 0000fb1027fb3075fb983a fbf401fbb80bfb8813 000000000000",
        ];
        for (item, hex) in items().iter().zip(hex) {
            let bytes = wire::encode_state("golden", item).expect("it is small");
            let found: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(found, hex.replace(' ', ""), "the bytes of {item:?} changed");
        }
    }

    fn incoming() -> Incoming {
        let members = [dc(0), dc(1)].into_iter().collect();
        Incoming::new(Some(members), Store::new(dc(1), 0), Ownership::new(0))
    }

    #[test]
    fn items_arrive_wherever_pieces_are_cut() {
        let mut packer = Packer::default();
        items().iter().for_each(|item| packer.push(item).expect("it is small"));
        let whole = packer.piece(true).expect("there is something");
        let StateItem::Head(head) = &items()[0] else { panic!("its head comes first") };
        assert_eq!(whole.vector().as_ref(), Some(&head.vector));
        assert_eq!(StatePiece { number: 1, ..whole.clone() }.vector(), None, "it begins anywhere");
        assert!(whole.last);
        for cut in 0..whole.bytes.len() {
            let mut incoming = incoming();
            let first = StatePiece { number: 0, bytes: whole.bytes.slice(..cut), last: false };
            incoming.push(&first).expect("the first piece");
            assert!(!incoming.is_whole());
            let second = StatePiece { number: 1, bytes: whole.bytes.slice(cut..), last: true };
            incoming.push(&second).expect("the second piece");
            assert!(incoming.is_whole());
            assert_eq!((incoming.ownership.len(), incoming.requests.len()), (1, 1));
            assert_eq!(incoming.store.counts().keys, 1);
        }
    }

    #[test]
    fn pieces_that_do_not_follow_and_items_out_of_place_are_refused() {
        let pack = |items: &[StateItem]| {
            let mut packer = Packer::default();
            items.iter().for_each(|item| packer.push(item).expect("it is small"));
            packer.piece(true).expect("there is something")
        };
        let items = items();
        let whole = pack(&items);
        let late = StatePiece { number: 1, ..whole.clone() };
        assert!(matches!(incoming().push(&late), Err(StateFault::Order { found: 1, wanted: 0 })));
        for (wrong, why) in [
            (&items[1..], "no head"),
            (&[items[0].clone(), items[0].clone()][..], "two heads"),
            (&[items[0].clone(), items[2].clone(), items[2].clone()], "a request twice"),
            (&[items[0].clone(), items[3].clone(), items[3].clone()], "a key twice"),
        ] {
            let fault = incoming().push(&pack(wrong));
            assert!(matches!(fault, Err(StateFault::Misplaced(_))), "{why}: {fault:?}");
        }
        let torn = StatePiece { bytes: whole.bytes.slice(..whole.bytes.len() - 1), ..whole };
        assert!(matches!(incoming().push(&torn), Err(StateFault::Torn)));
    }

    /// A member that took it would enter no later epoch.
    #[test]
    fn members_of_an_epoch_that_is_not_decided_are_refused() {
        let head = items()[0].clone();
        let refused = |state: MembersState| {
            let mut packer = Packer::default();
            [head.clone(), StateItem::Members(state)].iter().for_each(|item| {
                packer.push(item).expect("it is small");
            });
            incoming().push(&packer.piece(true).expect("there is something")).err()
        };
        assert!(refused(MembersState::default()).is_none());
        let ahead = MembersState { entered: Epoch(7), ..MembersState::default() };
        assert!(matches!(refused(ahead), Some(StateFault::Epoch(7))));
        let stateless = MembersState { awaits_state: true, ..MembersState::default() };
        assert!(matches!(refused(stateless), Some(StateFault::Epoch(0))));
    }
}
