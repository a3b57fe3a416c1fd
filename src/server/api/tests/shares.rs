//! Each client's use of a server is bounded, and other clients are not affected.

use std::future::poll_fn;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::Response;
use hyper::body::Frame;
use prost::Message as _;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tonic::Code;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::access::{issue_client, without};
use super::site::{Running, Site, Talk, dial, dial_with, open_lease, shake_hands};
use geolock_api::native::{Kind, NATIVE_PROTOCOL};
use geolock_api::proto::locks_client::LocksClient;
use geolock_api::proto::{self, Then, change, update};

/// Far longer than any step of these tests: a test that hangs fails.
const LONG: Duration = Duration::from_secs(60);
const VALUE: usize = 200 << 10;

async fn other_client(site: &Site, running: &Running) -> LocksClient<Channel> {
    let folder = issue_client(site, "other");
    LocksClient::new(dial(running.address, &folder).await.expect("it is welcome"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_has_a_most_of_sessions_whatever_connections_it_has() {
    let site = Site::new();
    let running = site.start_configured(|config| config.api.max_sessions_per_client = 2).await;
    let (mut one, mut two) = (site.client(&running).await, site.client(&running).await);
    let first = Talk::open(&mut one).await;
    let second = Talk::open(&mut two).await;
    let watch = proto::WatchRequest::default();
    for refused in [
        two.session(tokio_stream::pending()).await.map(drop),
        one.watch(proto::WatchRequest { keys: vec![key()], ..watch.clone() }).await.map(drop),
    ] {
        let refused = refused.expect_err("it has two");
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        assert!(refused.message().contains("limits.max_sessions_per_client"), "{refused}");
    }
    let others = Talk::open(&mut other_client(&site, &running).await).await;
    drop(first);
    // The server closes it when it learns of that.
    let third = timeout(LONG, async {
        loop {
            if let Ok(open) = one.session(tokio_stream::pending()).await {
                return open;
            }
        }
    });
    let third = third.await.expect("there is room");
    drop((second, third, others));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_may_ask_for_health_and_not_watch_it() {
    let site = Site::new();
    let tokens = site.folder("tokens");
    std::fs::write(&tokens, "").expect("there is room");
    let running = site.start_configured(|config| config.access.tokens = Some(tokens)).await;
    let channel = dial(running.address, &without(&site)).await.expect("it may have a token");
    let mut health = HealthClient::new(channel);
    let asked = HealthCheckRequest { service: String::new() };
    health.check(asked.clone()).await.expect("whoever has a connection may ask");
    let refused = health.watch(asked).await.expect_err("it is not known");
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    running.stop().await;
}

/// The requests of these health checks never end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_checks_of_strangers_are_few_and_do_not_last() {
    let site = Site::new();
    let tokens = site.folder("tokens");
    std::fs::write(&tokens, "").expect("there is room");
    let running = site.start_configured(|config| config.access.tokens = Some(tokens)).await;
    let mut channel = dial(running.address, &without(&site)).await.expect("it may have a token");
    let mut checks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let body = StreamBody::new(tokio_stream::pending::<Result<Frame<Bytes>, tonic::Status>>());
        let request = hyper::Request::post("https://localhost/grpc.health.v1.Health/Check")
            .header("content-type", "application/grpc")
            .body(Body::new(body))
            .expect("it is one");
        poll_fn(|cx| channel.poll_ready(cx)).await.expect("it is up");
        checks.spawn(channel.call(request));
    }
    let answers = timeout(LONG, checks.join_all()).await.expect("none lasts");
    let mut codes: Vec<Code> = Vec::new();
    for answer in answers {
        let status = tonic::Status::from_header_map(answer.expect("an answer").headers());
        codes.push(status.expect("a refusal").code());
    }
    codes.sort_by_key(|code| *code as i32);
    assert_eq!(codes[..4], [Code::DeadlineExceeded; 4], "as many as there are places");
    assert_eq!(codes[4..], [Code::ResourceExhausted; 16]);
    running.stop().await;
}

fn key() -> proto::Key {
    proto::Key { bucket: b"test".to_vec().into(), name: b"large".to_vec().into() }
}

/// Writes a large value.
async fn put(client: &mut LocksClient<Channel>) {
    let lease = open_lease(client).await;
    let update = proto::Update {
        op: Some(update::Op::LwwRegister(vec![7; VALUE].into())),
        ..proto::Update::default()
    };
    let changed = proto::Change { key: Some(key()), action: Some(change::Action::Update(update)) };
    let begin = proto::BeginRequest {
        lease: lease.lease,
        secret: lease.secret,
        idempotency_key: 1,
        step: Some(proto::Step {
            changes: vec![changed],
            then: Then::Commit.into(),
            ..proto::Step::default()
        }),
        ..proto::BeginRequest::default()
    };
    client.transact(begin).await.expect("it commits");
}

/// Reads, and accepts only the head of the answer.
async fn read(channel: &mut Channel) -> Response<Body> {
    let message = proto::ReadRequest { keys: vec![key()], ..proto::ReadRequest::default() };
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(message.encoded_len() as u32);
    message.encode(&mut framed).expect("there is room");
    let request = hyper::Request::post("https://localhost/geolock.v1.Locks/Read")
        .header("content-type", "application/grpc")
        .body(Body::new(Full::new(framed.freeze())))
        .expect("it is one");
    poll_fn(|cx| channel.poll_ready(cx)).await.expect("it is up");
    timeout(LONG, channel.call(request)).await.expect("in time").expect("an answer")
}

fn is_refused(answer: &Response<Body>) -> bool {
    answer.headers().get("grpc-status").is_some_and(|status| status == "8")
}

async fn whole(answer: Response<Body>) -> Result<Bytes, tonic::Status> {
    Ok(timeout(LONG, answer.into_body().collect()).await.expect("in time")?.to_bytes())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_are_not_taken_are_bounded_and_their_connection_is_closed() {
    const MOST: usize = 2 << 20;
    let site = Site::new();
    let start = site.start_configured(|config| {
        config.api.max_bytes_per_client = MOST;
        config.api.keep_alive = Duration::from_millis(500);
    });
    let running = start.await;
    put(&mut site.client(&running).await).await;
    // Each stream has a window of one byte, the connection a large one.
    let narrow =
        |endpoint: Endpoint| endpoint.initial_stream_window_size(1).initial_connection_window_size(1 << 30);
    let mut channel =
        dial_with(running.address, &site.folder("client"), narrow).await.expect("it is welcome");
    let mut held = Vec::new();
    while held.len() < 100 {
        let answer = read(&mut channel).await;
        if is_refused(&answer) {
            break;
        }
        held.push(answer);
    }
    // All answers are counted except the last slice of each.
    assert!(held.len() == MOST / VALUE, "{} answers are held", held.len());
    // The calls that keep its locks are small, and still served; other clients read.
    open_lease(&mut site.client(&running).await).await;
    let folder = issue_client(&site, "reader");
    let mut others = dial(running.address, &folder).await.expect("it is welcome");
    assert!(whole(read(&mut others).await).await.expect("it is let in").len() > VALUE);
    // The connection is closed, and the bytes that it held are free.
    let mut again = site.channel(&running).await;
    let freed = async {
        loop {
            let answer = read(&mut again).await;
            if !is_refused(&answer) {
                return whole(answer).await;
            }
        }
    };
    assert!(timeout(LONG, freed).await.expect("in time").expect("it is taken").len() > VALUE);
    let last = held.pop().expect("some are held");
    assert!(whole(last).await.is_err(), "it did not take its answers");
    running.stop().await;
}

/// Each session has sent the beginning of a message, and never the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_are_not_finished_are_bounded() {
    let site = Site::new();
    let running = site.start_configured(|config| config.api.max_bytes_per_client = 1 << 20).await;
    let mut lines = Vec::new();
    for _ in 0..2 {
        let mut tls = shake_hands(&site, running.address, NATIVE_PROTOCOL).await;
        let mut begun = BytesMut::new();
        begun.put_u8(Kind::Start as u8);
        begun.put_u32(0);
        begun.put_u8(Kind::Message as u8);
        begun.put_u32(1 << 20);
        begun.put_bytes(0, 600 << 10);
        // The one above the limit may be closed before all of it is sent.
        let _ = tls.write_all(&begun).await;
        lines.push(tls);
    }
    let [one, two] = &mut lines[..] else { unreachable!("there are two") };
    let first = async {
        tokio::select! {
            said = one.read_u8() => said,
            said = two.read_u8() => said,
        }
    };
    let said = timeout(LONG, first).await.expect("in time").expect("one of them hears why");
    assert_eq!(said, Kind::End as u8);
    running.stop().await;
}
