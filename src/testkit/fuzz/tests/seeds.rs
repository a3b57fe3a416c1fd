//! Valid bytes of every kind, for the committed corpus.

use std::sync::Arc;

use prost::Message as _;

use super::Random;
use crate::access::NewToken;
use crate::base::time::Timestamp;
use crate::base::wire;
use crate::interdc::fuzz::{hello_bytes, stream_bytes};
use crate::journal::fuzz::{checkpoint_bytes, segment_bytes};
use crate::replica::fuzz::StateBytes;
use crate::replica::{Message, Record};
use crate::testkit::fuzz::native_frames::stream_bytes as native_bytes;
use crate::testkit::fuzz::sequence::{Harvest, harvest};
use geolock_api::names::{DcId, LockName, Mode, RequestId};
use geolock_api::proto::{self, client_message::Call};

/// Most inputs of each kind.
const MOST: usize = 12;

pub(super) fn all() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let Harvest { messages, records, checkpoints } = harvest();
    let entries = records.iter().filter_map(|record| match record {
        Record::Entry(entry) => Some(Arc::clone(entry)),
        _ => None,
    });
    let entries = different(entries.map(|entry| wire::encode("entry", &*entry).expect("it is small")));
    let all_records = different(records.iter().map(|record| wire::encode("record", record).expect("small")));
    let message = |message: &Message| wire::encode("message", message).expect("it is small");
    let checkpoints = checkpoints.iter().map(|state| state.encode().expect("it is small"));
    let text = |path: &str| {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        vec![std::fs::read(path).expect("an example is there")]
    };
    vec![
        (
            "link_frames",
            vec![
                stream_bytes(0, &[b"a", b"bcd"]),
                stream_bytes(2, &entries.iter().map(|e| &e[..]).collect::<Vec<_>>()),
            ],
        ),
        ("hello", vec![hello_bytes((1, 1)), hello_bytes((1, 300))]),
        ("message", different(messages.iter().map(message))),
        ("entry", entries),
        ("journal_segment", vec![segment_bytes(&all_records)]),
        ("journal_checkpoint", vec![checkpoint_bytes()]),
        ("record", all_records),
        ("checkpoint", different(checkpoints)),
        ("state_piece", vec![state()]),
        ("config_text", text("examples/geolock.toml")),
        ("access_rules", text("examples/acl.toml")),
        ("access_tokens", vec![tokens()]),
        ("client_message", client_messages()),
        ("native_frames", vec![native_bytes(0, &[]), native_bytes(6, &calls().map(on_stream))]),
        ("sequence", (0..4).map(|seed| Random(seed).bytes(1_000)).collect()),
    ]
}

/// Keeps inputs of different kinds, that is, with different first bytes or lengths.
fn different(all: impl Iterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
    let mut kept: Vec<Vec<u8>> = Vec::new();
    for bytes in all.filter(|bytes| bytes.len() < 4_000) {
        let is_like =
            |other: &Vec<u8>| other.first() == bytes.first() && other.len().abs_diff(bytes.len()) < 8;
        if !kept.iter().any(is_like) && kept.len() < 3 * MOST {
            kept.push(bytes);
        }
    }
    // The first of each kind, then the rest.
    let mut seen = std::collections::BTreeSet::new();
    let (mut first, rest): (Vec<_>, Vec<_>) = kept.into_iter().partition(|bytes| seen.insert(bytes[0]));
    first.extend(rest);
    first.truncate(MOST.max(seen.len()));
    first
}

fn state() -> Vec<u8> {
    let (dc, lock) = (|id| DcId::new(id).expect("a small id"), LockName::new(b"a").expect("a short name"));
    let vector = [(dc(0), 3), (dc(1), 2)].into_iter().collect();
    StateBytes::new()
        .head(vector, &[Timestamp::from_millis(2), Timestamp::from_millis(3)])
        .part(lock.clone(), dc(1), dc(0), 2)
        .request(RequestId { dc: dc(1), n: 4 }, Timestamp::from_millis(2), vec![(lock, Mode::Exclusive)], 2)
        .finish()
        .to_vec()
}

fn tokens() -> Vec<u8> {
    let line = |name| NewToken::generate(name).expect("there is randomness").line().to_owned();
    format!("# who\n{}\n\n{} # and why\n", line("ci"), line("app")).into_bytes()
}

/// Calls of a client on a stream.
fn calls() -> [Call; 10] {
    let secret = bytes::Bytes::from_static(&[7; 16]);
    let locks = vec![proto::LockMode {
        name: bytes::Bytes::from_static(b"a"),
        mode: proto::Mode::Exclusive.into(),
        home: Some(0),
    }];
    let lease = 1 << 8;
    [
        Call::Hello(proto::Hello { revision: 1, client: "fuzz".into() }),
        Call::OpenLease(proto::OpenLeaseRequest { ttl_ms: 5_000, ..Default::default() }),
        Call::AttachLease(proto::AttachLeaseRequest { lease, secret: secret.clone() }),
        Call::KeepAlive(proto::KeepAliveRequest { lease, secret: secret.clone() }),
        Call::CloseLease(proto::CloseLeaseRequest { lease, secret: secret.clone() }),
        Call::Acquire(proto::AcquireRequest {
            lease,
            secret: secret.clone(),
            idempotency_key: 1,
            locks,
            wait: Some(proto::acquire_request::Wait::WaitMs(100)),
            label: "who".into(),
            enough: None,
        }),
        Call::Release(proto::ReleaseRequest {
            lease,
            secret: secret.clone(),
            target: Some(proto::release_request::Target::IdempotencyKey(1)),
        }),
        Call::Reclaim(proto::ReclaimRequest { lease, secret, ..Default::default() }),
        Call::Begin(begin()),
        Call::Read(proto::ReadRequest { keys: vec![store_key()], ..Default::default() }),
    ]
}

fn begin() -> proto::BeginRequest {
    let secret = bytes::Bytes::from_static(&[7; 16]);
    proto::BeginRequest {
        lease: 1 << 8,
        secret,
        idempotency_key: 2,
        step: Some(step()),
        ..Default::default()
    }
}

fn on_stream(call: Call) -> proto::ClientMessage {
    proto::ClientMessage { tag: 1, call: Some(call) }
}

fn client_messages() -> Vec<Vec<u8>> {
    let on_stream = |call| [&[0][..], &on_stream(call).encode_to_vec()].concat();
    let mut all: Vec<Vec<u8>> = calls().into_iter().map(on_stream).collect();
    let keys = proto::WatchRequest { keys: vec![store_key()], ..Default::default() };
    let names = vec![bytes::Bytes::from_static(b"a")];
    let locks = proto::WatchLocksRequest { names, ..Default::default() };
    all.push([&[2][..], &keys.encode_to_vec()].concat());
    all.push([&[3][..], &locks.encode_to_vec()].concat());
    all.push(vec![4]);
    let name = bytes::Bytes::from_static(b"a");
    let force = proto::ForceReleaseRequest { name: name.clone(), reason: "it hangs".into(), home: None };
    all.push([&[5][..], &proto::DescribeLockRequest { name, home: Some(1) }.encode_to_vec()].concat());
    all.push([&[6][..], &force.encode_to_vec()].concat());
    all.push([&[7][..], &begin().encode_to_vec()].concat());
    all
}

fn store_key() -> proto::Key {
    let bytes = |text| bytes::Bytes::from_static(text);
    proto::Key { bucket: bytes(b"b"), name: bytes(b"k") }
}

fn step() -> proto::Step {
    let update = proto::Update { path: vec![], op: Some(proto::update::Op::Counter(-3)) };
    let change =
        proto::Change { key: Some(store_key()), action: Some(proto::change::Action::Update(update)) };
    proto::Step {
        changes: vec![change],
        reads: vec![store_key()],
        then: proto::Then::Commit.into(),
        ..Default::default()
    }
}
