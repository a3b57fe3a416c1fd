//! The memory of a server for its clients is bounded: calls above a limit are refused with a time to try
//! again, and others are still served.

use std::time::Duration;

use super::access::issue_client;
use super::site::{Caller, Running, Site, Talk, acquire, dial, exclusive, release, try_acquire};
use crate::lock_server::LockServerOptions;
use crate::replica::LocalConfig;
use geolock_api::proto::client_message::Call;
use geolock_api::proto::locks_client::LocksClient;
use geolock_api::proto::server_message::Answer;
use geolock_api::proto::{self, Reason};

async fn start(site: &Site, limits: LocalConfig) -> Running {
    let options = LockServerOptions { drain_timeout: Duration::ZERO, ..LockServerOptions::default() };
    site.start_with(limits, options).await
}

async fn granted(talk: &mut Talk, call: proto::AcquireRequest) {
    match talk.ask(Call::Acquire(call)).await {
        Answer::Acquired(_) => {}
        other => panic!("a grant was expected, this is {other:?}"),
    }
}

/// Expects a refusal with a time to try again and the name of the limit.
async fn exhausted(talk: &mut Talk, call: Call, limit: &str) {
    match talk.ask(call).await {
        Answer::Error(error) => {
            assert_eq!(error.reason(), Reason::ResourceExhausted, "{error:?}");
            assert!(error.retry_after_ms > 0 && error.message.contains(limit), "{error:?}");
        }
        other => panic!("a refusal was expected, this is {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_has_a_most_of_waiting_requests_whose_ever_they_are() {
    let site = Site::new();
    let limits = LocalConfig { max_waiting: 2, ..LocalConfig::default() };
    let running = start(&site, limits).await;
    let mut client = site.client(&running).await;
    let (mut one, mut two) = (Talk::open(&mut client).await, Talk::open(&mut client).await);
    let (first, second) = (one.open_lease().await.lease, two.open_lease().await.lease);
    granted(&mut one, acquire(first, 1, "hot")).await;
    one.send(Call::Acquire(acquire(first, 2, "hot"))).await;
    one.send(Call::Acquire(acquire(first, 3, "hot"))).await;
    exhausted(&mut one, Call::Acquire(acquire(first, 4, "cold")), "waiting").await;
    exhausted(&mut two, Call::Acquire(acquire(second, 1, "cold")), "waiting").await;
    // The first waiting request is granted, which makes space for one.
    one.send(Call::Release(release(first, 1))).await;
    for _ in 0..2 {
        assert!(matches!(one.hear().await, Ok(Some((_, Answer::Released(_) | Answer::Acquired(_))))));
    }
    granted(&mut two, acquire(second, 2, "cold")).await;
    drop((one, two));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_has_a_most_of_names_held_and_waiting() {
    let site = Site::new();
    let running = start(&site, LocalConfig { max_names_per_lease: 2_000, ..LocalConfig::default() }).await;
    let mut talk = Talk::open(&mut site.client(&running).await).await;
    let (lease, long) = (talk.open_lease().await.lease, "n".repeat(1_000));
    granted(&mut talk, acquire(lease, 1, &long)).await;
    talk.send(Call::Acquire(acquire(lease, 2, &long))).await;
    exhausted(&mut talk, Call::Acquire(acquire(lease, 3, "short")), "names of a lease").await;
    talk.send(Call::Release(release(lease, 1))).await;
    for _ in 0..2 {
        assert!(matches!(talk.hear().await, Ok(Some((_, Answer::Released(_) | Answer::Acquired(_))))));
    }
    granted(&mut talk, acquire(lease, 4, "short")).await;
    drop(talk);
    running.stop().await;
}

/// One certificate is one client, whatever its connections, leases and calls; a restart does not change that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_has_a_most_of_names_over_all_its_leases() {
    let site = Site::new();
    let limits = LocalConfig { max_names_per_client: 2_000, ..LocalConfig::default() };
    let running = start(&site, limits.clone()).await;
    let long = |letter: &str| letter.repeat(1_000);
    let mut one = Talk::open(&mut site.client(&running).await).await;
    let first = one.open_lease().await;
    let Answer::Acquired(held) = one.ask(Call::Acquire(acquire(first.lease, 1, &long("a")))).await else {
        panic!("it is free")
    };
    let mut two = Talk::open(&mut site.client(&running).await).await;
    let second = two.open_lease().await.lease;
    granted(&mut two, acquire(second, 1, &long("b"))).await;
    exhausted(&mut two, Call::Acquire(acquire(second, 2, "c")), "limits.max_name_bytes_per_client").await;
    // Calls without a stream are the client's as well.
    let mut alone = Caller::new(site.client(&running).await).await;
    let call = acquire(alone.lease.lease, 1, "c");
    let refused = alone.client.acquire(proto::AcquireRequest { secret: alone.lease.secret.clone(), ..call });
    let refused = refused.await.expect_err("its client has enough");
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted, "{refused}");

    let folder = issue_client(&site, "other");
    let mut other = LocksClient::new(dial(running.address, &folder).await.expect("it is welcome"));
    let mut other = Talk::open(&mut other).await;
    let others = other.open_lease().await.lease;
    granted(&mut other, acquire(others, 1, &long("c"))).await;
    assert!(matches!(two.ask(Call::Release(release(second, 1))).await, Answer::Released(_)));
    granted(&mut two, acquire(second, 3, &long("d"))).await;
    drop((one, two, alone, other));
    running.stop().await;

    let running = start(&site, LocalConfig { max_names_per_client: 1_000, ..limits }).await;
    let mut again = Talk::open(&mut site.client(&running).await).await;
    let attach = proto::AttachLeaseRequest { lease: first.lease, secret: first.secret };
    assert!(matches!(again.ask(Call::AttachLease(attach)).await, Answer::LeaseAttached(_)));
    let held = proto::HeldLocks {
        request: held.request,
        idempotency_key: 1,
        locks: vec![exclusive(long("a"))],
        token: held.token,
        label: "test".into(),
    };
    let reclaim = proto::ReclaimRequest { lease: first.lease, held: vec![held], ..Default::default() };
    match again.ask(Call::Reclaim(reclaim)).await {
        Answer::Reclaimed(answer) => assert_eq!((answer.kept.len(), answer.lost.len()), (1, 0)),
        other => panic!("a reclaim was expected, this is {other:?}"),
    }
    let third = again.open_lease().await.lease;
    exhausted(&mut again, Call::Acquire(acquire(third, 1, "e")), "limits.max_name_bytes_per_client").await;
    drop(again);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_has_a_most_of_held_requests() {
    let site = Site::new();
    let limits = LocalConfig { max_held: 2, ..LocalConfig::default() };
    let running = start(&site, limits).await;
    let mut talk = Talk::open(&mut site.client(&running).await).await;
    let lease = talk.open_lease().await.lease;
    granted(&mut talk, acquire(lease, 1, "a")).await;
    granted(&mut talk, acquire(lease, 2, "b")).await;
    exhausted(&mut talk, Call::Acquire(acquire(lease, 3, "c")), "held").await;
    exhausted(&mut talk, Call::Acquire(try_acquire(lease, 3, "c")), "held").await;
    assert!(matches!(talk.ask(Call::Release(release(lease, 1))).await, Answer::Released(_)));
    granted(&mut talk, acquire(lease, 3, "c")).await;
    for key in [2, 3] {
        assert!(matches!(talk.ask(Call::Release(release(lease, key))).await, Answer::Released(_)));
    }
    // Each further lock of a request counts like a further request.
    let locks = ["a", "b", "c"].map(exclusive).into();
    granted(&mut talk, proto::AcquireRequest { locks, ..acquire(lease, 4, "") }).await;
    exhausted(&mut talk, Call::Acquire(acquire(lease, 5, "d")), "held").await;
    assert!(matches!(talk.ask(Call::Release(release(lease, 4))).await, Answer::Released(_)));
    granted(&mut talk, acquire(lease, 6, "d")).await;
    drop(talk);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_has_a_most_of_leases() {
    let site = Site::new();
    let limits = LocalConfig { max_leases: 2, ..LocalConfig::default() };
    let running = start(&site, limits).await;
    let mut talk = Talk::open(&mut site.client(&running).await).await;
    let first = talk.open_lease().await.lease;
    talk.open_lease().await;
    let open = || Call::OpenLease(proto::OpenLeaseRequest { ttl_ms: 30_000, on_disconnect: 0 });
    exhausted(&mut talk, open(), "leases").await;
    granted(&mut talk, acquire(first, 1, "a")).await;
    let close = proto::CloseLeaseRequest { lease: first, secret: bytes::Bytes::new() };
    assert!(matches!(talk.ask(Call::CloseLease(close)).await, Answer::LeaseClosed(_)));
    talk.open_lease().await;
    drop(talk);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_has_at_most_10_000_waiting_requests_and_others_go_on() {
    let site = Site::new();
    let running = start(&site, LocalConfig::default()).await;
    let mut greedy = Talk::open(&mut site.client(&running).await).await;
    let lease = greedy.open_lease().await.lease;
    granted(&mut greedy, acquire(lease, 1, "hot")).await;
    for key in 2..=10_001 {
        greedy.send(Call::Acquire(acquire(lease, key, "hot"))).await;
    }
    exhausted(&mut greedy, Call::Acquire(acquire(lease, 10_002, "hot")), "waiting").await;
    let mut other = Talk::open(&mut site.client(&running).await).await;
    let lease = other.open_lease().await.lease;
    granted(&mut other, acquire(lease, 1, "cold")).await;
    drop((greedy, other));
    running.stop().await;
}
