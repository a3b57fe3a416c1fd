//! Unary calls, connections and health, as a client sees them.

use std::future::poll_fn;

use hyper::body::Body as _;
use prost::Message;
use tonic::body::Body;
use tonic::codegen::{Service as _, http};
use tonic::{Code, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::site::{Site, acquire, dial, open_lease, release};
use crate::lock_server::LockServerOptions;
use crate::replica::LocalConfig;
use geolock_api::proto::locks_client::LocksClient;
use geolock_api::proto::{self, ERROR_METADATA, Reason};

pub(super) fn list_keys(bucket: &'static str, prefix: &'static str) -> proto::ListKeysRequest {
    proto::ListKeysRequest { bucket: bucket.into(), prefix: prefix.into(), ..Default::default() }
}

pub(super) fn reason<T: std::fmt::Debug>(outcome: Result<T, Status>) -> (Reason, Code) {
    let status = outcome.expect_err("it should be refused");
    let trailer = status.metadata().get_bin(ERROR_METADATA).expect("every error has a reason");
    let error = proto::Error::decode(trailer.to_bytes().expect("it is base64")).expect("it is an error");
    (error.reason(), status.code())
}

/// A refusal is a gRPC status in the headers, with nothing after it. Clients in other languages take anything
/// else for a broken stream, and lose the reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_is_headers_alone() {
    let (site, running, _client) = Site::running().await;
    let mut channel = site.channel(&running).await;
    let path = "/geolock.v1.Locks/Release";
    // Without a message.
    let request = http::Request::post(path).header("content-type", "application/grpc").body(Body::empty());
    poll_fn(|cx| channel.poll_ready(cx)).await.expect("it is connected");
    let refused = channel.call(request.expect("it is one")).await.expect("it is answered");
    assert!(refused.headers().contains_key("grpc-status"), "{refused:?}");
    assert!(refused.body().is_end_stream(), "{refused:?}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_can_be_held_by_unary_calls_alone() {
    let (_site, running, mut client) = Site::running().await;
    let lease = open_lease(&mut client).await;
    assert_eq!(lease.ttl_ms, 10_000);
    let secret = lease.secret.clone();
    let ask =
        |key, name: &str| proto::AcquireRequest { secret: secret.clone(), ..acquire(lease.lease, key, name) };
    let grant = client.acquire(ask(1, "a")).await.expect("it is free").into_inner();
    let again = client.acquire(ask(1, "a")).await.expect("the same key is the same request").into_inner();
    assert_eq!(grant, again);
    let alive = proto::KeepAliveRequest { lease: lease.lease, secret: secret.clone() };
    let alive = client.keep_alive(alive).await.expect("it lives").into_inner();
    assert_eq!(alive.boot_id, lease.boot_id);

    let wait = Some(proto::acquire_request::Wait::WaitMs(1));
    let timed_out = client.acquire(proto::AcquireRequest { wait, ..ask(2, "a") }).await;
    let status = timed_out.as_ref().expect_err("it is held");
    let trailer = status.metadata().get_bin(ERROR_METADATA).expect("every error has a reason");
    let error = proto::Error::decode(trailer.to_bytes().expect("it is base64")).expect("it is an error");
    assert_eq!((error.reason(), status.code()), (Reason::TimedOut, Code::DeadlineExceeded));
    assert_eq!(error.locks[0].holders[0].label, "test", "who is in the way");

    let describe = proto::DescribeLockRequest { name: "a".into(), home: None };
    let shown =
        client.describe_lock(describe).await.expect("it is known").into_inner().lock.expect("it is set");
    assert_eq!(shown.holders[0].token, grant.token);
    let listed = client.list_locks(proto::ListLocksRequest::default()).await.expect("listed").into_inner();
    assert_eq!(listed.locks.iter().map(|lock| &lock.name[..]).collect::<Vec<_>>(), [b"a"]);

    // The request that timed out had waited for it.
    let top = client.top_locks(proto::TopLocksRequest::default()).await.expect("it is shown").into_inner();
    let lock = top.locks[0].lock.as_ref().expect("it is described");
    assert_eq!((&lock.name[..], &*lock.holders[0].label, top.locks[0].local_holders), (&b"a"[..], "test", 1));
    let other = proto::TopLocksRequest { prefix: "b".into(), limit: 0 };
    assert_eq!(client.top_locks(other).await.expect("it is shown").into_inner().locks, []);

    let status = client.status(proto::StatusRequest {}).await.expect("it is up").into_inner();
    assert_eq!((status.dc_name.as_str(), status.counts["held"]), ("here", 1));
    assert_eq!(status.durations["acquire_local"].count, 1);
    assert!(status.uptime_ms > 0);

    let give = proto::ReleaseRequest { secret: secret.clone(), ..release(lease.lease, 1) };
    client.release(give.clone()).await.expect("it was held");
    client.release(give).await.expect("releasing again succeeds");
    let close = proto::CloseLeaseRequest { lease: lease.lease, secret: secret.clone() };
    client.close_lease(close.clone()).await.expect("it was open");
    assert_eq!(reason(client.close_lease(close).await), (Reason::UnknownLease, Code::NotFound));
    drop(client);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unary_calls_prove_their_lease_and_carry_reasons() {
    let (_site, running, mut client) = Site::running().await;
    let lease = open_lease(&mut client).await;
    let with = |secret: &[u8]| proto::AcquireRequest {
        secret: bytes::Bytes::copy_from_slice(secret),
        ..acquire(lease.lease, 1, "a")
    };
    assert_eq!(reason(client.acquire(with(b"")).await), (Reason::Malformed, Code::InvalidArgument));
    assert_eq!(reason(client.acquire(with(&[0; 16])).await), (Reason::WrongSecret, Code::PermissionDenied));
    let keyless = proto::AcquireRequest { idempotency_key: 0, ..with(&lease.secret) };
    assert_eq!(reason(client.acquire(keyless).await), (Reason::Malformed, Code::InvalidArgument));
    let nameless = proto::DescribeLockRequest::default();
    assert_eq!(reason(client.describe_lock(nameless).await).0, Reason::LockNameEmpty);
    drop(client);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_clients_of_the_cluster_are_welcome() {
    let (site, elsewhere) = (Site::new(), Site::new());
    let running = site.start().await;
    // TLS 1.3: the client's side of the handshake is complete before its certificate is refused.
    for folder in [site.folder("tls/dc0"), elsewhere.folder("client")] {
        if let Ok(channel) = dial(running.address, &folder).await {
            let refused = LocksClient::new(channel).status(proto::StatusRequest {}).await;
            assert!(refused.is_err(), "{} was let in", folder.display());
        }
    }
    let mut welcome = site.client(&running).await;
    assert!(welcome.status(proto::StatusRequest {}).await.is_ok());
    drop(welcome);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_health_service_follows_the_server() {
    let site = Site::new();
    let running = site.start_with(LocalConfig::default(), LockServerOptions::default()).await;
    let channel = site.channel(&running).await;
    let mut health = HealthClient::new(channel.clone());
    let service = |service: &str| HealthCheckRequest { service: service.into() };
    let serving = |response: HealthCheckResponse| response.status() == ServingStatus::Serving;
    for name in ["", "geolock.v1.Locks"] {
        assert!(serving(health.check(service(name)).await.expect("it is known").into_inner()));
    }
    let mut watch = health.watch(service("geolock.v1.Locks")).await.expect("it is known").into_inner();
    assert!(serving(watch.message().await.expect("it lives").expect("it says how it is")));
    // A lock is held, so the drain lasts during the checks.
    let mut client = LocksClient::new(channel);
    let lease = open_lease(&mut client).await;
    let held = proto::AcquireRequest { secret: lease.secret.clone(), ..acquire(lease.lease, 1, "a") };
    client.acquire(held).await.expect("it is free");
    running.node.handle().drain();
    assert!(!serving(watch.message().await.expect("it lives").expect("it says how it is")));
    let give = proto::ReleaseRequest { secret: lease.secret, ..release(lease.lease, 1) };
    client.release(give).await.expect("releases go on");
    running.stop().await;
}
