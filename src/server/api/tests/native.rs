//! Native connections, as a client sees them: how they begin and end, and which ones the server drops.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{BufMut, Bytes};
use prost::Message;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tonic::Code;

use super::site::{Running, Site, exclusive, release, shake_hands, try_acquire};
use crate::access::{Access, AccessFiles, NewToken};
use crate::lock_server::LockServerOptions;
use crate::lock_server::fakes::{Rig, Syncs, dc};
use crate::pki::{ClientCertificates, Credentials};
use crate::server::api::{ApiOptions, ServerInfo, serve};
use geolock_api::names::LockName;
use geolock_api::native::{
    End, FrameSocket, Kind, NATIVE_PROTOCOL, NATIVE_PROTOCOL_1, SocketError, Start, bound_kernel, decode,
};
use geolock_api::proto::client_message::Call;
use geolock_api::proto::server_message::Answer;
use geolock_api::proto::{self, ClientMessage, Reason, ServerMessage};
use geolock_client::{AcquireRequest, Client, ClientConfig, ClientTls, Transport};

/// Far longer than any step of these tests: a test that hangs fails.
const LONG: Duration = Duration::from_secs(60);

type Tls = TlsStream<TcpStream>;

async fn connect(site: &Site, address: SocketAddr) -> Tls {
    shake_hands(site, address, NATIVE_PROTOCOL).await
}

/// The client's end of a connection.
struct Line(FrameSocket<Tls>);

impl Line {
    async fn open(site: &Site, running: &Running) -> Line {
        let mut line = Line(FrameSocket::new(connect(site, running.address).await, 1 << 20));
        line.put(Kind::Start, &Start::default()).await;
        line.ask(1, Call::Hello(proto::Hello { revision: 1, client: "test".into() })).await;
        assert!(matches!(line.hear().await, (1, Answer::Welcome(_))));
        line
    }

    async fn put(&mut self, kind: Kind, body: &impl Message) {
        self.0.put(kind, body);
        poll_fn(|cx| self.0.poll_write(cx)).await.expect("the server is there");
    }

    async fn ask(&mut self, tag: u64, call: Call) {
        self.put(Kind::Message, &ClientMessage { tag, call: Some(call) }).await;
    }

    async fn hear(&mut self) -> (u64, Answer) {
        let frame = timeout(LONG, self.0.frame()).await.expect("in time").expect("an answer");
        assert_eq!(frame.kind, Kind::Message);
        let message: ServerMessage = decode(frame.body).expect("it is one");
        (message.tag, message.answer.expect("known here"))
    }

    /// Returns how it ended.
    async fn end(&mut self) -> (Code, String, Option<Reason>) {
        let frame = timeout(LONG, self.0.frame()).await.expect("in time").expect("a last word");
        assert_eq!(frame.kind, Kind::End);
        let End { code, message, error } = decode(frame.body).expect("it is one");
        let error = (!error.is_empty()).then(|| proto::Error::decode(error).expect("it is one"));
        (Code::from_i32(code), message, error.map(|error| error.reason()))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_goes_over_a_native_connection_and_ends_when_both_have_said_all() {
    let site = Site::new();
    let running = site.start().await;
    let mut line = Line::open(&site, &running).await;
    line.ask(2, Call::OpenLease(proto::OpenLeaseRequest::default())).await;
    let (2, Answer::LeaseOpened(lease)) = line.hear().await else { panic!("a lease was expected") };
    for key in 1..=1_000 {
        let name = format!("{key}");
        line.0.put(
            Kind::Message,
            &ClientMessage {
                tag: 2 * key + 1,
                call: Some(Call::Acquire(try_acquire(lease.lease, key, &name))),
            },
        );
        let release = Call::Release(release(lease.lease, key));
        line.0.put(Kind::Message, &ClientMessage { tag: 2 * key + 2, call: Some(release) });
    }
    line.put(Kind::End, &()).await;
    for tag in 3..=2_002 {
        let (answered, answer) = line.hear().await;
        assert_eq!(answered, tag);
        assert!(matches!(answer, Answer::Acquired(_) | Answer::Released(_)), "{answer:?}");
    }
    assert_eq!(line.end().await, (Code::Ok, String::new(), None));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_makes_no_sense_ends_a_connection_with_a_reason_and_no_other() {
    let site = Site::new();
    let running = site.start().await;
    let mut good = Line::open(&site, &running).await;
    let cases: [(&[u8], &str); 4] = [
        (b"GET / HTTP/1.1\r\n\r\n", "there is no kind 71"),
        (b"\x00\xff\xff\xff\xff", "at most 2097152 bytes; this one says it has 4294967295"),
        (b"\x01\0\0\0\0", "Start does not belong here"),
        (b"\x00\0\0\0\x03abc", "cannot be read"),
    ];
    for (bytes, why) in cases {
        let mut tls = connect(&site, running.address).await;
        tls.write_all(b"\x01\0\0\0\0").await.expect("the first frame");
        tls.write_all(bytes).await.expect("what follows");
        tls.flush().await.expect("it is sent");
        let end = Line(FrameSocket::new(tls, 1 << 20)).end().await;
        assert!(end.1.contains(why) && end.2 == Some(Reason::Malformed), "{end:?}");
    }
    // As the first frame.
    let cases: [(&[u8], &str); 2] = [
        (b"\x00\0\0\0\0", "Message does not belong here"),
        (b"\x00\0\x20\0\0", "at most 4096 bytes; this one says it has 2097152"),
    ];
    for (bytes, why) in cases {
        let mut tls = connect(&site, running.address).await;
        tls.write_all(bytes).await.expect("no first frame");
        tls.flush().await.expect("it is sent");
        let end = Line(FrameSocket::new(tls, 1 << 20)).end().await;
        assert!(end.1.contains(why), "{end:?}");
    }
    // A wrong call is answered, and the connection stays.
    good.ask(2, Call::OpenLease(proto::OpenLeaseRequest { ttl_ms: 1, ..Default::default() })).await;
    assert!(matches!(good.hear().await, (2, Answer::Error(_))));
    // Only the first message may be a hello.
    good.ask(3, Call::Hello(proto::Hello { revision: 1, client: String::new() })).await;
    assert_eq!(good.end().await.2, Some(Reason::HelloExpected));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_said_all_and_waits_for_answers_is_still_heard() {
    let site = Site::new();
    let running = site.start().await;
    let (mut holder, mut waiter) = (Line::open(&site, &running).await, Line::open(&site, &running).await);
    for line in [&mut holder, &mut waiter] {
        line.ask(2, Call::OpenLease(proto::OpenLeaseRequest::default())).await;
        let (2, Answer::LeaseOpened(lease)) = line.hear().await else { panic!("a lease was expected") };
        let wait = Some(proto::acquire_request::Wait::WaitForever(proto::WaitForever {}));
        line.ask(3, Call::Acquire(proto::AcquireRequest { wait, ..try_acquire(lease.lease, 1, "a") })).await;
    }
    assert!(matches!(holder.hear().await, (3, Answer::Acquired(_))));
    waiter.put(Kind::End, &()).await;
    waiter.put(Kind::Ping, &()).await;
    waiter.put(Kind::End, &()).await;
    let end = waiter.end().await;
    assert!(end.1.contains("End does not belong here") && end.2 == Some(Reason::Malformed), "{end:?}");
    running.stop().await;
}

/// An old client gets no frames that it does not know, and a renewal need not wait for the rest of a long
/// answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_is_answered_in_the_middle_of_a_long_answer() {
    let site = Site::new();
    let running = site.start().await;
    for (protocol, answered) in [(NATIVE_PROTOCOL, [8, 7]), (NATIVE_PROTOCOL_1, [7, 8])] {
        let tls = shake_hands(&site, running.address, protocol).await;
        bound_kernel(tls.get_ref().0).expect("it can be bounded");
        let mut line = Line(FrameSocket::new(tls, 8 << 20));
        line.put(Kind::Start, &Start::default()).await;
        line.ask(1, Call::Hello(proto::Hello { revision: 1, client: "test".into() })).await;
        assert!(matches!(line.hear().await, (1, Answer::Welcome(_))));
        line.ask(2, Call::OpenLease(proto::OpenLeaseRequest::default())).await;
        let (2, Answer::LeaseOpened(lease)) = line.hear().await else { panic!("a lease was expected") };
        let key = |n: u8| proto::Key { bucket: Bytes::from_static(b"b"), name: vec![n].into() };
        for n in 1..=3 {
            let op = Some(proto::update::Op::LwwRegister(vec![n; 1_000_000].into()));
            let action = Some(proto::change::Action::Update(proto::Update { path: vec![], op }));
            let changes = vec![proto::Change { key: Some(key(n)), action }];
            let step = Some(proto::Step {
                changes,
                reads: vec![],
                then: proto::Then::Commit.into(),
                ..Default::default()
            });
            let (lease, key) = (lease.lease, n.into());
            let begin = proto::BeginRequest { lease, idempotency_key: key, step, ..Default::default() };
            line.ask(2 + u64::from(n), Call::Begin(begin)).await;
            assert!(matches!(line.hear().await, (_, Answer::Stepped(_))));
        }
        let keys = (1..=3).map(key).collect();
        line.ask(7, Call::Read(proto::ReadRequest { keys, at_least: None })).await;
        let before = line.0.progress().read;
        // More than both kernels buffer: the answer has begun and cannot be complete.
        poll_fn(|cx| match line.0.poll_frame(cx) {
            Poll::Ready(frame) => panic!("this is not all of it: {frame:?}"),
            Poll::Pending if line.0.progress().read > before => Poll::Ready(()),
            Poll::Pending => Poll::Pending,
        })
        .await;
        let renewal = proto::KeepAliveRequest { lease: lease.lease, secret: Bytes::new() };
        line.ask(8, Call::KeepAlive(renewal)).await;
        line.ask(9, Call::Release(release(lease.lease, 99))).await;
        for tag in answered.into_iter().chain([9]) {
            assert_eq!(line.hear().await.0, tag);
        }
        line.put(Kind::End, &()).await;
        assert_eq!(line.end().await.0, Code::Ok);
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_nobody_takes_is_refused() {
    let site = Site::new();
    let running = site.start().await;
    let mut line = Line(FrameSocket::new(connect(&site, running.address).await, 1 << 20));
    line.put(Kind::Start, &Start { authorization: Bytes::from_static(b"Bearer a.b") }).await;
    let (code, _, reason) = line.end().await;
    assert_eq!((code, reason), (Code::Unauthenticated, Some(Reason::Unauthenticated)));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_is_withdrawn_opens_nothing_more_and_what_is_open_does_nothing_more() {
    let site = Site::new();
    let token = NewToken::generate("ci").expect("random");
    let tokens = site.folder("tokens");
    std::fs::write(&tokens, token.line()).expect("there is room");
    let file = tokens.clone();
    let running = site.start_configured(|config| config.access.tokens = Some(file)).await;
    let start = Start { authorization: format!("Bearer {}", token.token()).into() };
    let hello = || Call::Hello(proto::Hello { revision: 1, client: "test".into() });
    let open = async || {
        let mut line = Line(FrameSocket::new(connect(&site, running.address).await, 1 << 20));
        line.put(Kind::Start, &start).await;
        line
    };
    let mut line = open().await;
    line.ask(1, hello()).await;
    assert!(matches!(line.hear().await, (1, Answer::Welcome(_))));
    line.ask(2, Call::OpenLease(proto::OpenLeaseRequest::default())).await;
    let (2, Answer::LeaseOpened(lease)) = line.hear().await else { panic!("a lease was expected") };
    line.ask(3, Call::Acquire(try_acquire(lease.lease, 1, "a"))).await;
    assert!(matches!(line.hear().await, (3, Answer::Acquired(_))));

    std::fs::write(&tokens, NewToken::generate("ci").expect("random").line()).expect("there is room");
    assert!(running.node.reloader().reload().await.is_empty());
    // Not even a release: the client is not authenticated any more, and its locks end with its lease.
    for (tag, call) in [
        (4, Call::Acquire(try_acquire(lease.lease, 2, "b"))),
        (5, Call::Release(release(lease.lease, 1))),
        (6, Call::KeepAlive(proto::KeepAliveRequest { lease: lease.lease, secret: Bytes::new() })),
    ] {
        line.ask(tag, call).await;
        let (answered, Answer::Error(error)) = line.hear().await else { panic!("a refusal was expected") };
        assert_eq!((answered, error.reason()), (tag, Reason::Unauthenticated), "{error:?}");
    }
    let (code, _, reason) = open().await.end().await;
    assert_eq!((code, reason), (Code::Unauthenticated, Some(Reason::Unauthenticated)));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_says_nothing_or_does_not_read_is_not_kept() {
    let site = Site::new();
    let soon = Duration::from_millis(50);
    let running = site
        .start_configured(|config| {
            (config.api.handshake_timeout, config.api.keep_alive) = (LONG, soon);
        })
        .await;
    let leases = async |count: u64| {
        let counted = || running.node.board().latest().map(|shown| shown.status.counts.leases);
        while counted() != Some(count) {
            tokio::task::yield_now().await;
        }
    };
    // This client sends nothing more and answers no ping, because nothing polls its end.
    let mut line = Line::open(&site, &running).await;
    let on_disconnect = proto::OnDisconnect::Release.into();
    line.ask(2, Call::OpenLease(proto::OpenLeaseRequest { ttl_ms: 60_000, on_disconnect })).await;
    timeout(LONG, leases(1)).await.expect("it is opened");
    let mut lively = Line::open(&site, &running).await;
    let gone = timeout(LONG, async {
        // This one answers pings and stays connected all that time.
        tokio::select! {
            frame = lively.0.frame() => panic!("nothing was asked: {frame:?}"),
            () = leases(0) => {}
        }
    });
    gone.await.expect("the silent one goes");
    assert!(matches!(line.hear().await, (2, Answer::LeaseOpened(_))), "what was said before");
    let last = timeout(LONG, line.0.frame()).await.expect("in time");
    assert!(matches!(last, Err(SocketError::Closed | SocketError::Io(_))), "{last:?}");
    lively.ask(2, Call::OpenLease(proto::OpenLeaseRequest::default())).await;
    assert!(matches!(lively.hear().await, (2, Answer::LeaseOpened(_))));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_frame_comes_in_the_time_of_a_handshake() {
    let site = Site::new();
    let running =
        site.start_configured(|config| config.api.handshake_timeout = Duration::from_millis(500)).await;
    let mut line = Line(FrameSocket::new(connect(&site, running.address).await, 1 << 20));
    let end = line.end().await;
    assert!(end.1.contains("first frame") && end.2 == Some(Reason::Malformed), "{end:?}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_says_so_on_every_connection() {
    let site = Site::new();
    let running = site.start().await;
    let mut line = Line::open(&site, &running).await;
    let stopping = running.stop();
    let hears = async {
        assert!(matches!(line.hear().await, (0, Answer::Draining(_))));
        let (code, _, reason) = line.end().await;
        assert_eq!((code, reason), (Code::Unavailable, Some(Reason::Unavailable)));
        drop(line);
    };
    tokio::join!(stopping, hears);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_falls_back_to_grpc_where_the_server_speaks_nothing_else() {
    let site = Site::new();
    let rig = Rig::start(LockServerOptions::default(), Syncs::AtOnce);
    let credentials = Credentials::load(&site.folder("tls/dc0")).expect("the playground made it");
    let mut tls = credentials.accept_clients(ClientCertificates::Demanded).expect("they are good");
    tls.alpn_protocols.retain(|protocol| protocol == b"h2");
    assert_eq!(tls.alpn_protocols.len(), 1, "as servers before the native protocol");
    let (_tls, tls) = watch::channel(Arc::new(tls));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("there are ports");
    let address = listener.local_addr().expect("it is bound").to_string();
    let access = Arc::new(Access::open(AccessFiles::default()).expect("no files"));
    let info = ServerInfo::new(dc(0), [(dc(0), "here".into())].into()).expect("random bytes");
    let handle = rig.server.handle();
    let serving = tokio::spawn(serve(listener, tls, access, handle.clone(), info, ApiOptions::default()));
    let certificates = ClientTls::from_dir(site.folder("client")).expect("the playground made it");
    let config = ClientConfig::new([address], certificates);
    assert_eq!(config.transport, Transport::Native);
    let client = Client::connect(config).await.expect("it is let in");
    let lock = LockName::try_from("a").expect("a name");
    let guard = client.acquire(AcquireRequest::exclusive(lock)).await.expect("it is free");
    guard.release().await.expect("the server is there");
    handle.drain();
    serving.await.expect("no panic").expect("no failure");
}

#[test]
fn a_lock_name_in_a_frame_is_any_bytes() {
    let mut name = Vec::new();
    name.put_bytes(0xff, 1_024);
    let call = proto::AcquireRequest { locks: vec![exclusive(&name)], ..try_acquire(1, 1, "") };
    let message = ClientMessage { tag: 1, call: Some(Call::Acquire(call)) };
    let bytes = Bytes::from(message.encode_to_vec());
    assert_eq!(decode::<ClientMessage>(bytes), Ok(message));
}
