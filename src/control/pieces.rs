//! Snapshots in pieces: a state of the list may be larger than a frame of the control lane. Pure.
//!
//! ```text
//! leader  SnapshotPiece { piece: bytes from 0 }         ->
//!                                 <-  SnapshotHas(n)    member: so many bytes of this snapshot are here
//! leader  SnapshotPiece { piece: bytes from n }         ->
//!                                 <-  Installed         member: that was the last one
//! ```
//!
//! A lost answer costs one piece, not the snapshot: the leader begins again with the first piece, and the
//! answer says from where on the rest is needed. A member keeps one snapshot that is not complete, and only
//! the bytes of it that came, whatever length the first piece claims.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::error::Refusal;
use super::frame::MAX_PAYLOAD;
use super::group::MAX_MEMBERS;
use super::member::MemberId;
use super::store::MAX_STATE;
use super::wire::WireSnapshot;
use crate::base::wire::{self, WireError};

/// Bytes of a snapshot in one message.
const MAX_PIECE: usize = 48 << 10;
/// Maximum size of an encoded snapshot: the state, and around it the members, voters of two sets among them,
/// with 32 bytes for each.
const MAX_SNAPSHOT: usize = MAX_STATE + MAX_MEMBERS * 4 * 32;

const _: () = assert!(MAX_PIECE + (4 << 10) <= MAX_PAYLOAD, "a piece fits a frame with all around it");
const _: () = assert!(MAX_SNAPSHOT <= wire::MAX_FRAME, "a snapshot can be encoded");

/// A snapshot, as the pieces of it name it. Two with the same name have the same bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct SnapshotName {
    pub len: u64,
    pub hash: u64,
}

/// Bytes of an encoded [`WireSnapshot`]. A wire type.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Piece {
    pub of: SnapshotName,
    /// The number of bytes before these.
    pub from: u64,
    pub bytes: Bytes,
}

/// A snapshot that is sent.
pub(super) struct Pieces {
    name: SnapshotName,
    bytes: Bytes,
}

impl Pieces {
    pub(super) fn of(snapshot: &WireSnapshot) -> Result<Pieces, WireError> {
        let bytes: Bytes = wire::encode("snapshot", snapshot)?.into();
        let name = SnapshotName { len: bytes.len() as u64, hash: wire::hash("snapshot", snapshot) };
        Ok(Pieces { name, bytes })
    }

    /// Returns the size of the snapshot.
    pub(super) fn len(&self) -> u64 {
        self.name.len
    }

    /// Returns the piece behind so many bytes.
    pub(super) fn from(&self, from: u64) -> Piece {
        let start = usize::try_from(from).map_or(self.bytes.len(), |from| from.min(self.bytes.len()));
        let end = self.bytes.len().min(start + MAX_PIECE);
        Piece { of: self.name, from, bytes: self.bytes.slice(start..end) }
    }
}

/// The pieces of a snapshot that have come.
#[derive(Default)]
pub(super) struct Assembly {
    /// The snapshot, and the member that sends it.
    of: Option<(MemberId, SnapshotName)>,
    bytes: Vec<u8>,
}

/// The state of a snapshot after a piece of it.
#[derive(Debug)]
pub(super) enum Taken {
    /// So many bytes of it are here.
    Has(u64),
    /// All of it. It is forgotten here.
    Whole(Box<WireSnapshot>),
}

impl Assembly {
    /// Takes a piece. One of another snapshot than the last takes its place; one that does not follow changes
    /// nothing.
    pub(super) fn take(&mut self, sender: MemberId, piece: Piece) -> Result<Taken, Refusal> {
        let Piece { of, from, bytes } = piece;
        let fits = of.len <= MAX_SNAPSHOT as u64 && bytes.len() <= MAX_PIECE && !bytes.is_empty();
        let end = from.checked_add(bytes.len() as u64).filter(|end| fits && *end <= of.len);
        let end = end.ok_or(Refusal::Malformed)?;
        if self.of != Some((sender, of)) {
            *self = Assembly { of: Some((sender, of)), bytes: Vec::new() };
        }
        if from == self.bytes.len() as u64 {
            self.bytes.extend_from_slice(&bytes);
            debug_assert_eq!(self.bytes.len() as u64, end, "pieces follow each other");
        }
        if (self.bytes.len() as u64) < of.len {
            return Ok(Taken::Has(self.bytes.len() as u64));
        }
        let Assembly { bytes, .. } = std::mem::take(self);
        let snapshot: WireSnapshot = wire::decode("snapshot", &bytes).map_err(|_| Refusal::Malformed)?;
        match wire::hash("snapshot", &snapshot) == of.hash {
            true => Ok(Taken::Whole(Box::new(snapshot))),
            false => Err(Refusal::Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use bytes::Bytes;
    use geolock_api::names::DcId;

    use super::super::wire::{WireMembers, WireSnapshot};
    use super::{Assembly, MAX_PIECE, MAX_SNAPSHOT, Pieces, SnapshotName, Taken};
    use crate::control::{MAX_STATE, MemberId, Refusal, ServerId};

    fn member(id: u8) -> MemberId {
        MemberId { dc: DcId::new(id).expect("a small id"), generation: u16::MAX }
    }

    fn snapshot(fill: u8, size: usize) -> WireSnapshot {
        WireSnapshot {
            last: None,
            members_at: None,
            members: WireMembers { voters: Vec::new(), servers: BTreeMap::new() },
            decided: 4,
            state: Bytes::from(vec![fill; size]),
        }
    }

    fn has(taken: Result<Taken, Refusal>) -> u64 {
        match taken {
            Ok(Taken::Has(bytes)) => bytes,
            other => panic!("it is not complete: {other:?}"),
        }
    }

    #[test]
    fn a_snapshot_goes_on_where_a_lost_answer_has_left_it() {
        let (sent, mut assembly) = (snapshot(1, 3 * MAX_PIECE), Assembly::default());
        let pieces = Pieces::of(&sent).expect("it fits");
        let piece = MAX_PIECE as u64;
        assert_eq!(has(assembly.take(member(1), pieces.from(0))), piece);
        assert_eq!(has(assembly.take(member(1), pieces.from(piece))), 2 * piece);
        // The leader begins again; what is there is not taken twice, and a gap is not taken.
        assert_eq!(has(assembly.take(member(1), pieces.from(0))), 2 * piece);
        assert_eq!(has(assembly.take(member(1), pieces.from(3 * piece))), 2 * piece);
        assert_eq!(has(assembly.take(member(1), pieces.from(2 * piece))), 3 * piece);
        let whole = assembly.take(member(1), pieces.from(3 * piece));
        assert!(matches!(whole, Ok(Taken::Whole(whole)) if *whole == sent));
        assert_eq!(has(assembly.take(member(1), pieces.from(0))), piece, "it is forgotten");
    }

    #[test]
    fn pieces_of_two_snapshots_are_never_mixed() {
        let [old, new] = [1, 2].map(|fill| Pieces::of(&snapshot(fill, 2 * MAX_PIECE)).expect("it fits"));
        let (mut assembly, piece) = (Assembly::default(), MAX_PIECE as u64);
        assert_eq!(has(assembly.take(member(1), old.from(0))), piece);
        assert_eq!(has(assembly.take(member(1), new.from(piece))), 0);
        assert_eq!(has(assembly.take(member(1), new.from(0))), piece);
        assert_eq!(has(assembly.take(member(2), new.from(piece))), 0, "of another leader");
    }

    #[test]
    fn a_length_that_is_only_claimed_takes_no_memory() {
        let mut assembly = Assembly::default();
        let mut piece = Pieces::of(&snapshot(1, 10)).expect("it fits").from(0);
        piece.of = SnapshotName { len: MAX_SNAPSHOT as u64, hash: 1 };
        assert!(has(assembly.take(member(1), piece)) < 100);
        assert!(assembly.bytes.capacity() < 1_000);
    }

    #[test]
    fn the_largest_snapshot_is_taken() {
        let all = || (0..64).flat_map(|id| [member(id), MemberId { generation: 1, ..member(id) }]);
        let voters: BTreeSet<MemberId> = all().collect();
        let servers = all().map(|member| (member, ServerId::from_bytes([0xff; 16]))).collect();
        let members = WireMembers { voters: vec![voters.clone(), voters], servers };
        let sent = WireSnapshot { members, ..snapshot(1, MAX_STATE) };
        let pieces = Pieces::of(&sent).expect("it fits");
        let (mut assembly, mut at) = (Assembly::default(), 0);
        let whole = loop {
            match assembly.take(member(1), pieces.from(at)).expect("it fits") {
                Taken::Has(bytes) => at = bytes,
                Taken::Whole(whole) => break whole,
            }
        };
        assert!(*whole == sent);
    }
}
