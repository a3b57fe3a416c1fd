//! Enough of many locks over the wire, with a real datacenter behind it.

use bytes::Bytes;

use super::site::{Site, Talk, acquire, release, try_acquire};
use geolock_api::proto::client_message::Call;
use geolock_api::proto::server_message::Answer;
use geolock_api::proto::{self, Reason};

fn candidates(names: &[(&str, u64)]) -> Vec<proto::Candidate> {
    let one = |(name, weight): &(&str, u64)| proto::Candidate {
        name: Bytes::copy_from_slice(name.as_bytes()),
        home: None,
        weight: *weight,
    };
    names.iter().map(one).collect()
}

pub(super) fn enough(amount: u64, most: u32, names: &[(&str, u64)]) -> Option<proto::Enough> {
    Some(proto::Enough { amount, most, candidates: candidates(names), revision: 0 })
}

fn asked(lease: u64, key: u64, enough: Option<proto::Enough>) -> proto::AcquireRequest {
    proto::AcquireRequest { locks: vec![], enough, ..acquire(lease, key, "") }
}

pub(super) fn ask(lease: u64, key: u64, enough: Option<proto::Enough>) -> Call {
    Call::Acquire(asked(lease, key, enough))
}

fn try_ask(lease: u64, key: u64, enough: Option<proto::Enough>) -> Call {
    Call::Acquire(proto::AcquireRequest { locks: vec![], enough, ..try_acquire(lease, key, "") })
}

async fn chosen(talk: &mut Talk, call: Call) -> Vec<u32> {
    match talk.ask(call).await {
        Answer::Acquired(grant) => grant.chosen,
        other => panic!("enough are free: {other:?}"),
    }
}

const THREE: [(&str, u64); 3] = [("a", 1), ("b", 2), ("c", 3)];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enough_locks_are_granted_held_and_released_like_others() {
    let (_site, running, mut client) = Site::running().await;
    let mut talk = Talk::open(&mut client).await;
    let lease = talk.open_lease().await.lease;
    assert_eq!(
        chosen(&mut talk, ask(lease, 1, enough(2, 0, &THREE))).await,
        [1],
        "what is needed of a and b"
    );
    assert_eq!(chosen(&mut talk, ask(lease, 2, enough(3, 1, &THREE))).await, [2]);
    let timed = Some(proto::acquire_request::Wait::WaitMs(1));
    let timed = proto::AcquireRequest { wait: timed, ..asked(lease, 4, enough(2, 0, &THREE)) };
    for (call, reason) in
        [(try_ask(lease, 3, enough(2, 0, &THREE)), Reason::NotFree), (Call::Acquire(timed), Reason::TimedOut)]
    {
        let Answer::Error(refused) = talk.ask(call).await else { panic!("one of them is held") };
        assert_eq!((refused.reason(), refused.free), (reason, Some(1)));
    }
    assert_eq!(talk.refused(Call::Acquire(try_acquire(lease, 5, "b"))).await, Reason::NotFree);

    // The same again under its key, and as a plain request for what it got.
    assert_eq!(chosen(&mut talk, ask(lease, 1, enough(2, 0, &THREE))).await, [1]);
    assert_eq!(chosen(&mut talk, Call::Acquire(acquire(lease, 1, "b"))).await, [1]);
    let others = [enough(2, 1, &THREE), enough(3, 0, &THREE), enough(2, 0, &THREE[..2])];
    for other in others {
        assert_eq!(talk.refused(ask(lease, 1, other)).await, Reason::IdempotencyKeyReused);
    }

    let waits = talk.send(ask(lease, 6, enough(4, 0, &THREE))).await;
    let same = talk.refused(Call::Acquire(acquire(lease, 6, "b"))).await;
    assert_eq!(same, Reason::IdempotencyKeyReused, "it waits for any of them");
    let Answer::Released(_) = talk.ask(Call::Release(release(lease, 2))).await else { panic!("it was held") };
    let granted = talk.hear().await.expect("it goes on").expect("it goes on");
    let (tag, Answer::Acquired(grant)) = granted else { panic!("{granted:?}") };
    assert_eq!((tag, grant.chosen), (waits, vec![0, 2]));
    let lock = proto::DescribeLockRequest { name: "c".into(), home: None };
    let described = client.describe_lock(lock).await.expect("allowed").into_inner().lock.expect("it is held");
    assert_eq!(described.holders[0].request, grant.request);
    let Answer::Released(_) = talk.ask(Call::Release(release(lease, 6))).await else { panic!("it was held") };
    let Answer::Acquired(_) = talk.ask(Call::Acquire(try_acquire(lease, 7, "c"))).await else {
        panic!("it is free")
    };
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_can_never_be_granted_is_refused_at_once() {
    let (_site, running, mut client) = Site::running().await;
    let mut talk = Talk::open(&mut client).await;
    let lease = talk.open_lease().await.lease;
    let long = "x".repeat(1_024);
    let many: Vec<String> = (0..10_001).map(|n| n.to_string()).collect();
    let many: Vec<(&str, u64)> = many.iter().map(|name| (name.as_str(), 1)).collect();
    let too_long: Vec<String> = (0..1_025).map(|n| format!("{n:04}{}", &long[4..])).collect();
    let too_long: Vec<(&str, u64)> = too_long.iter().map(|name| (name.as_str(), 1)).collect();
    let cases = [
        (enough(1, 0, &[]), Reason::NoLocks),
        (enough(1, 0, &many), Reason::TooManyLocks),
        (enough(1, 0, &too_long), Reason::NamesTooLong),
        (enough(0, 0, &THREE), Reason::Malformed),
        (enough(1, 10_001, &THREE), Reason::Malformed),
        (enough(1, 0, &[("a", 1), ("b", 0)]), Reason::Malformed),
        (enough(1, 0, &[("a", 1), ("b", 1), ("a", 1)]), Reason::Malformed),
        (enough(1, 0, &[("", 1)]), Reason::LockNameEmpty),
        (enough(7, 0, &THREE), Reason::NotEnough),
        (enough(6, 2, &THREE), Reason::NotEnough),
    ];
    for (key, (enough, reason)) in (1..).zip(cases) {
        assert_eq!(talk.refused(ask(lease, key, enough)).await, reason, "case {key}");
    }
    let both = proto::AcquireRequest { enough: enough(1, 0, &THREE), ..acquire(lease, 99, "z") };
    assert_eq!(talk.refused(Call::Acquire(both)).await, Reason::Malformed, "`locks` beside it");
    let far = proto::Candidate { home: Some(9), ..candidates(&THREE)[0].clone() };
    let far = proto::Enough { amount: 1, most: 0, candidates: vec![far], revision: 0 };
    assert_eq!(talk.refused(ask(lease, 100, Some(far))).await, Reason::UnknownDc);
    assert_eq!(chosen(&mut talk, ask(lease, 101, enough(6, 3, &THREE))).await, [0, 1, 2]);
    running.stop().await;
}

fn amend(lease: u64, key: u64, revision: u64, add: &[(&str, u64)], drop: &[&str]) -> Call {
    let drop: Vec<(&str, u64)> = drop.iter().map(|name| (*name, 1)).collect();
    Call::Amend(proto::AmendRequest {
        lease,
        secret: Bytes::new(),
        idempotency_key: key,
        revision,
        add: candidates(add),
        drop: candidates(&drop),
    })
}

async fn amended(talk: &mut Talk, call: Call) {
    let Answer::Amended(_) = talk.ask(call).await else { panic!("the request waits") };
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_request_is_amended_in_its_place() {
    let (_site, running, mut client) = Site::running().await;
    let mut talk = Talk::open(&mut client).await;
    let lease = talk.open_lease().await.lease;
    assert_eq!(chosen(&mut talk, ask(lease, 1, enough(6, 0, &THREE))).await, [0, 1, 2]);
    let waits = talk.send(ask(lease, 2, enough(2, 0, &THREE))).await;
    amended(&mut talk, amend(lease, 2, 1, &[("d", 1)], &["a", "b", "z"])).await;
    // Again, and an older one: nothing changes.
    amended(&mut talk, amend(lease, 2, 1, &[("e", 9)], &[])).await;
    amended(&mut talk, amend(lease, 2, 2, &[("e", 1)], &["c"])).await;
    let granted = talk.hear().await.expect("it goes on").expect("it goes on");
    let (tag, Answer::Acquired(grant)) = granted else { panic!("{granted:?}") };
    assert_eq!((tag, grant.chosen, grant.revision), (waits, vec![0, 1], 2), "d and e");
    let older = proto::Enough { revision: 1, ..enough(9, 0, &[("q", 9)]).expect("a list") };
    assert_eq!(chosen(&mut talk, ask(lease, 2, Some(older))).await, [0, 1], "an older copy of the call");
    let lock = proto::DescribeLockRequest { name: "d".into(), home: None };
    let described = client.describe_lock(lock).await.expect("allowed").into_inner().lock.expect("it is held");
    assert_eq!(described.holders[0].request, grant.request);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_amendment_that_cannot_be_is_refused_and_changes_nothing() {
    let (_site, running, mut client) = Site::running().await;
    let mut talk = Talk::open(&mut client).await;
    let lease = talk.open_lease().await.lease;
    assert_eq!(chosen(&mut talk, ask(lease, 1, enough(6, 0, &THREE))).await, [0, 1, 2]);
    let plain = talk.send(Call::Acquire(acquire(lease, 2, "a"))).await;
    let waits = talk.send(ask(lease, 3, enough(4, 2, &THREE))).await;
    let many: Vec<String> = (0..10_001).map(|n| n.to_string()).collect();
    let many: Vec<(&str, u64)> = many.iter().map(|name| (name.as_str(), 1)).collect();
    let cases = [
        (amend(lease, 1, 1, &[("d", 1)], &[]), Reason::NotWaiting),
        (amend(lease, 2, 1, &[("d", 1)], &[]), Reason::NotWaiting),
        (amend(lease, 9, 1, &[("d", 1)], &[]), Reason::NotWaiting),
        (amend(lease, 3, 0, &[("d", 1)], &[]), Reason::Malformed),
        (amend(lease, 3, 2, &[("d", 1)], &[]), Reason::StepMissing),
        (amend(lease, 3, 1, &[("d", 0)], &[]), Reason::Malformed),
        (amend(lease, 3, 1, &[("a", 1)], &[]), Reason::Malformed),
        (amend(lease, 3, 1, &[("d", 1), ("d", 2)], &[]), Reason::Malformed),
        (amend(lease, 3, 1, &[("", 1)], &[]), Reason::LockNameEmpty),
        (amend(lease, 3, 1, &many, &[]), Reason::TooManyLocks),
        (amend(lease, 3, 1, &many[..9_998], &[]), Reason::TooManyLocks),
        (amend(lease, 3, 1, &[("d", 1)], &["c"]), Reason::NotEnough),
        (amend(lease, 3, 1, &[], &["a", "b", "c"]), Reason::NoLocks),
        (amend(lease + 1, 3, 1, &[("d", 1)], &[]), Reason::ForeignLease),
    ];
    for (n, (call, reason)) in cases.into_iter().enumerate() {
        assert_eq!(talk.refused(call).await, reason, "case {n}");
    }
    let far = proto::Candidate { home: Some(9), ..candidates(&THREE)[0].clone() };
    let Call::Amend(with_far) = amend(lease, 3, 1, &[], &[]) else { unreachable!("it is one") };
    let with_far = Call::Amend(proto::AmendRequest { add: vec![far], ..with_far });
    assert_eq!(talk.refused(with_far).await, Reason::UnknownDc);
    let Answer::Released(_) = talk.ask(Call::Release(release(lease, 1))).await else { panic!("it was held") };
    let mut tags = Vec::new();
    for _ in 0..2 {
        let granted = talk.hear().await.expect("it goes on").expect("it goes on");
        let (tag, Answer::Acquired(grant)) = granted else { panic!("{granted:?}") };
        assert_eq!(grant.revision, 0);
        tags.push((tag, grant.chosen));
    }
    tags.sort_unstable();
    assert_eq!(tags, [(plain, vec![]), (waits, vec![1, 2])], "it has waited for the list of before");
    running.stop().await;
}
