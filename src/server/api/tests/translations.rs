//! Valid messages become the right calls, and answers carry the datacenter's replies.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;

use crate::base::capacity::{DiskSpace, Load};
use crate::base::histogram::Histogram;
use crate::base::time::Timestamp;
use crate::causal_log::Wants;
use crate::crdt::VersionVector;
use crate::journal::{Figures, LastCheckpoint};
use crate::lock_server::fakes::{dc, name};
use crate::replica::NotServing;
use crate::replica::call::{
    Acquire, Acquires, AtStake, Call, Counts, Grant, Heat, HolderInfo, HotLock, ListCursor, LockDescription,
    LockRequest, LockSummary, MembersStatus, OnDisconnect, PeerStatus, Phase, Proof, Reclaim, Refusal, Reply,
    Status, Target, Wait, WaiterInfo,
};
use crate::server::api::convert::lock::ReclaimPiece;
use crate::server::api::convert::{ProofBy, inspect, lease, lock, session, status};
use crate::server::api::error;
use crate::server::api::reclaim::Gathered;
use crate::server::api::server_info::ServerInfo;
use crate::telemetry::{CertificateFigures, LinkFigures, Snapshot};
use geolock_api::keys::Key;
use geolock_api::names::{DcSet, FencingToken, LeaseId, Mode, RequestId, Secret};
use geolock_api::proto::server_message::Answer;
use geolock_api::proto::{self, acquire_request, cancel_request, release_request};

const LEASE: u64 = 0x2a00;
const SECRET: [u8; 16] = [7; 16];

pub(super) fn info() -> ServerInfo {
    ServerInfo {
        dc: dc(0),
        names: BTreeMap::from([(dc(0), "oslo".to_owned())]),
        boot_id: 99,
        started: Instant::now(),
        members: None,
    }
}

pub(super) fn secret() -> Bytes {
    Bytes::copy_from_slice(&SECRET)
}

pub(super) fn lock(name: &[u8], mode: proto::Mode) -> proto::LockMode {
    proto::LockMode { name: Bytes::copy_from_slice(name), mode: mode.into(), home: None }
}

pub(super) fn acquire_message() -> proto::AcquireRequest {
    proto::AcquireRequest {
        lease: LEASE,
        secret: Bytes::new(),
        locks: vec![lock(b"b", proto::Mode::Exclusive), lock(b"\xff\0", proto::Mode::Shared)],
        wait: Some(acquire_request::Wait::WaitMs(1500)),
        idempotency_key: 3,
        label: "me".to_owned(),
        enough: None,
    }
}

pub(super) fn held_message() -> proto::HeldLocks {
    proto::HeldLocks {
        request: Some(proto::RequestId { dc: 1, n: 5 }),
        idempotency_key: 3,
        locks: vec![lock(b"a", proto::Mode::Shared)],
        token: 17,
        label: "me".to_owned(),
    }
}

fn held() -> Reclaim {
    Reclaim {
        request: RequestId { dc: dc(1), n: 5 },
        key: Some(3),
        wants: Wants::all(vec![(name("a"), Mode::Shared)]).expect("one lock"),
        token: FencingToken(17),
        label: "me".into(),
    }
}

fn lease() -> LeaseId {
    LeaseId::from_raw(LEASE)
}

#[test]
fn an_acquire_means_what_it_says() {
    let call = lock::acquire(acquire_message(), ProofBy::SecretOrStream).expect("it is well formed");
    let odd = geolock_api::names::LockName::new(b"\xff\0").expect("names are any bytes");
    let expected = Acquire {
        lease: lease(),
        proof: Proof::Attached,
        key: Some(3),
        request: LockRequest {
            wants: Wants::all(vec![(name("b"), Mode::Exclusive), (odd, Mode::Shared)]).expect("two locks"),
            wait: Wait::AtMost(Duration::from_millis(1500)),
            label: "me".into(),
        },
    };
    assert_eq!(call, Call::Acquire(expected));
}

#[test]
fn an_acquire_may_wait_not_at_all_or_for_ever_and_needs_no_key_on_a_stream() {
    use acquire_request::Wait as Message;
    let parsed = |wait| {
        let message = proto::AcquireRequest { wait: Some(wait), idempotency_key: 0, ..acquire_message() };
        match lock::acquire(message, ProofBy::SecretOrStream) {
            Ok(Call::Acquire(acquire)) => (acquire.request.wait, acquire.key),
            other => panic!("an acquire was expected, this is {other:?}"),
        }
    };
    assert_eq!(parsed(Message::TryOnce(proto::TryOnce {})), (Wait::Try, None));
    assert_eq!(parsed(Message::WaitForever(proto::WaitForever {})), (Wait::Forever, None));
    assert_eq!(parsed(Message::WaitMs(0)), (Wait::AtMost(Duration::ZERO), None));
    assert_eq!(parsed(Message::WaitMs(u64::MAX)), (Wait::AtMost(Duration::from_millis(u64::MAX)), None));
}

#[test]
fn leases_are_opened_with_secrets_of_their_own() {
    let message = |ttl_ms, on_disconnect: proto::OnDisconnect| proto::OpenLeaseRequest {
        ttl_ms,
        on_disconnect: on_disconnect.into(),
    };
    let open = |message, by| lease::open_lease(&message, by).expect("it is well formed");
    let (call, secret) = open(message(0, proto::OnDisconnect::Release), ProofBy::SecretOrStream);
    let expected = |secret, ttl, on_disconnect| Call::OpenLease { secret, ttl, on_disconnect };
    assert_eq!(call, expected(secret, None, OnDisconnect::Release));
    let (call, other) = open(message(1, proto::OnDisconnect::Unspecified), ProofBy::SecretOrStream);
    assert_eq!(call, expected(other, Some(Duration::from_millis(1)), OnDisconnect::Keep));
    assert!(!secret.matches(&other));
    let (call, unary) = open(message(1, proto::OnDisconnect::Release), ProofBy::Secret);
    assert_eq!(
        call,
        expected(unary, Some(Duration::from_millis(1)), OnDisconnect::Keep),
        "there is no stream"
    );
}

#[test]
fn the_other_calls_mean_what_they_say() {
    const STREAM: ProofBy = ProofBy::SecretOrStream;
    let proof = Proof::Secret(Secret::new(SECRET));
    let lease = lease();
    let attach = lease::attach_lease(&proto::AttachLeaseRequest { lease: LEASE, secret: secret() });
    assert_eq!(attach.ok(), Some(Call::AttachLease { lease, secret: Secret::new(SECRET) }));
    let alive = lease::keep_alive(&proto::KeepAliveRequest { lease: LEASE, secret: secret() }, STREAM);
    assert_eq!(alive.ok(), Some(Call::KeepAlive { lease, proof }));
    let close = proto::CloseLeaseRequest { lease: LEASE, secret: Bytes::new() };
    let close = lease::close_lease(&close, STREAM);
    assert_eq!(close.ok(), Some(Call::CloseLease { lease, proof: Proof::Attached }));
    let release = proto::ReleaseRequest {
        lease: LEASE,
        secret: secret(),
        target: Some(release_request::Target::Request(proto::RequestId { dc: 1, n: 5 })),
    };
    let target = Target::Id(RequestId { dc: dc(1), n: 5 });
    assert_eq!(lock::release(&release, STREAM).ok(), Some(Call::Release { lease, proof, target }));
    let cancel = proto::CancelRequest {
        lease: LEASE,
        secret: secret(),
        target: Some(cancel_request::Target::IdempotencyKey(3)),
    };
    let target = Target::Key(3);
    assert_eq!(lock::cancel(&cancel, STREAM).ok(), Some(Call::Cancel { lease, proof, target }));
    let describe = proto::DescribeLockRequest { name: Bytes::from_static(b"a"), home: None };
    assert_eq!(inspect::describe(&describe).ok(), Some(Call::Describe { lock: name("a") }));
}

#[test]
fn pages_are_bounded_and_go_on_where_they_ended() {
    let list = |page_size, page_token| {
        inspect::list(proto::ListLocksRequest { prefix: Bytes::from_static(b"p"), page_size, page_token })
    };
    let expected = |limit, cursor| Call::List { prefix: b"p".to_vec(), cursor: ListCursor(cursor), limit };
    assert_eq!(list(0, Bytes::new()).ok(), Some(expected(100, 0)));
    assert_eq!(list(u32::MAX, inspect::page_token(Some(ListCursor(7)))).ok(), Some(expected(1000, 7)));
    assert_eq!(inspect::page_token(None), Bytes::new());
    let keys = |bucket, page_token| {
        let (bucket, prefix) = (Bytes::from_static(bucket), Bytes::from_static(b"p"));
        inspect::list_keys(proto::ListKeysRequest { bucket, prefix, page_size: 5, page_token })
    };
    let prefix = Key::prefix_bytes(b"b", b"p").expect("a short one");
    let expected = Call::ListKeys { prefix, cursor: ListCursor(7), limit: 5 };
    assert_eq!(keys(b"b", inspect::page_token(Some(ListCursor(7)))).ok(), Some(expected));
    assert!(keys(b"", Bytes::new()).is_err() && keys(b"b", Bytes::from_static(b"made up")).is_err());
}

#[test]
fn a_reclaim_may_come_in_pieces() {
    let message = |held, more| proto::ReclaimRequest { lease: LEASE, secret: secret(), held, more };
    let piece = |count, more| -> ReclaimPiece {
        let message = message(vec![held_message(); count], more);
        lock::reclaim(&message, ProofBy::SecretOrStream).expect("it is well formed")
    };
    let whole = |count| Call::Reclaim {
        lease: lease(),
        proof: Proof::Secret(Secret::new(SECRET)),
        held: vec![held(); count],
    };
    let mut gathered = Gathered::new(Arc::default());
    let mut add = |piece| gathered.add(piece).expect("it is small");
    assert_eq!(add(piece(0, false)), Some(whole(0)));
    assert_eq!(add(piece(2, true)), None);
    assert_eq!(add(piece(3, true)), None);
    assert_eq!(add(piece(1, false)), Some(whole(6)));
    assert_eq!(add(piece(1, false)), Some(whole(1)), "nothing is left of the one before");
}

#[test]
fn answers_on_a_stream_say_what_the_datacenter_said() {
    let info = info();
    let answer = |reply, asked| session::answer(&info, reply, asked).expect("the reply fits");
    let snapshot: VersionVector = [(dc(1), 4)].into_iter().collect();
    let grant = Grant {
        request: RequestId { dc: dc(0), n: 5 },
        token: FencingToken(17),
        snapshot: Arc::new(snapshot),
    };
    assert_eq!(
        answer(Reply::Granted(grant), None),
        Answer::Acquired(proto::AcquireResponse {
            request: Some(proto::RequestId { dc: 0, n: 5 }),
            token: 17,
            snapshot: Some(proto::Snapshot { seqs: vec![0, 4] }),
            chosen: vec![],
            revision: 0,
        })
    );
    let opened = Reply::LeaseOpened { lease: lease(), ttl: Duration::from_micros(1500) };
    assert_eq!(
        answer(opened, Some(session::Asked::OpenLease(Secret::new(SECRET)))),
        Answer::LeaseOpened(proto::OpenLeaseResponse {
            lease: LEASE,
            secret: secret(),
            ttl_ms: 2,
            boot_id: 99,
        })
    );
    assert_eq!(answer(Reply::Released, None), Answer::Released(proto::ReleaseResponse {}));
    let cancelled = answer(Reply::Released, Some(session::Asked::Cancel));
    assert_eq!(cancelled, Answer::Cancelled(proto::CancelResponse {}));
    assert!(session::answer(&info, Reply::Status(Box::new(status())), None).is_err(), "that is a bug");
}

/// Returns a histogram with one duration, in milliseconds.
fn took(millis: u64) -> Histogram {
    let mut histogram = Histogram::default();
    histogram.record(Duration::from_millis(millis));
    histogram
}

fn status() -> Status {
    Status {
        dc: dc(0),
        phase: Phase::Grace { leases: 2 },
        draining: false,
        disk_space: DiskSpace::Low,
        load: Load::TooMuch,
        clock_skew: true,
        clock_behind_ms: 0,
        backed_for_ms: None,
        unknown_leases_ms: 0,
        applied: VersionVector::default(),
        durable: VersionVector::default(),
        members: MembersStatus {
            decision: 9,
            epoch: 7,
            evicting: DcSet::only(dc(1)),
            only_here: Some(3),
            own: AtStake { away_locks: 1, ..AtStake::default() },
            waiting_is_least: true,
        },
        peers: vec![PeerStatus {
            dc: dc(1),
            connected: true,
            reachable: true,
            acknowledged: VersionVector::default(),
            unacked_entries: 3,
            lag_ms: 2_500,
            missing_entries: 4,
            too_far_behind: false,
            clock_ahead_ms: -7,
            paused_by_skew: false,
            not_serving: Some(NotServing::Grace { for_ms: 1_500 }),
            differing: vec!["api.acl"],
            at_stake: AtStake { away_locks: 6, waiting: 2, heard_ms: Some(90), silent: DcSet::only(dc(2)) },
        }],
        counts: Counts { grants: 5, held: 1, ..Counts::default() },
        acquires: Acquires { remote: took(5), ..Acquires::default() },
        majority_waits: took(7),
        witnesses: Vec::new(),
    }
}

#[test]
fn status_shows_datacenter_links_and_counts() {
    let link = LinkFigures {
        peer: dc(1),
        rtt: Some(Duration::from_millis(80)),
        queued: 0,
        connects: 1,
        messages_sent: 10,
        messages_received: 11,
        bytes_sent: 12_000,
        bytes_received: 13_000,
    };
    let made = Instant::now();
    let last = LastCheckpoint { position: 7, bytes: 300, made: Some(made) };
    let journal =
        Figures { durable: 9, free_bytes: Some(5), last_checkpoint: Some(last), ..Figures::default() };
    let picture = Snapshot {
        status: status(),
        journal,
        sync_times: took(1),
        mailbox_delays: took(2),
        mailbox_bytes: 0,
        links: vec![link],
        links_failed: false,
    };
    let certificate = CertificateFigures {
        name: "tls.api",
        expires: SystemTime::now() + Duration::from_secs(3_600),
        expires_soon: true,
        failure: Some("torn".into()),
    };
    let shown = status::status(&info(), &status(), Some(&picture), &[certificate]);
    let certificate = &shown.certificates[0];
    assert_eq!((certificate.name.as_str(), certificate.failure.as_str()), ("tls.api", "torn"));
    assert!(certificate.expires_soon && (3_000_000..=3_600_000).contains(&certificate.expires_in_ms));
    assert_eq!((shown.dc_name.as_str(), shown.phase(), shown.grace_leases), ("oslo", proto::Phase::Grace, 2));
    assert_eq!((shown.clock_skew, shown.overloaded, shown.draining), (true, true, false));
    assert_eq!(shown.boot_id, 99);
    assert_eq!((shown.counts["grants_total"], shown.counts["held"]), (5, 1));
    let names: Vec<&str> = shown.durations.keys().map(String::as_str).collect();
    assert_eq!(names, ["acquire_local", "acquire_remote", "journal_sync", "mailbox_delay", "majority_wait"]);
    assert_eq!(
        (shown.durations["acquire_local"].count, &shown.durations["acquire_local"].buckets[..]),
        (0, &[][..])
    );
    let remote = &shown.durations["acquire_remote"];
    let bucket = proto::HistogramBucket { above_us: 4_096, up_to_us: 5_120, count: 1 };
    assert_eq!((remote.count, remote.sum_us, &remote.buckets[..]), (1, 5_000, &[bucket][..]));
    let peer = &shown.peers[0];
    assert_eq!(
        (peer.unacked_entries, peer.clock_ahead_ms, peer.rtt_us, peer.messages_sent, peer.bytes_sent),
        (3, -7, 80_000, 10, 12_000)
    );
    assert_eq!((peer.not_serving(), peer.grace_remaining_ms), (proto::NotServing::Grace, 1_500));
    assert_eq!((peer.lag_ms, peer.missing_entries, peer.too_far_behind), (2_500, 4, false));
    let stake = peer.at_stake.expect("each peer has one");
    assert_eq!((stake.away_locks, stake.waiting, stake.heard_ms, stake.missing_entries), (6, 2, Some(90), 4));
    assert_eq!((stake.leases, peer.bytes_received, &peer.silent[..]), (None, 13_000, &[2][..]));
    assert_eq!((shown.decision, shown.epoch, &shown.evicting[..]), (9, 7, &[1][..]));
    let own = shown.at_stake.expect("it has one");
    assert_eq!(
        (own.away_locks, own.held, own.only_here, shown.waiting_is_least),
        (1, Some(1), Some(3), true)
    );
    assert_eq!(shown.disk_space(), proto::DiskSpace::Low);
    let journal = shown.journal.expect("there is a picture");
    assert_eq!((journal.position, journal.free_bytes), (9, Some(5)));
    let last = journal.last_checkpoint.expect("there is one");
    assert_eq!((last.position, last.bytes, last.age_ms.is_some()), (7, 300, true));
    let shown = status::status(&info(), &status(), None, &[]);
    assert_eq!((shown.journal, shown.peers[0].rtt_us), (None, 0));
}

#[test]
fn hot_locks_are_shown_with_who_has_them() {
    let heat = Heat {
        waited: Duration::from_micros(1_500),
        grants: 3,
        hand_offs: 2,
        max_wait: Duration::from_micros(900),
        ..Heat::default()
    };
    let hot = HotLock {
        lock: description("orders"),
        local_holders: 1,
        head_wait: Duration::from_millis(40),
        heat,
        tracked: Duration::from_secs(1),
    };
    let shown = inspect::hot_lock(&hot);
    assert_eq!(shown.lock.expect("it is shown").holders[0].label, "holder");
    assert_eq!((shown.local_holders, shown.head_wait_ms, shown.tracked_ms), (1, 40, 1_000));
    assert_eq!((shown.total_wait_us, shown.grants, shown.hand_offs, shown.max_wait_us), (1_500, 3, 2, 900));
    let top = |limit| inspect::top(proto::TopLocksRequest { prefix: Bytes::from_static(b"p"), limit });
    assert_eq!(top(0), Call::Top { prefix: b"p".to_vec(), limit: 20 });
    assert_eq!(top(7), Call::Top { prefix: b"p".to_vec(), limit: 7 });
}

pub(super) fn description(lock: &str) -> LockDescription {
    let request = RequestId { dc: dc(1), n: 5 };
    LockDescription {
        prefix_home: None,
        lock: name(lock),
        owners: vec![(dc(0), dc(1)), (dc(1), dc(1))],
        holders: vec![HolderInfo {
            dc: dc(1),
            request,
            mode: Mode::Exclusive,
            token: FencingToken(17),
            label: "holder".into(),
            held_for: Duration::from_millis(40),
        }],
        unknown: DcSet::only(dc(2)),
        waiters: vec![WaiterInfo {
            request,
            at: Timestamp::from_millis(1_000),
            mode: Mode::Shared,
            label: None,
            parked: true,
        }],
        waiting: 3,
        unreachable: DcSet::only(dc(2)),
        not_serving: vec![(dc(1), NotServing::Grace { for_ms: 1_500 })],
    }
}

#[test]
fn a_description_says_who_has_a_lock_and_who_waits_for_what() {
    let shown = inspect::description(&description("a"));
    assert_eq!(shown.name, Bytes::from_static(b"a"));
    assert_eq!(shown.owners[0], proto::PartOwner { part: 0, owner: 1 });
    let holder = &shown.holders[0];
    assert_eq!((holder.label.as_str(), holder.token, holder.held_for_ms), ("holder", 17, 40));
    assert_eq!((shown.waiters[0].at_ms, shown.waiters[0].parked, shown.waiting), (1_000, true, 3));
    assert_eq!((shown.unknown_dcs, shown.unreachable_dcs), (vec![2], vec![2]));
    let idle =
        proto::NotServingOwner { dc: 1, reason: proto::NotServing::Grace.into(), grace_remaining_ms: 1_500 };
    assert_eq!(shown.not_serving, [idle]);
}

#[test]
fn a_summary_says_how_a_lock_is_held_here() {
    let summary =
        |held| LockSummary { lock: name("a"), owned_parts: DcSet::only(dc(1)), holders: 2, held, waiting: 1 };
    assert_eq!(inspect::summary(&summary(Some(Mode::Shared))).held_mode(), proto::Mode::Shared);
    assert_eq!(inspect::summary(&summary(None)).held_mode(), proto::Mode::Unspecified);
}

#[test]
fn an_explanation_is_cut_to_what_there_is_room_for() {
    let locks: Vec<LockDescription> = (0..10_000).map(|i| description(&format!("lock {i}"))).collect();
    let count = locks.len();
    let error = error::refused(&Refusal::TimedOut(locks));
    assert!(prost::Message::encoded_len(&error) <= 1 << 20);
    assert!(error.locks.len() > 1000);
    assert_eq!(error.locks.len() + error.omitted_locks as usize, count);
}
