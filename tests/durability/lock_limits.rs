//! One request at each documented limit of locks, and one above. What is at the limit is held over a restart
//! of all servers, and is seen in the other datacenters. What is above is refused with a reason and a message
//! that names the limit, by the server itself and by the client library, and takes nothing.
//!
//! Guarantee: docs/guarantees.md#locks-after-a-restart.

use std::time::Duration;

use bytes::Bytes;

use crate::fixture::calls::acquire;
use crate::fixture::history::serving_at;
use crate::fixture::{Cluster, key, servers, within};
use crate::raw::{Raw, Refused, change, exclusive, is_refused, named};
use geolock::client::{
    AcquireError, AcquireRequest, AdminClient, Client, ClientConfig, LockGuard, LockName, Mode, Reason,
    Update, Wait,
};
use geolock_api::proto::{self, begin_locks};

/// Most locks of a request, the length of the longest name, and how many of these a request may have.
const LOCKS: usize = 10_000;
const NAME: usize = 1_024;
const LONGEST: usize = 1_024;
/// Longest label, and longest reason of a force release.
const TEXT: usize = 256;
/// Most guards of a transaction.
const GUARDS: usize = 16;

/// Returns names of this length, which begin alike.
fn names(what: &str, count: usize, len: usize) -> Vec<Vec<u8>> {
    (0..count).map(|n| format!("{what}{n:0width$}", width = len - what.len()).into_bytes()).collect()
}

fn locks(names: &[Vec<u8>]) -> Vec<proto::LockMode> {
    names.iter().map(|name| exclusive(name.clone())).collect()
}

fn candidates(names: &[Vec<u8>]) -> Vec<proto::Candidate> {
    names.iter().map(|name| proto::Candidate { name: name.clone().into(), home: None, weight: 1 }).collect()
}

fn lock_name(name: &[u8]) -> LockName {
    LockName::new(name).expect("it is valid")
}

fn request(names: &[Vec<u8>]) -> AcquireRequest {
    let (first, rest) = names.split_first().expect("at least one lock");
    let first = AcquireRequest::exclusive(lock_name(first));
    rest.iter().fold(first, |request, name| request.and(lock_name(name), Mode::Exclusive))
}

/// Requests at the limits.
struct Held {
    names: Vec<Vec<Vec<u8>>>,
    guards: Vec<LockGuard>,
}

async fn at_limits(client: &Client) -> Held {
    let names = vec![names("many", LOCKS, 10), names("long", LONGEST, NAME), names("labelled", 1, NAME)];
    let mut guards = Vec::new();
    for names in &names {
        guards.push(acquire(client, request(names).label("l".repeat(TEXT))).await);
    }
    Held { names, guards }
}

/// Requests above the limits, each with the first lock that it would take.
fn above(raw: &mut Raw) -> Vec<(proto::AcquireRequest, Reason, &'static str)> {
    let short = || names("above", 1, 8);
    let mut of = |names: &[Vec<u8>]| raw.acquire(locks(names));
    let (many, long) = (of(&names("above", LOCKS + 1, 10)), of(&names("above", LONGEST + 1, NAME)));
    let (longer, empty) = (of(&names("above", 1, NAME + 1)), of(&[Vec::new()]));
    let (none, labelled) = (of(&[]), of(&short()));
    let labelled = proto::AcquireRequest { label: "l".repeat(TEXT + 1), ..labelled };
    let mut enough = |names: &[Vec<u8>], amount, most| {
        let enough = proto::Enough { amount, most, candidates: candidates(names), revision: 0 };
        proto::AcquireRequest { enough: Some(enough), ..raw.acquire(Vec::new()) }
    };
    vec![
        (many, Reason::TooManyLocks, "10000"),
        (long, Reason::NamesTooLong, "1048576"),
        (longer, Reason::LockNameTooLong, "1024"),
        (empty, Reason::LockNameEmpty, "1 byte"),
        (none, Reason::NoLocks, "1 lock"),
        (labelled, Reason::LabelTooLong, "256"),
        (enough(&names("above", LOCKS + 1, 10), 1, 0), Reason::TooManyLocks, "10000"),
        (enough(&names("above", LONGEST + 1, NAME), 1, 0), Reason::NamesTooLong, "1048576"),
        (enough(&short(), 1, LOCKS as u32 + 1), Reason::Malformed, "10000"),
        (enough(&short(), 2, 0), Reason::NotEnough, "2 are wanted"),
    ]
}

/// The server refuses them, also as the locks of transactions, and so does the client library.
async fn above_limits(raw: &mut Raw, client: &Client) {
    for (request, reason, limit) in above(raw) {
        let locks = proto::BeginLocks {
            locks: request.locks.clone(),
            label: request.label.clone(),
            wait: Some(begin_locks::Wait::TryOnce(proto::TryOnce {})),
        };
        if request.enough.is_none() {
            let begin = raw.begin(vec![change(named("test", "not made"), Update::counter(1))]);
            let begin = proto::BeginRequest { locks: Some(locks), ..begin };
            is_refused(raw.transact(begin).await, reason, limit);
        }
        is_refused(within(raw.api.acquire(request)).await.map_err(Refused::from), reason, limit);
    }
    let labelled = request(&names("above", 1, 8)).label("l".repeat(TEXT + 1));
    for (request, reason, limit) in [
        (request(&names("above", LOCKS + 1, 10)), Reason::TooManyLocks, "10000"),
        (request(&names("above", LONGEST + 1, NAME)), Reason::NamesTooLong, "1048576"),
        (labelled, Reason::LabelTooLong, "256"),
    ] {
        match within(client.acquire(request)).await {
            Err(AcquireError::Refused(found, why)) => {
                is_refused::<()>(Err(Refused(found, why)), reason, limit)
            }
            other => panic!("it is refused for its content: {other:?}"),
        }
    }
    let read = client.read(&key("not made")).await.expect("it is up");
    assert!(!read.is_some(), "no refused transaction was made");
}

/// As many candidates as there may be, all of them wanted.
async fn enough_at_the_limit(raw: &mut Raw) {
    let (amount, most) = (LOCKS as u64, LOCKS as u32);
    let enough =
        proto::Enough { amount, most, candidates: candidates(&names("enough", LOCKS, 12)), revision: 0 };
    let request = proto::AcquireRequest { enough: Some(enough), ..raw.acquire(Vec::new()) };
    let granted = within(raw.api.acquire(request)).await.expect("it is within the limits").into_inner();
    assert_eq!(granted.chosen.len(), LOCKS);
    let target = granted.request.map(proto::release_request::Target::Request);
    let release = proto::ReleaseRequest { lease: raw.lease, secret: raw.secret.clone(), target };
    within(raw.api.release(release)).await.expect("it is held");
}

/// As many guards as a transaction may have, and one more.
async fn guards_of_a_transaction(raw: &mut Raw) {
    let mut under = Vec::new();
    for name in names("guard", GUARDS + 1, 8) {
        let request = raw.acquire(locks(&[name]));
        let granted = within(raw.api.acquire(request)).await.expect("it is free").into_inner();
        under.extend(granted.request);
    }
    let mut begin = |key: &'static str, under: &[proto::RequestId]| {
        let begin = raw.begin(vec![change(named("test", key), Update::counter(1))]);
        proto::BeginRequest { under: under.to_vec(), ..begin }
    };
    let (at, above) = (begin("guarded", &under[..GUARDS]), begin("not made", &under));
    raw.transact(at).await.expect("it is within the limit");
    is_refused(raw.transact(above).await, Reason::TransactionTooLarge, "16");
}

/// Times to live of leases, the name of a client, the reason of an operator.
async fn texts_and_times(cluster: &Cluster, raw: &mut Raw) {
    let open = |ttl_ms| proto::OpenLeaseRequest { ttl_ms, ..Default::default() };
    for ttl_ms in [1_000, 60_000] {
        let opened =
            within(raw.api.open_lease(open(ttl_ms))).await.expect("it is within the limits").into_inner();
        let close = proto::CloseLeaseRequest { lease: opened.lease, secret: opened.secret };
        within(raw.api.close_lease(close)).await.expect("it lives");
    }
    for ttl_ms in [999, 60_001] {
        let refused = raw.api.open_lease(open(ttl_ms)).await.map_err(Refused::from);
        is_refused(refused, Reason::TtlOutOfRange, "1.0 s to 1 min");
    }
    let config = |len: usize| ClientConfig { name: "n".repeat(len), ..cluster.client_config(0) };
    let named = within(Client::connect(config(TEXT))).await.expect("it is within the limit");
    within(named.close()).await.expect("it serves");
    let refused = within(Client::connect(config(TEXT + 1))).await.expect_err("its name is too long");
    assert!(refused.to_string().contains("256"), "{refused}");

    let victim: Bytes = vec![b'v'; NAME].into();
    let request = raw.acquire(vec![exclusive(victim.clone())]);
    within(raw.api.acquire(request)).await.expect("it is free");
    let force =
        |len: usize| proto::ForceReleaseRequest { name: victim.clone(), reason: "r".repeat(len), home: None };
    let refused = within(raw.api.force_release(force(TEXT + 1))).await.map_err(Refused::from);
    is_refused(refused, Reason::Malformed, "256");
    let released = within(raw.api.force_release(force(TEXT))).await.expect("it is within the limit");
    assert_eq!(
        released.into_inner().released.len(),
        1,
        "it was still held, and the refused call took nothing"
    );
}

/// Another datacenter sees the holders, and grants their locks to nobody.
async fn is_held(held: &Held, elsewhere: &Client) {
    for (names, guard) in held.names.iter().zip(&held.guards) {
        assert_eq!(guard.is_lost(), None);
        let last = lock_name(names.last().expect("at least one lock"));
        let described = within(elsewhere.describe_lock(&last)).await.expect("it is up");
        let labels: Vec<&str> = described.holders.iter().map(|holder| &*holder.label).collect();
        assert_eq!(labels, ["l".repeat(TEXT)], "{last}");
        let asked = AcquireRequest::exclusive(last).wait(Wait::Try);
        let refused = within(elsewhere.acquire(asked)).await;
        assert!(matches!(refused, Err(AcquireError::NotFree)), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_at_each_limit_is_held_over_a_restart_and_one_above_takes_nothing() {
    let options = "[limits]\nmax_queue_delay = \"1 min\"\n";
    let (mut cluster, clients) = servers(3).with(options).serving().await;
    for client in clients {
        within(client.close()).await.expect("it serves");
    }
    let config = ClientConfig { ttl: Some(Duration::from_secs(60)), ..cluster.client_config(0) };
    let client = within(Client::connect(config)).await.expect("it serves");
    let mut raw = Raw::open(&cluster, 0).await;
    let held = at_limits(&client).await;
    above_limits(&mut raw, &client).await;
    enough_at_the_limit(&mut raw).await;
    guards_of_a_transaction(&mut raw).await;
    texts_and_times(&cluster, &mut raw).await;
    let elsewhere = cluster.client(1).await;
    is_held(&held, &elsewhere).await;
    within(elsewhere.close()).await.expect("it serves");
    raw.close().await;
    for dc in 0..3 {
        cluster.kill(dc);
    }
    cluster.start_all();
    let elsewhere = serving_at(&cluster, 1).await;
    serving_at(&cluster, 0).await;
    is_held(&held, &elsewhere).await;
    let admin = within(AdminClient::connect(cluster.client_config(0))).await.expect("it serves");
    let audit = within(admin.audit()).await.expect("it is up");
    let reasons: Vec<_> =
        audit.iter().filter_map(|record| record.force_released.as_ref()).map(|by| &*by.reason).collect();
    assert_eq!(reasons, ["r".repeat(TEXT)]);

    for guard in held.guards {
        within(guard.release()).await.expect("it was held");
    }
    let above = names("above", 1, 8);
    for names in held.names.iter().chain([&above]) {
        drop(acquire(&elsewhere, request(names)).await);
    }
}
