//! The cost of encoding and decoding the most frequent messages: between datacenters and in the journal
//! (`wire`), and between a client and its server (frames of the native protocol). The baseline, for each in
//! the same run, is a copy of the bytes into newly allocated memory.
//!
//! `cargo bench --bench codec`. Nanoseconds, medians of rounds.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a bench reads clocks")]

mod rounds;

use std::hint::black_box;
use std::time::Instant;

use bytes::BytesMut;
use geolock::base::time::Timestamp;
use geolock::base::wire;
use geolock::causal_log::{Action, Change, Commit, Entry, LockParts, Op, Wants};
use geolock::crdt::VersionVector;
use geolock::replica::{Heartbeat, Message, Record};
use geolock_api::keys::Key;
use geolock_api::names::{ClusterId, DcId, DcSet, LeaseId, LockName, Mode, RequestId};
use geolock_api::native::{self, Decoder, Kind};
use geolock_api::proto::client_message::Call;
use geolock_api::proto::server_message::Answer;
use geolock_api::proto::{self, ClientMessage, ServerMessage, acquire_request};
use geolock_api::value::{self, Update};
use rounds::{AnyError, median};

const ROUNDS: usize = 21;
const TIMES: u32 = 20_000;

fn main() -> Result<(), AnyError> {
    println!("{:>34} {:>7} {:>8} {:>8} {:>9}  ratios", "", "bytes", "to ns", "from ns", "copied ns");
    wire_codec("one lock moves: entry to a peer", &Message::Entries(vec![moves(1).into()]))?;
    wire_codec("a hundred locks move", &Message::Entries(vec![moves(100).into()]))?;
    wire_codec("a request for a lock", &Message::Entries(vec![request().into()]))?;
    wire_codec("a commit of one change: record", &Record::Entry(commit().into()))?;
    wire_codec("a heartbeat", &Message::Heartbeat(heartbeat().into()))?;
    frames::<ClientMessage>("a client acquires a lock: frame", &acquire())?;
    frames::<ServerMessage>("it is granted: frame", &acquired())
}

fn wire_codec<T>(what: &str, value: &T) -> Result<(), AnyError>
where
    T: serde::Serialize + serde::de::DeserializeOwned + PartialEq,
{
    let bytes = wire::encode("bench", value)?;
    assert!(wire::decode::<T>("bench", &bytes)? == *value, "{what} comes back as it was");
    let to = nanos(|| drop(black_box(wire::encode("bench", black_box(value)))));
    let from = nanos(|| drop(black_box(wire::decode::<T>("bench", black_box(&bytes)))));
    print(what, &bytes, to, from);
    Ok(())
}

fn frames<T: prost::Message + PartialEq + Default>(what: &str, value: &T) -> Result<(), AnyError> {
    let mut bytes = BytesMut::new();
    native::put(&mut bytes, Kind::Message, value);
    let bytes = bytes.freeze();
    let mut decoder = Decoder::new(1 << 20);
    let mut read = || -> Result<T, native::FrameError> {
        decoder.bytes().extend_from_slice(black_box(&bytes));
        native::decode(decoder.next_frame()?.expect("all of it is there").body)
    };
    assert!(read()? == *value, "{what} comes back as it was");
    let from = nanos(|| drop(black_box(read())));
    let mut out = BytesMut::new();
    let to = nanos(|| {
        out.clear();
        native::put(&mut out, Kind::Message, black_box(value));
        black_box(&out);
    });
    print(what, &bytes, to, from);
    Ok(())
}

fn print(what: &str, bytes: &[u8], to: f64, from: f64) {
    let copied = nanos(|| drop(black_box(black_box(bytes).to_vec())));
    let (to_ratio, from_ratio) = (to / copied, from / copied);
    println!(
        "{what:>34} {:>7} {to:>8.0} {from:>8.0} {copied:>9.0}  {to_ratio:.1} {from_ratio:.1}",
        bytes.len()
    );
}

/// Returns the time of one call, in the median round.
fn nanos(mut work: impl FnMut()) -> f64 {
    let round = |_| {
        let start = Instant::now();
        (0..TIMES).for_each(|_| work());
        start.elapsed().as_secs_f64() * 1e9 / f64::from(TIMES)
    };
    median((0..ROUNDS).map(round).collect())
}

fn dc(id: u8) -> DcId {
    DcId::new(id).expect("a small id")
}

fn vector() -> VersionVector {
    (0..3).map(|id| (dc(id), 1_234_567 + u64::from(id))).collect()
}

fn lock(i: usize) -> LockName {
    LockName::try_from(&*format!("tenant/{i}/order")).expect("a valid name")
}

fn at() -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000)
}

fn entry(op: Op) -> Entry {
    let (cluster, seq) = (ClusterId::of("bench"), 1_234_568);
    Entry { cluster, epoch: 0, prev: 0, lead_ms: 0, dc: dc(0), seq, at: at(), deps: vector(), ops: vec![op] }
}

fn moves(locks: usize) -> Entry {
    let parts = |i| LockParts { lock: lock(i), parts: (0..3).map(|id| (dc(id), 77)).collect() };
    entry(Op::Transfer { to: dc(2), parts: (0..locks).map(parts).collect() })
}

fn request() -> Entry {
    let wants = Wants::all(vec![(lock(7), Mode::Exclusive)]).expect("one lock");
    entry(Op::Request { id: RequestId { dc: dc(0), n: 1_234_567 }, at: at(), wants })
}

fn commit() -> Entry {
    let key = Key::new(b"bench", b"account/4711").expect("a valid key");
    let changes = vec![Change { key, action: Action::Update(Update::of(value::Op::Counter(1))) }];
    let client = Some((LeaseId::new(dc(0), 42), 1_234_567));
    entry(Op::Commit(Commit { seen: vector(), client, changes }))
}

fn heartbeat() -> Heartbeat {
    let linked: DcSet = (1..3).map(dc).collect();
    let heard = linked.iter().map(|dc| (dc, at(), 250)).collect();
    Heartbeat { clock: at(), durable: vector(), linked, heard, floors: Vec::new(), ..Heartbeat::default() }
}

fn acquire() -> ClientMessage {
    let wanted =
        proto::LockMode { name: "tenant/7/order".into(), mode: proto::Mode::Exclusive.into(), home: None };
    let acquire = proto::AcquireRequest {
        lease: LeaseId::new(dc(0), 42).get(),
        locks: vec![wanted],
        wait: Some(acquire_request::Wait::WaitForever(proto::WaitForever {})),
        idempotency_key: 1_234_567,
        ..Default::default()
    };
    ClientMessage { tag: 1_234_567, call: Some(Call::Acquire(acquire)) }
}

fn acquired() -> ServerMessage {
    let request = Some(proto::RequestId { dc: 0, n: 1_234_567 });
    let snapshot = Some(proto::Snapshot { seqs: vec![1_234_567; 3] });
    let acquired =
        proto::AcquireResponse { request, token: 1_234_567, snapshot, chosen: Vec::new(), revision: 0 };
    ServerMessage { tag: 1_234_567, answer: Some(Answer::Acquired(acquired)) }
}
