//! Transactions under guards over the wire, with a real datacenter behind it.

use bytes::Bytes;

use super::site::{Site, Talk, acquire, release};
use geolock_api::proto::client_message::Call;
use geolock_api::proto::server_message::Answer;
use geolock_api::proto::{self, Reason, Then, update};

fn put(value: &'static [u8]) -> proto::Change {
    let update = proto::Update { path: vec![], op: Some(update::Op::LwwRegister(Bytes::from_static(value))) };
    let key = proto::Key { bucket: Bytes::from_static(b"test"), name: Bytes::from_static(b"r") };
    proto::Change { key: Some(key), action: Some(proto::change::Action::Update(update)) }
}

fn under(lease: u64, key: u64, guards: &[Option<proto::RequestId>], then: Then) -> Call {
    let under = guards.iter().copied().map(|id| id.expect("a grant has a request")).collect();
    let step = Some(proto::Step { changes: vec![put(b"mine")], then: then.into(), ..Default::default() });
    Call::Begin(proto::BeginRequest { lease, idempotency_key: key, under, step, ..Default::default() })
}

async fn granted(talk: &mut Talk, lease: u64, key: u64, name: &str) -> Option<proto::RequestId> {
    match talk.ask(Call::Acquire(acquire(lease, key, name))).await {
        Answer::Acquired(grant) => grant.request,
        other => panic!("{name} is free: {other:?}"),
    }
}

async fn stepped(talk: &mut Talk, call: Call) -> proto::StepResponse {
    match talk.ask(call).await {
        Answer::Stepped(stepped) => stepped,
        other => panic!("a step was expected, this is {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_runs_under_locks_that_its_lease_holds_and_no_others() {
    let (site, running, mut client) = Site::running().await;
    let mut other_client = site.client(&running).await;
    let (mut talk, mut other) = (Talk::open(&mut client).await, Talk::open(&mut other_client).await);
    let (lease, others) = (talk.open_lease().await.lease, other.open_lease().await.lease);
    let held = granted(&mut talk, lease, 1, "a").await;
    let foreign = granted(&mut other, others, 1, "b").await;

    let done = stepped(&mut talk, under(lease, 2, &[held], Then::Commit)).await;
    assert_eq!((done.state(), done.token), (proto::TransactionState::Committed, 0));
    let refused = talk.refused(under(lease, 3, &[held, foreign], Then::Commit)).await;
    assert_eq!(refused, Reason::NotHeld, "it is of another lease");
    let refused = talk.refused(under(lease, 4, &[held; 17], Then::Commit)).await;
    assert_eq!(refused, Reason::TransactionTooLarge);

    // The other client waits for "a", and cannot commit under what it waits for.
    other.send(Call::Acquire(acquire(others, 2, "a"))).await;
    let waiting = loop {
        let lock = proto::DescribeLockRequest { name: Bytes::from_static(b"a"), ..Default::default() };
        let described = client.describe_lock(lock).await.expect("allowed").into_inner();
        if let Some(waiter) = described.lock.expect("it is held").waiters.first() {
            break waiter.request;
        }
    };
    let refused = other.refused(under(others, 3, &[waiting], Then::Commit)).await;
    assert_eq!(refused, Reason::NotHeld, "it waits");

    let open = stepped(&mut talk, under(lease, 5, &[held], Then::Continue)).await;
    assert_eq!(open.state(), proto::TransactionState::Open);
    let Answer::Released(_) = talk.ask(Call::Release(release(lease, 1))).await else { panic!("it was held") };
    let step = Some(proto::Step { then: Then::Commit.into(), ..Default::default() });
    let commit = proto::StepRequest { lease, idempotency_key: 5, step, ..Default::default() };
    assert_eq!(talk.refused(Call::Step(commit)).await, Reason::TransactionLostLocks);
    let refused = talk.refused(under(lease, 6, &[held], Then::Commit)).await;
    assert_eq!(refused, Reason::TransactionLostLocks, "it was released");

    let Ok(Some((_, Answer::Acquired(next)))) = other.hear().await else { panic!("it is free now") };
    let commit = done.commit.expect("it is committed").seqs;
    let snapshot = next.snapshot.expect("a grant has one").seqs;
    assert!(snapshot.len() >= commit.len() && snapshot.iter().zip(&commit).all(|(has, seq)| has >= seq));
    let done = stepped(&mut other, under(others, 4, &[next.request, foreign], Then::Commit)).await;
    assert_eq!(done.state(), proto::TransactionState::Committed);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_that_an_operator_took_away_is_refused_with_the_reason() {
    let (site, running, mut operator) = Site::running().await;
    let mut talk = Talk::open(&mut site.client(&running).await).await;
    let lease = talk.open_lease().await.lease;
    let held = granted(&mut talk, lease, 1, "a").await;
    let force = proto::ForceReleaseRequest { name: "a".into(), reason: "it hangs".into(), home: None };
    operator.force_release(force).await.expect("allowed");
    assert!(matches!(talk.hear().await, Ok(Some((0, Answer::LockLost(_))))));
    let refused = talk.refused(under(lease, 2, &[held], Then::Commit)).await;
    assert_eq!(refused, Reason::ForceReleased);
    running.stop().await;
}
