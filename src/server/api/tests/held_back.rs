//! A stream whose calls have to wait: it still renews, holds little back, and does not poll in vain.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use crate::access::{Access, AccessFiles};
use crate::leases::OnDisconnect;
use crate::lock_server::LockServerOptions;
use crate::lock_server::fakes::{Rig, Syncs, dc};
use crate::server::api::error::BorderError;
use crate::server::api::locks::LocksService;
use crate::server::api::shares::Shares;
use crate::server::api::stream::{Calls, ClientStream};
use crate::server::api::{ApiOptions, ServerInfo};
use geolock_api::names::Secret;
use geolock_api::proto::client_message::Call;
use geolock_api::proto::server_message::Answer;
use geolock_api::proto::{self, ClientMessage};

/// Far longer than any step of these tests: a test that hangs fails.
const LONG: Duration = Duration::from_secs(60);

/// The messages of a client, or one call repeated.
#[derive(Default)]
struct FromClient {
    calls: VecDeque<Call>,
    again: Option<Call>,
    heard: u64,
}

impl Calls for FromClient {
    fn poll_call(&mut self, _: &mut Context<'_>) -> Poll<Result<Option<ClientMessage>, BorderError>> {
        let Some(call) = self.calls.pop_front().or_else(|| self.again.clone()) else { return Poll::Pending };
        self.heard += 1;
        Poll::Ready(Ok(Some(ClientMessage { tag: self.heard, call: Some(call) })))
    }
}

/// Returns a service with little space for calls, whose disk is behind.
async fn behind() -> (Rig, LocksService) {
    let options = LockServerOptions {
        session_mailbox: 1,
        max_queue_delay: Duration::from_secs(3_600),
        ..LockServerOptions::default()
    };
    let rig = Rig::start(options, Syncs::WhenTold);
    // A record waits for the disk.
    let handle = rig.server.handle();
    tokio::spawn(async move {
        handle
            .call(crate::replica::call::Call::OpenLease {
                secret: Secret::new([7; 16]),
                ttl: Some(Duration::from_secs(10)),
                on_disconnect: OnDisconnect::Keep,
            })
            .await
    });
    while rig.backlog() == 0 {
        tokio::task::yield_now().await;
    }
    rig.fall_behind();
    rig.settle_without_calls(|seen| seen.takes_bulk == [false]).await;
    let options = ApiOptions { max_sessions_per_client: 1, ..ApiOptions::default() };
    let service = LocksService {
        server: rig.server.handle(),
        access: Arc::new(Access::open(AccessFiles::default()).expect("no files")),
        info: Arc::new(ServerInfo::new(dc(0), [(dc(0), "here".into())].into()).expect("random bytes")),
        gather_budget: Arc::default(),
        shares: Arc::new(Shares::new(&options, &rig.server.handle())),
    };
    (rig, service)
}

async fn open_stream(service: &LocksService) -> Result<(ClientStream, FromClient), BorderError> {
    let authorizer = service.access.admit(([127, 0, 0, 1], 1).into(), Some(&"app".into()), None)?;
    let mut stream = service.open_stream(authorizer).await?;
    let mut said = FromClient::default();
    said.calls.push_back(Call::Hello(proto::Hello { revision: 1, client: "test".into() }));
    assert!(matches!(hear(&mut stream, &mut said).await, (1, Answer::Welcome(_))));
    Ok((stream, said))
}

async fn hear(stream: &mut ClientStream, said: &mut FromClient) -> (u64, Answer) {
    let answer = poll_fn(|cx| stream.poll_answer(cx, said));
    let answer = timeout(LONG, answer).await.expect("in time").expect("it goes on").expect("no end");
    (answer.tag, answer.answer.expect("known here"))
}

fn begin(key: u64) -> Call {
    let op = Some(proto::update::Op::LwwRegister(vec![7; 40_000].into()));
    let action = Some(proto::change::Action::Update(proto::Update { path: vec![], op }));
    let name = proto::Key { bucket: Bytes::from_static(b"b"), name: Bytes::from_static(b"k") };
    let changes = vec![proto::Change { key: Some(name), action }];
    let step =
        Some(proto::Step { changes, reads: vec![], then: proto::Then::Commit.into(), ..Default::default() });
    Call::Begin(proto::BeginRequest { lease: 1, idempotency_key: key, step, ..Default::default() })
}

fn close() -> Call {
    Call::CloseLease(proto::CloseLeaseRequest { lease: 1, secret: Bytes::new() })
}

fn keep_alive(secret: &'static [u8]) -> Call {
    Call::KeepAlive(proto::KeepAliveRequest { lease: 1, secret: Bytes::from_static(secret) })
}

/// A client that is at another datacenter than before learns that before it gets answers to its calls.
#[tokio::test]
async fn the_welcome_is_the_first_answer() {
    let (_rig, service) = behind().await;
    let authorizer = service.access.admit(([127, 0, 0, 1], 1).into(), Some(&"app".into()), None);
    let stream = service.open_stream(authorizer.expect("it is let in")).await;
    let (mut stream, mut said) = (stream.expect("there is room"), FromClient::default());
    let hello = Call::Hello(proto::Hello { revision: 1, client: "test".into() });
    said.calls.extend([hello, keep_alive(b"")]);
    assert!(matches!(hear(&mut stream, &mut said).await, (1, Answer::Welcome(_))));
    assert!(matches!(hear(&mut stream, &mut said).await, (2, Answer::KeptAlive(_))));
}

#[tokio::test]
async fn who_waits_for_room_goes_on_renewing_and_then_all_is_done_in_order() {
    let (rig, service) = behind().await;
    let (mut stream, mut said) = open_stream(&service).await.expect("it is let in");
    said.calls.extend([begin(1), begin(2), close(), keep_alive(b"")]);
    assert!(matches!(hear(&mut stream, &mut said).await, (5, Answer::KeptAlive(_))));
    rig.sync();
    for tag in 2..=4 {
        assert_eq!(hear(&mut stream, &mut said).await.0, tag);
    }
}

#[tokio::test]
async fn what_was_held_back_and_finds_no_room_is_not_looked_at_again_and_again() {
    let (_rig, service) = behind().await;
    let (mut stream, mut said) = open_stream(&service).await.expect("it is let in");
    said.calls.extend([begin(1), begin(2), close()]);
    let mut looks = |said: &mut FromClient, for_renewal: bool| {
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        let is_idle = match for_renewal {
            true => stream.poll_renewal(cx, said).is_pending(),
            false => stream.poll_answer(cx, said).is_pending(),
        };
        assert!(is_idle, "the disk is behind");
        stream.holds_back()
    };
    assert!(looks(&mut said, true), "nobody has looked at them");
    assert!(!looks(&mut said, false), "the second waits for room, the third for the second");
    said.calls.push_back(close());
    assert!(looks(&mut said, true), "another one");
    assert!(!looks(&mut said, false));
}

#[tokio::test]
async fn renewals_that_are_refused_are_not_heard_without_end() {
    let (_rig, service) = behind().await;
    let (mut stream, mut said) = open_stream(&service).await.expect("it is let in");
    said.again = Some(keep_alive(b"x"));
    let cx = &mut Context::from_waker(std::task::Waker::noop());
    for _ in 0..100 {
        assert!(stream.poll_renewal(cx, &mut said).is_pending(), "they are no renewals");
    }
    assert!(said.heard <= 200, "{} are heard, and their answers kept", said.heard);
}

#[tokio::test]
async fn a_client_has_its_session_until_its_calls_are_handled() {
    let (rig, service) = behind().await;
    let (mut stream, mut said) = open_stream(&service).await.expect("it is let in");
    said.calls.push_back(begin(1));
    let cx = &mut Context::from_waker(std::task::Waker::noop());
    assert!(stream.poll_answer(cx, &mut said).is_pending());
    drop(stream);
    assert!(matches!(open_stream(&service).await, Err(BorderError::TooManySessions(1))), "its call waits");
    rig.sync();
    let again = async {
        while open_stream(&service).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, again).await.expect("it is handled");
}
