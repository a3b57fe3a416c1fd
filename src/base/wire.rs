//! The encoding of messages and records as bytes. No other file uses bincode.
//!
//! Nothing here allocates the length that outside bytes claim before it is checked, and no bytes may follow a
//! value. Enum variants are encoded by position, so wire and disk enums are append only; golden bytes in the
//! tests hold them. Streams of links begin with a format version, and segments and checkpoints have one after
//! their magic (in the modules that own them), so the codec itself can be replaced.

mod checkpoint;
mod versions;

use bincode::BorrowDecode;
use bincode::de::read::{Reader, SliceReader};
use bincode::de::{Decoder, DecoderImpl};
use bincode::enc::write::Writer;
use bincode::error::{DecodeError, EncodeError};
use bincode::serde::BorrowCompat;
use serde::Serialize;
use serde::de::DeserializeOwned;
use xxhash_rust::xxh3::Xxh3;

pub use checkpoint::{decode_checkpoint, encode_checkpoint};
pub use versions::{
    COMPACTS_VERSION, CONTROL_VERSION, LEASES_VERSION, NEXT_VERSION, PROTOCOL_VERSION, SETTLES_FIRST_VERSION,
    VERSIONS, to_decide,
};

/// Maximum size of a frame on a link, and of a record in a journal, in bytes.
pub const MAX_FRAME: usize = 8 << 20;
/// Maximum size of a checkpoint, in bytes: larger than any state of which a machine can hold two copies in
/// memory. It bounds the length that a damaged file may claim.
pub const MAX_CHECKPOINT: usize = 64 << 30;

/// Maximum size of a key's content in a state transfer, in bytes.
pub const MAX_STATE_ITEM: usize = 1 << 30;

/// Malformed bytes. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {reason}")]
pub struct WireError {
    /// Name of the value that was being encoded or decoded.
    pub what: &'static str,
    /// The fault, from the codec.
    pub reason: String,
}

/// The codec counts no number, length or tag as more than this, and each takes at least one byte. Its limit
/// is in these units: it bounds a length that is claimed, and it must never refuse what was encoded.
const COUNTED_PER_BYTE: usize = 16;

/// Encoding knows no limit; [`decode_exactly`] takes from this one all that its bytes do not need.
const CONFIG: bincode::config::Configuration<
    bincode::config::LittleEndian,
    bincode::config::Varint,
    bincode::config::Limit<{ usize::MAX }>,
> = bincode::config::standard().with_limit::<{ usize::MAX }>();

/// Encodes a value that fits a frame.
pub fn encode<T: Serialize>(what: &'static str, value: &T) -> Result<Vec<u8>, WireError> {
    encode_limited::<T, MAX_FRAME>(what, value)
}

/// Decodes a value from exactly these bytes, at most a frame of them.
pub fn decode<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, WireError> {
    decode_limited::<T, MAX_FRAME>(what, bytes)
}

const _: () = assert!(MAX_FRAME <= MAX_STATE_ITEM && MAX_STATE_ITEM <= MAX_CHECKPOINT, "limits nest");

/// As [`encode`], for the pieces of a state transfer.
pub fn encode_state<T: Serialize>(what: &'static str, value: &T) -> Result<Vec<u8>, WireError> {
    encode_limited::<T, MAX_STATE_ITEM>(what, value)
}

/// As [`decode`], for the pieces of a state transfer.
pub fn decode_state<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, WireError> {
    decode_limited::<T, MAX_STATE_ITEM>(what, bytes)
}

/// Checks that an item of a state transfer may have this length.
pub fn check_state_length(what: &'static str, length: usize) -> Result<(), WireError> {
    if length > MAX_STATE_ITEM {
        return Err(WireError { what, reason: format!("{length} bytes, the limit is {MAX_STATE_ITEM}") });
    }
    Ok(())
}

/// Returns a hash of the encoded value, never 0. It distinguishes values that differ by accident; it is no
/// defence against a search for collisions.
pub fn hash<T: Serialize>(what: &'static str, value: &T) -> u64 {
    struct Hashed(Xxh3);
    impl Writer for Hashed {
        fn write(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
            self.0.update(bytes);
            Ok(())
        }
    }
    let mut hashed = Hashed(Xxh3::new());
    let written = bincode::serde::encode_into_writer(value, &mut hashed, CONFIG);
    written.unwrap_or_else(|error| panic!("{what}: no wire type refuses to be encoded: {error}"));
    hashed.0.digest().max(1)
}

fn encode_limited<T: Serialize, const LIMIT: usize>(
    what: &'static str,
    value: &T,
) -> Result<Vec<u8>, WireError> {
    let bytes = bincode::serde::encode_to_vec(value, CONFIG)
        .map_err(|error| WireError { what, reason: error.to_string() })?;
    if bytes.len() > LIMIT {
        return Err(WireError { what, reason: format!("{} bytes, the limit is {LIMIT}", bytes.len()) });
    }
    Ok(bytes)
}

fn decode_limited<T: DeserializeOwned, const LIMIT: usize>(
    what: &'static str,
    bytes: &[u8],
) -> Result<T, WireError> {
    if bytes.len() > LIMIT {
        return Err(WireError { what, reason: format!("{} bytes, the limit is {LIMIT}", bytes.len()) });
    }
    decode_exactly(bytes).map_err(|error| WireError { what, reason: error.to_string() })
}

/// Decodes a value from all of these bytes. No length that they claim is believed beyond
/// [`COUNTED_PER_BYTE`] times their number.
fn decode_exactly<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    let mut decoder = DecoderImpl::new(SliceReader::new(bytes), CONFIG, ());
    decoder.claim_bytes_read(usize::MAX - COUNTED_PER_BYTE.saturating_mul(bytes.len()))?;
    let BorrowCompat(value) = BorrowCompat::<T>::borrow_decode(&mut decoder)?;
    match decoder.reader().peek_read(1) {
        None => Ok(value),
        Some(_) => Err(DecodeError::OtherString("further bytes follow it".into())),
    }
}

#[cfg(test)]
mod tests {
    mod homed_names;
    mod limits;
    mod recoveries;

    use std::fmt::Write;
    use std::sync::Arc;
    use std::time::Duration;

    use serde::Serialize;
    use serde::de::DeserializeOwned;

    use super::{decode, encode};
    use crate::base::time::{TimeToLive, Timestamp};
    use crate::causal_log::{Action, Change, Commit, Entry, LockParts, Op, Wants};
    use crate::crdt::{Ownership, PartMove, VersionVector};
    use crate::leases::OnDisconnect;
    use crate::membership::Epoch;
    use crate::replica::call::HolderInfo;
    use crate::replica::force_release::ForceReleased;
    use crate::replica::{
        Checkpoint, Floor, Fork, Heartbeat, LeaseRecord, MembersState, Message, NotServing, OutcomeRow, Past,
        Record, RequestRow, StatePiece, SumAt, Terms,
    };
    use crate::store_state::{BucketDigest, Content, Digest};
    use geolock_api::keys::Key;
    use geolock_api::names::{
        ClusterId, DcId, DcSet, FencingToken, ForceReason, LeaseId, LockName, Mode, Position, RequestId,
        Secret,
    };
    use geolock_api::value::{
        FlagOp, MapOp, MapType, Op as ValueOp, PathStep, RegisterOp, ResettableCounterOp, SetOp, Update,
    };

    fn dc(id: u8) -> DcId {
        DcId::new(id).expect("a small id")
    }

    fn entry() -> Entry {
        let lock = LockName::new(b"a\xff").expect("valid");
        let id = RequestId { dc: dc(1), n: 300 };
        let wants = Wants::all(vec![(lock.clone(), Mode::Exclusive)]).expect("one lock");
        Entry {
            cluster: ClusterId::from_raw(7),
            epoch: 0,
            prev: 0,
            lead_ms: 0,
            dc: dc(1),
            seq: 2,
            at: Timestamp::from_millis(1),
            deps: VersionVector::from_iter([(dc(0), 5), (dc(1), 1)]),
            ops: vec![
                Op::Withdraw { id },
                Op::Transfer { to: dc(2), parts: vec![LockParts { lock, parts: vec![(dc(1), 3)] }] },
                Op::Request { id, at: Timestamp::from_millis(2), wants },
            ],
        }
    }

    /// The state before the first decision.
    const NOTHING_DECIDED: &str =
        "00000000000000000000000000010000fb1027fb3075fb983afbf401fbb80bfb8813000000000000";

    fn chained() -> Entry {
        Entry { prev: 9, lead_ms: 300, ..entry() }
    }

    /// Members compare these: they never change.
    #[test]
    fn hashes_of_entries() {
        assert_eq!(entry().hash(), 13_927_661_678_367_963_877);
        assert_eq!(chained().hash(), 2_649_548_085_597_075_043);
    }

    fn piece() -> StatePiece {
        StatePiece { number: 3, bytes: bytes::Bytes::from_static(b"ab"), last: true }
    }

    fn forced() -> ForceReleased {
        ForceReleased {
            number: 3,
            at_ms: 300,
            operator: Arc::from("client ann"),
            reason: ForceReason::new("it hangs").expect("a reason"),
            lock: LockName::new(b"a").expect("valid"),
            mode: Mode::Exclusive,
            lease: LeaseId::new(dc(1), 5),
            request: RequestId { dc: dc(1), n: 7 },
            token: FencingToken(9),
            label: Arc::from("me"),
            locks: 2,
        }
    }

    fn holder() -> HolderInfo {
        HolderInfo {
            dc: dc(2),
            request: RequestId { dc: dc(2), n: 1 },
            mode: Mode::Shared,
            token: FencingToken(9),
            label: Arc::from("me"),
            held_for: Duration::from_millis(1_500),
        }
    }

    /// Asserts that the value encodes to these bytes and that they decode to the value: this version can read
    /// what an earlier version wrote.
    fn golden<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T, hex: &str) {
        let bytes = encode("golden", value).expect("it fits a frame");
        let mut found = String::new();
        bytes.iter().for_each(|byte| write!(found, "{byte:02x}").expect("writing to a string"));
        assert_eq!(
            found, hex,
            "the bytes of {value:?} changed: old peers and old data cannot be read any more"
        );
        assert_eq!(decode::<T>("golden", &bytes).expect("its own bytes"), *value);
        for end in 0..bytes.len() {
            assert!(decode::<T>("golden", &bytes[..end]).is_err(), "a piece of a value is no value");
        }
        let mut longer = bytes;
        longer.push(0);
        assert!(decode::<T>("golden", &longer).is_err(), "nothing follows a value");
    }

    #[test]
    fn bytes_of_messages() {
        let heartbeat = Heartbeat {
            clock: Timestamp::from_raw(0x0001_0002),
            durable: VersionVector::from_iter([(dc(2), 4)]),
            linked: DcSet::only(dc(1)),
            heard: vec![(dc(1), Timestamp::from_raw(3), 250)],
            floors: vec![Floor { dc: dc(2), after: 6, floor: VersionVector::from_iter([(dc(0), 1)]) }],
            ..Heartbeat::default()
        };
        golden(&Message::HeartbeatV1(Box::new(heartbeat.clone())), GOLDEN_HEARTBEAT_V1);
        golden(&Message::EntriesV1(vec![Arc::new(entry())]), GOLDEN_ENTRIES_V1);
        let heartbeat = Heartbeat {
            not_serving: vec![(dc(1), NotServing::Grace { for_ms: 250 }), (dc(2), NotServing::ClockSkew)],
            terms: Terms {
                members: DcSet::from_iter([dc(0), dc(1), dc(2)]),
                heartbeat_ms: 100,
                peer_timeout_ms: 200,
                max_clock_skew_ms: 240,
            },
            heads: vec![(dc(1), 5)],
            fork: Some((dc(2), 3)),
            speaks: vec![(dc(1), 2)],
            lead_ms: 7,
            yours: Some((Timestamp::from_raw(3), 250)),
            acknowledged: vec![(dc(2), VersionVector::from_iter([(dc(0), 9)]))],
            ..heartbeat
        };
        golden(&Message::HeartbeatV2(Box::new(heartbeat.clone())), GOLDEN_HEARTBEAT_V2);
        let heartbeat = Heartbeat { speaks: vec![(dc(1), 2), (dc(2), 300)], ..heartbeat };
        golden(&Message::Heartbeat(Box::new(heartbeat)), GOLDEN_HEARTBEAT);
        golden(&Message::Entries(vec![Arc::new(chained())]), GOLDEN_ENTRIES);
        golden(&Message::HeldBack { durable: VersionVector::default() }, "0200");
        let lock = LockName::new(b"a").expect("valid");
        golden(&Message::AskHolders { query: 1, locks: vec![lock] }, "0301010161");
        golden(&Message::Holders { query: 1, holders: vec![vec![holder()], vec![]] }, GOLDEN_HOLDERS);
        let durable = VersionVector::from_iter([(dc(1), 2)]);
        golden(&Message::Compare { durable: durable.clone(), sum: Some(300) }, "0502000201fb2c01");
        let digest = Digest(vec![BucketDigest { bucket: Arc::from(&b"b"[..]), sum: 7 }]);
        golden(&Message::Digests { durable, digest }, "0602000201016207");
        golden(&Message::AskRights { key: Key::new(b"b", b"k").expect("valid"), amount: 3 }, "070301626b03");
        golden(&Message::TooFarBehind { truncated: VersionVector::from_iter([(dc(0), 2)]) }, "080102");
        golden(&Message::AskState { anew: true, more: 16 }, "090110");
        golden(&Message::State(piece()), "0a0302616201");
        let sum = |vector, sum| SumAt { vector, sum };
        let sums = Message::Sums { shown: vec![sum(300, 2)], owned: vec![sum(3, 4), sum(5, 6)] };
        golden(
            &Message::WallClock {
                millis: 300,
                durable: VersionVector::from_iter([(dc(1), 2)]),
                heads: vec![(dc(1), 9)],
            },
            "10fb2c01020002010109",
        );
        golden(&Message::AckWanted { seq: 300 }, "12fb2c01");
        let acknowledged = Message::Acknowledged {
            durable: VersionVector::from_iter([(dc(1), 2)]),
            heads: vec![(dc(1), 9)],
        };
        golden(&acknowledged, "13020002010109");
        golden(&sums, "0f01fb2c01020203040506");
        let clock = Timestamp::from_raw(300);
        let acks = Message::HeartbeatAcks { own: vec![(dc(2), clock)], of_receiver: vec![(dc(1), clock)] };
        golden(&acks, "160102fb2c010101fb2c01");
        let limits = Message::LongestLeases { of: vec![(dc(1), crate::membership::Generation(2), 300)] };
        golden(&limits, "19010102fb2c01");
        let rules = crate::base::access_digests::AccessDigests { rules: Some([7; 32]), tokens: None };
        golden(&Message::AccessRules(rules), &format!("1a01{}00", "07".repeat(32)));
        golden(&Message::Compacted(Box::default()), &format!("1b{NOTHING_DECIDED}"));
        golden(&Message::AskLog { of: dc(2), run: 300, round: 1 }, "0b02fb2c0101");
        golden(&Message::KnowsLog { of: dc(2), run: 300, by: dc(1), seq: 5 }, "0c02fb2c010105");
    }

    #[test]
    fn bytes_of_reasons() {
        golden(&NotServing::LogFull, "06");
        golden(&NotServing::ClockBehind, "07");
        golden(&NotServing::Unbacked, "08");
    }

    #[test]
    fn bytes_of_commits() {
        let key = Key::new(b"b", b"k").expect("valid");
        let add = Change {
            key: key.clone(),
            action: Action::Update(Update::of(geolock_api::value::Op::Counter(-2))),
        };
        let change = |action| Change { key: key.clone(), action };
        let ttl = TimeToLive::from_millis(300).expect("it is short");
        let commit = Commit {
            seen: VersionVector::from_iter([(dc(0), 5)]),
            client: Some((LeaseId::new(dc(1), 5), 9)),
            changes: vec![add, change(Action::Remove), change(Action::Expire(ttl)), change(Action::Expired)],
        };
        golden(&Op::Commit(commit), GOLDEN_COMMIT);
        let too_long = [&[2][..], &[0xfd], &(TimeToLive::MAX_MILLIS + 1).to_le_bytes()].concat();
        for wrong in [&[2, 0][..], &too_long] {
            assert!(decode::<Action>("action", wrong).is_err(), "{wrong:?} expires in no possible time");
        }
    }

    #[test]
    fn bytes_of_records() {
        let lease = LeaseRecord {
            lease: LeaseId::new(dc(1), 5),
            secret: Secret::new([9; 16]),
            ttl: Duration::from_secs(10),
            on_disconnect: OnDisconnect::Release,
        };
        golden(&Record::EntryV1(Arc::new(entry())), GOLDEN_ENTRY_RECORD_V1);
        golden(&Record::IdReservation { clock: Timestamp::from_raw(5), n: 6 }, "010506");
        golden(&Record::LeaseOpened(lease), GOLDEN_LEASE);
        golden(&Record::LeaseEnded { lease: lease.lease }, "03fb0105");
        golden(&Record::Joined, "04");
        golden(&Record::StatePiece(piece()), "050302616201");
        golden(&Record::StateTaken { vector: VersionVector::from_iter([(dc(0), 2)]) }, "060102");
        golden(&Record::Restored, "07");
        golden(&Record::ForceReleased(Arc::new(forced())), GOLDEN_FORCED);
        golden(&Record::Entry(Arc::new(chained())), GOLDEN_ENTRY_RECORD);
        let fork = Fork { dc: dc(2), seq: 5, ours: 6, theirs: 7, peer: dc(1) };
        golden(&Record::Forked(fork), "0a0205060701");
        golden(&Record::ForkResolved, "0b");
        golden(&Record::TokenLead { millis: 7 }, "0c07");
        let entries = VersionVector::from_iter([(dc(0), 3), (dc(1), 5)]);
        golden(&Record::Forgotten { entries }, "0d020305");
        golden(&Record::EnteredAgain { epoch: Epoch(4) }, "1404");
        golden(&Record::Compacted(Box::default()), &format!("15{NOTHING_DECIDED}"));
    }

    #[test]
    fn bytes_of_updates() {
        let a = || bytes::Bytes::from_static(b"a");
        let step = |map| PathStep { map, field: a() };
        let path = vec![step(MapType::GrowOnly), step(MapType::Resettable)];
        golden(
            &Update { path, op: ValueOp::ResettableCounter(ResettableCounterOp::Reset) },
            "020001610101610101",
        );
        for (op, hex) in [
            (ValueOp::Counter(-1), "000001"),
            (ValueOp::ResettableCounter(ResettableCounterOp::Add(300)), "000100fb5802"),
            (ValueOp::BoundedCounter(-2), "000203"),
            (ValueOp::TransferRights { to: dc(1), amount: 2 }, "00030102"),
            (ValueOp::LwwRegister(a()), "00040161"),
            (ValueOp::MvRegister(RegisterOp::Assign(a())), "0005000161"),
            (ValueOp::MvRegister(RegisterOp::Reset), "000501"),
            (ValueOp::Versioned { version: 7, value: a(), done: true }, "000607016101"),
            (ValueOp::AddWinsSet(SetOp::Add(vec![a(), a()])), "0007000201610161"),
            (ValueOp::AddWinsSet(SetOp::Remove(vec![a()])), "000701010161"),
            (ValueOp::AddWinsSet(SetOp::Reset), "000702"),
            (ValueOp::RemoveWinsSet(SetOp::Reset), "000802"),
            (ValueOp::GrowOnlySet(vec![a()]), "0009010161"),
            (ValueOp::EnableWinsFlag(FlagOp::Enable), "000a00"),
            (ValueOp::EnableWinsFlag(FlagOp::Disable), "000a01"),
            (ValueOp::DisableWinsFlag(FlagOp::Reset), "000b02"),
            (ValueOp::ResettableMap(MapOp::Remove(vec![a()])), "000c00010161"),
            (ValueOp::ResettableMap(MapOp::Reset), "000c01"),
        ] {
            golden(&Update::of(op), hex);
        }
    }

    #[test]
    fn a_checkpoint_is_read_as_it_was_written() {
        use crdts::CmRDT;
        let mut ownership = Ownership::new(3);
        let lock = LockName::new(b"a").expect("valid");
        ownership.apply(PartMove { lock: lock.clone(), part: dc(1), owner: dc(0), version: 2 });
        let wants = Wants::all(vec![(lock, Mode::Shared)]).expect("one lock");
        let checkpoint = Checkpoint {
            position: Position(8),
            members: DcSet::from_iter([dc(0), dc(1)]),
            joined: true,
            clock: Timestamp::from_raw(9),
            n: 10,
            applied: VersionVector::from_iter([(dc(0), 1)]),
            last_stamps: vec![(dc(0), Timestamp::from_raw(4))],
            ownership,
            requests: vec![RequestRow {
                id: RequestId { dc: dc(0), n: 1 },
                at: Timestamp::ZERO,
                wants,
                seq: 1,
            }],
            leases: vec![],
            contents: vec![(Key::new(b"b", b"k").expect("valid"), Content::default())],
            outcomes: vec![OutcomeRow {
                lease: LeaseId::new(dc(1), 5),
                secret: Secret::new([9; 16]),
                ended: true,
                commits: vec![(7, VersionVector::from_iter([(dc(1), 2)]))],
            }],
            log: vec![Arc::new(entry())],
            past: Past {
                forgotten: VersionVector::from_iter([(dc(0), 1)]),
                entries: vec![Arc::new(entry())],
            },
            forced: vec![Arc::new(forced())],
            hashes: vec![(dc(0), vec![0, 7])],
            all_speak: 3,
            fork: Some(Fork { dc: dc(2), seq: 5, ours: 6, theirs: 7, peer: dc(1) }),
            lead_ms: 9,
            members_state: None,
            lost_commits: Vec::new(),
            commit_contents: Vec::new(),
        };
        for members_state in [None, Some(MembersState::default())] {
            for lost_commits in [vec![], vec![(LeaseId::new(dc(0), 3), 4)]] {
                let members_state = members_state.clone();
                let checkpoint = Checkpoint { members_state, lost_commits, ..checkpoint.clone() };
                let bytes = checkpoint.encode().expect("it is small");
                assert_eq!(Checkpoint::decode(&bytes).expect("its own bytes"), checkpoint);
            }
        }
    }

    const GOLDEN_COMMIT: &str = "03010501fb010509040301626b000000030301626b010301626b02fb2c010301626b03";
    const GOLDEN_HEARTBEAT_V1: &str = "00fc020001000300000402010103fa0102060101";
    const GOLDEN_HEARTBEAT: &str = "11fc020001000300000402010103fa0102060101020102fa02030764c8f001010501020302010202fb2c01070103fa01020109";
    const GOLDEN_HEARTBEAT_V2: &str =
        "0dfc020001000300000402010103fa0102060101020102fa02030764c8f001010501020302070103fa01020109";
    const GOLDEN_ENTRIES: &str =
        "0e0107000102fc00000100020501030101fb2c010202010261ff0101030001fb2c01fc0000020000010261ff0109fb2c01";
    const GOLDEN_ENTRY_RECORD: &str =
        "0907000102fc00000100020501030101fb2c010202010261ff0101030001fb2c01fc0000020000010261ff0109fb2c01";
    const GOLDEN_ENTRIES_V1: &str =
        "010107000102fc00000100020501030101fb2c010202010261ff0101030001fb2c01fc0000020000010261ff01";
    const GOLDEN_HOLDERS: &str = "040102010202010009026d6501fc0065cd1d00";
    const GOLDEN_ENTRY_RECORD_V1: &str =
        "0007000102fc00000100020501030101fb2c010202010261ff0101030001fb2c01fc0000020000010261ff01";
    const GOLDEN_FORCED: &str =
        "0803fb2c010a636c69656e7420616e6e0869742068616e6773016101fb0105010709026d6502";
    const GOLDEN_LEASE: &str = "02fb0105090909090909090909090909090909090a0001";
}
