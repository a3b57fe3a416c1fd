//! Streams, as a client sees them.

use std::collections::BTreeSet;
use std::time::Duration;

use prost::Message;
use tonic::{Code, Status};

use super::site::{Site, Talk, acquire, exclusive, release, try_acquire};
use crate::lock_server::LockServerOptions;
use crate::replica::LocalConfig;
use geolock_api::proto::client_message::Call;
use geolock_api::proto::server_message::Answer;
use geolock_api::proto::{self, ClientMessage, ERROR_METADATA, Reason};

/// Returns why a stream ended.
fn ended(status: &Status) -> (Reason, Code) {
    let trailer = status.metadata().get_bin(ERROR_METADATA).expect("every error has a reason");
    let error = proto::Error::decode(trailer.to_bytes().expect("it is base64")).expect("it is an error");
    (error.reason(), status.code())
}

fn token(answer: Answer) -> u64 {
    match answer {
        Answer::Acquired(grant) => grant.token,
        other => panic!("a grant was expected, this is {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_are_acquired_released_and_acquired_again_with_a_higher_token() {
    let site = Site::new();
    let running = site.start().await;
    let mut talk = Talk::open(&mut site.client(&running).await).await;
    let lease = talk.open_lease().await.lease;
    let first = token(talk.ask(Call::Acquire(acquire(lease, 1, "a"))).await);
    assert_eq!(talk.refused(Call::Acquire(try_acquire(lease, 2, "a"))).await, Reason::NotFree);
    assert!(matches!(talk.ask(Call::Release(release(lease, 1))).await, Answer::Released(_)));
    assert!(token(talk.ask(Call::Acquire(acquire(lease, 3, "a"))).await) > first);
    let odd = proto::AcquireRequest { locks: vec![exclusive(b"\xff\0")], ..acquire(lease, 4, "") };
    assert!(matches!(talk.ask(Call::Acquire(odd)).await, Answer::Acquired(_)), "names are any bytes");
    let alive = proto::KeepAliveRequest { lease, secret: bytes::Bytes::new() };
    assert!(matches!(talk.ask(Call::KeepAlive(alive)).await, Answer::KeptAlive(_)));
    let close = proto::CloseLeaseRequest { lease, secret: bytes::Bytes::new() };
    assert!(matches!(talk.ask(Call::CloseLease(close)).await, Answer::LeaseClosed(_)));
    drop(talk);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_pipelined_pairs_are_all_answered_also_after_a_half_close() {
    let site = Site::new();
    let running = site.start().await;
    let mut talk = Talk::open(&mut site.client(&running).await).await;
    let lease = talk.open_lease().await.lease;
    let Talk { calls, mut answers, .. } = talk;
    let sending = tokio::spawn(async move {
        for key in 1..=1000 {
            let pair =
                [Call::Acquire(acquire(lease, key, &format!("{key}"))), Call::Release(release(lease, key))];
            for (call, offset) in pair.into_iter().zip([1000, 2000]) {
                let message = ClientMessage { tag: offset + key, call: Some(call) };
                calls.send(message).await.expect("the stream is open");
            }
        }
        // It sends nothing more.
    });
    let mut tags = BTreeSet::new();
    while let Some(message) = answers.message().await.expect("nothing goes wrong") {
        assert!(matches!(message.answer, Some(Answer::Acquired(_) | Answer::Released(_))), "{message:?}");
        assert!(tags.insert(message.tag));
    }
    sending.await.expect("it does not panic");
    assert_eq!(tags, (1001..=3000).collect());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_granted_on_release_and_can_be_cancelled() {
    let (_site, running, mut client) = Site::running().await;
    let (mut one, mut two) = (Talk::open(&mut client).await, Talk::open(&mut client).await);
    let (first, second) = (one.open_lease().await.lease, two.open_lease().await.lease);
    token(one.ask(Call::Acquire(acquire(first, 1, "a"))).await);
    let waiting = two.send(Call::Acquire(acquire(second, 1, "a"))).await;
    let cancelled = two.send(Call::Acquire(acquire(second, 2, "a"))).await;
    let target = Some(proto::cancel_request::Target::IdempotencyKey(2));
    let cancel = proto::CancelRequest { lease: second, secret: bytes::Bytes::new(), target };
    let cancel = two.send(Call::Cancel(cancel)).await;
    let mut heard = [two.hear().await, two.hear().await];
    heard.sort_by_key(|heard| heard.as_ref().ok().and_then(|heard| heard.as_ref().map(|heard| heard.0)));
    match &heard[..] {
        [Ok(Some((a, Answer::Error(error)))), Ok(Some((b, Answer::Cancelled(_))))] => {
            assert_eq!((*a, error.reason(), *b), (cancelled, Reason::Cancelled, cancel));
        }
        other => panic!("a cancelled acquire was expected, this is {other:?}"),
    }
    assert!(matches!(one.ask(Call::Release(release(first, 1))).await, Answer::Released(_)));
    assert!(matches!(two.hear().await, Ok(Some((tag, Answer::Acquired(_)))) if tag == waiting));
    drop((one, two));
    running.node.handle().drain();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_outlives_its_stream_or_not_as_it_was_opened() {
    let (_site, running, mut client) = Site::running().await;
    let (mut talk, mut other) = (Talk::open(&mut client).await, Talk::open(&mut client).await);
    let kept = talk.open_lease_that(proto::OnDisconnect::Keep).await;
    let released = talk.open_lease_that(proto::OnDisconnect::Release).await;
    let held = token(talk.ask(Call::Acquire(acquire(kept.lease, 1, "kept"))).await);
    token(talk.ask(Call::Acquire(acquire(released.lease, 1, "released"))).await);
    let mine = other.open_lease().await.lease;
    drop(talk);
    token(other.ask(Call::Acquire(acquire(mine, 1, "released"))).await);
    assert_eq!(other.refused(Call::Acquire(try_acquire(mine, 2, "kept"))).await, Reason::NotFree);
    let stranger = Call::Acquire(acquire(kept.lease, 2, "b"));
    assert_eq!(other.refused(stranger).await, Reason::NotAttached);
    let attach = proto::AttachLeaseRequest { lease: kept.lease, secret: kept.secret };
    match other.ask(Call::AttachLease(attach)).await {
        Answer::LeaseAttached(attached) => assert!(!attached.reclaim),
        other => panic!("it should be attached, this is {other:?}"),
    }
    let again = token(other.ask(Call::Acquire(acquire(kept.lease, 1, "kept"))).await);
    assert_eq!(again, held, "the same key is the same request");
    drop(other);
    running.node.handle().drain();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_breaks_the_rules_of_a_stream_ends_it_with_a_reason() {
    let (_site, running, mut client) = Site::running().await;
    let hello = |revision| Call::Hello(proto::Hello { revision, client: String::new() });
    let keep = Call::KeepAlive(proto::KeepAliveRequest { lease: 1, secret: bytes::Bytes::new() });
    let large = proto::Hello { revision: 1, client: "x".repeat(3 << 20) };
    let cases = [
        (vec![(1, Some(keep))], Reason::HelloExpected, Code::FailedPrecondition),
        (vec![(1, Some(hello(1))), (2, Some(hello(1)))], Reason::HelloExpected, Code::FailedPrecondition),
        (vec![(1, Some(hello(0)))], Reason::UnsupportedRevision, Code::Unimplemented),
        (vec![(0, Some(hello(1)))], Reason::Malformed, Code::InvalidArgument),
        (vec![(1, None)], Reason::HelloExpected, Code::FailedPrecondition),
        (vec![(1, Some(Call::Hello(large)))], Reason::Malformed, Code::OutOfRange),
    ];
    for (messages, reason, code) in cases {
        let mut talk = Talk::open_silently(&mut client).await;
        for (tag, call) in messages {
            talk.calls.send(ClientMessage { tag, call }).await.expect("the stream is open");
        }
        let status = loop {
            match talk.answers.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it should end with an error: {reason:?}"),
                Err(status) => break status,
            }
        };
        assert_eq!(ended(&status), (reason, code));
    }
    let mut talk = Talk::open(&mut client).await;
    assert_eq!(talk.open_lease().await.ttl_ms, 30_000, "others go on");
    drop(talk);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_call_gets_wrong_is_its_answer_and_the_stream_goes_on() {
    let site = Site::new();
    let running = site.start().await;
    let mut talk = Talk::open(&mut site.client(&running).await).await;
    let lease = talk.open_lease().await.lease;
    let locks = |count: u64| (0..count).map(|i| exclusive(format!("{i}"))).collect::<Vec<_>>();
    let with = |locks| Call::Acquire(proto::AcquireRequest { locks, ..acquire(lease, 1, "") });
    assert_eq!(talk.refused(with(locks(0))).await, Reason::NoLocks);
    assert_eq!(talk.refused(with(locks(10_001))).await, Reason::TooManyLocks);
    assert_eq!(talk.refused(with(vec![exclusive("")])).await, Reason::LockNameEmpty);
    assert_eq!(talk.refused(with(vec![exclusive([0; 1025])])).await, Reason::LockNameTooLong);
    assert_eq!(talk.refused(Call::Acquire(acquire(0xff00, 1, "a"))).await, Reason::UnknownLease);
    assert_eq!(talk.refused(Call::Acquire(acquire(0xff01, 1, "a"))).await, Reason::ForeignLease);
    assert_eq!(talk.refused(Call::Release(release(lease, 9))).await, Reason::NotHeld);
    let open = proto::OpenLeaseRequest { ttl_ms: 999, on_disconnect: 0 };
    assert_eq!(talk.refused(Call::OpenLease(open)).await, Reason::TtlOutOfRange);
    let guess = proto::AttachLeaseRequest { lease, secret: vec![0; 16].into() };
    assert_eq!(talk.refused(Call::AttachLease(guess)).await, Reason::WrongSecret);
    token(talk.ask(with(locks(10_000))).await);
    assert_eq!(talk.refused(Call::Acquire(acquire(lease, 1, "other"))).await, Reason::IdempotencyKeyReused);
    drop(talk);
    running.node.handle().drain();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_is_announced_and_ends_streams() {
    let site = Site::new();
    let running = site.start_with(LocalConfig::default(), LockServerOptions::default()).await;
    let mut talk = Talk::open(&mut site.client(&running).await).await;
    let lease = talk.open_lease().await.lease;
    token(talk.ask(Call::Acquire(acquire(lease, 1, "a"))).await);
    running.node.handle().drain();
    assert!(matches!(talk.hear().await, Ok(Some((0, Answer::Draining(_))))));
    assert_eq!(talk.refused(Call::Acquire(acquire(lease, 2, "b"))).await, Reason::Draining);
    assert!(matches!(talk.ask(Call::Release(release(lease, 1))).await, Answer::Released(_)));
    let status = talk.hear().await.expect_err("the server has stopped");
    assert_eq!(ended(&status), (Reason::Unavailable, Code::Unavailable));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restart_locks_are_reclaimed() {
    let site = Site::new();
    let options = LockServerOptions { drain_timeout: Duration::ZERO, ..LockServerOptions::default() };
    let running = site.start_with(LocalConfig::default(), options).await;
    let mut talk = Talk::open(&mut site.client(&running).await).await;
    let lease = talk.open_lease().await;
    let Answer::Acquired(grant) = talk.ask(Call::Acquire(acquire(lease.lease, 1, "a"))).await else {
        panic!("the lock is free");
    };
    running.stop().await;

    let running = site.start().await;
    let mut talk = Talk::open(&mut site.client(&running).await).await;
    let attach = proto::AttachLeaseRequest { lease: lease.lease, secret: lease.secret };
    match talk.ask(Call::AttachLease(attach)).await {
        Answer::LeaseAttached(attached) => assert!(attached.reclaim),
        other => panic!("it should be attached, this is {other:?}"),
    }
    let held = proto::HeldLocks {
        request: grant.request,
        idempotency_key: 1,
        locks: vec![exclusive("a")],
        token: grant.token,
        label: "test".into(),
    };
    let reclaim = proto::ReclaimRequest {
        lease: lease.lease,
        secret: bytes::Bytes::new(),
        held: vec![held],
        more: false,
    };
    match talk.ask(Call::Reclaim(reclaim)).await {
        Answer::Reclaimed(outcome) => {
            assert_eq!(outcome.kept, Vec::from_iter(grant.request));
            assert_eq!(outcome.lost, []);
        }
        other => panic!("it should be reclaimed, this is {other:?}"),
    }
    let other = talk.open_lease().await.lease;
    assert_eq!(talk.refused(Call::Acquire(try_acquire(other, 1, "a"))).await, Reason::NotFree);
    assert!(matches!(talk.ask(Call::Release(release(lease.lease, 1))).await, Answer::Released(_)));
    assert!(token(talk.ask(Call::Acquire(acquire(other, 2, "a"))).await) > grant.token);
    drop(talk);
    running.node.handle().drain();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reclaim_with_a_malformed_piece_comes_to_nothing() {
    let site = Site::new();
    let running = site.start().await;
    let mut talk = Talk::open(&mut site.client(&running).await).await;
    let lease = talk.open_lease().await.lease;
    let piece = |request, more| {
        let locks = vec![exclusive("a")];
        let held =
            vec![proto::HeldLocks { request, idempotency_key: 1, locks, token: 1, label: String::new() }];
        Call::Reclaim(proto::ReclaimRequest { lease, secret: bytes::Bytes::new(), held, more })
    };
    let good = Some(proto::RequestId { dc: 0, n: 7 });
    assert!(matches!(talk.ask(piece(good, true)).await, Answer::Reclaimed(_)));
    assert_eq!(talk.refused(piece(None, true)).await, Reason::Malformed);
    assert_eq!(talk.refused(piece(good, true)).await, Reason::Malformed);
    assert_eq!(
        talk.refused(piece(good, false)).await,
        Reason::Malformed,
        "the datacenter hears of none of it"
    );
    drop(talk);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tag_that_still_waits_for_its_answer_is_no_other_calls() {
    let site = Site::new();
    let running = site.start().await;
    let Talk { calls, mut answers, .. } = Talk::open(&mut site.client(&running).await).await;
    // So many at once that some arrive before the first, which waits for the disk, is answered.
    let sending = tokio::spawn(async move {
        let open = Call::OpenLease(proto::OpenLeaseRequest::default());
        while calls.send(ClientMessage { tag: 9, call: Some(open.clone()) }).await.is_ok() {}
    });
    let status = loop {
        match answers.message().await {
            Ok(Some(opened)) => assert!(matches!(opened.answer, Some(Answer::LeaseOpened(_)))),
            Ok(None) => panic!("the stream ended as if all were well"),
            Err(status) => break status,
        }
    };
    assert_eq!(ended(&status), (Reason::Malformed, Code::InvalidArgument));
    assert!(status.message().contains("`tag`"), "{}", status.message());
    sending.await.expect("it stops when the stream is closed");
    running.stop().await;
}
