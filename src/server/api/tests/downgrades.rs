//! Downgrades over the wire, with a real datacenter behind it.

use bytes::Bytes;

use super::site::{Site, Talk, acquire, exclusive, release, try_acquire};
use geolock_api::proto::client_message::Call;
use geolock_api::proto::server_message::Answer;
use geolock_api::proto::{self, Reason, downgrade_request, watch_locks_response};

fn downgrade(lease: u64, key: u64, name: &'static str) -> proto::DowngradeRequest {
    let target = Some(downgrade_request::Target::IdempotencyKey(key));
    proto::DowngradeRequest { lease, target, name: Bytes::from_static(name.as_bytes()), ..Default::default() }
}

fn shared(lease: u64, key: u64, name: &str) -> proto::AcquireRequest {
    let mode = proto::Mode::Shared.into();
    let locks = vec![proto::LockMode { mode, ..exclusive(name) }];
    proto::AcquireRequest { locks, ..try_acquire(lease, key, name) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_downgraded_lock_lets_readers_in_and_is_shown_as_shared() {
    let (_site, running, mut client) = Site::running().await;
    let mut talk = Talk::open(&mut client).await;
    let lease = talk.open_lease().await;
    let (lease, secret) = (lease.lease, lease.secret);
    let Answer::Acquired(grant) = talk.ask(Call::Acquire(acquire(lease, 1, "a"))).await else {
        panic!("it is free")
    };
    let watch = proto::WatchLocksRequest { names: vec!["a".into()], ..Default::default() };
    let mut watch = client.watch_locks(watch).await.expect("allowed").into_inner();
    let mut held_as = async || loop {
        let event = watch.message().await.expect("it goes on").expect("it goes on").event;
        if let Some(watch_locks_response::Event::Granted(held)) = event {
            assert_eq!((held.request, held.token), (grant.request, grant.token));
            return held.locks[0].mode();
        }
    };
    assert_eq!(held_as().await, proto::Mode::Exclusive);
    assert_eq!(talk.refused(Call::Acquire(shared(lease, 2, "a"))).await, Reason::NotFree);

    let by_id = proto::DowngradeRequest {
        target: grant.request.map(downgrade_request::Target::Request),
        ..downgrade(lease, 1, "a")
    };
    assert_eq!(talk.ask(Call::Downgrade(by_id)).await, Answer::Downgraded(proto::DowngradeResponse {}));
    assert_eq!(held_as().await, proto::Mode::Shared);
    let lock = proto::DescribeLockRequest { name: "a".into(), home: None };
    let described = client.describe_lock(lock).await.expect("allowed").into_inner().lock.expect("it is held");
    assert_eq!(
        described.holders.iter().map(|holder| holder.mode()).collect::<Vec<_>>(),
        [proto::Mode::Shared]
    );
    let listed = client.list_locks(proto::ListLocksRequest::default()).await.expect("allowed").into_inner();
    assert_eq!(listed.locks[0].held_mode(), proto::Mode::Shared);
    let Answer::Acquired(_) = talk.ask(Call::Acquire(shared(lease, 3, "a"))).await else {
        panic!("it is shared")
    };
    assert_eq!(talk.refused(Call::Acquire(try_acquire(lease, 4, "a"))).await, Reason::NotFree);

    // Harmless repeats: on the stream, unary, and of what was acquired shared.
    for key in [1, 3] {
        let again = Call::Downgrade(downgrade(lease, key, "a"));
        assert_eq!(talk.ask(again).await, Answer::Downgraded(proto::DowngradeResponse {}));
    }
    client.downgrade(proto::DowngradeRequest { secret, ..downgrade(lease, 1, "a") }).await.expect("again");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_its_lease_does_not_hold_is_not_downgraded() {
    let (site, running, mut client) = Site::running().await;
    let mut other_client = site.client(&running).await;
    let (mut talk, mut other) = (Talk::open(&mut client).await, Talk::open(&mut other_client).await);
    let (lease, others) = (talk.open_lease().await.lease, other.open_lease().await.lease);
    let ask = |lease, key, name| Call::Downgrade(downgrade(lease, key, name));
    assert_eq!(talk.refused(ask(lease, 1, "a")).await, Reason::NotHeld, "before it is acquired");
    let Answer::Acquired(grant) = talk.ask(Call::Acquire(acquire(lease, 2, "a"))).await else {
        panic!("it is free")
    };
    assert_eq!(talk.refused(ask(lease, 2, "b")).await, Reason::NotOfRequest);
    let foreign = proto::DowngradeRequest {
        target: grant.request.map(downgrade_request::Target::Request),
        ..downgrade(others, 1, "a")
    };
    assert_eq!(other.refused(Call::Downgrade(foreign)).await, Reason::NotHeld, "it is of another lease");
    assert_eq!(talk.refused(ask(others, 1, "a")).await, Reason::NotAttached);
    assert_eq!(talk.refused(ask(lease, 2, "")).await, Reason::LockNameEmpty);
    assert_eq!(talk.refused(ask(lease, 0, "a")).await, Reason::Malformed);
    let nothing = proto::DowngradeRequest { target: None, ..downgrade(lease, 2, "a") };
    assert_eq!(talk.refused(Call::Downgrade(nothing)).await, Reason::Malformed);
    let Answer::Released(_) = talk.ask(Call::Release(release(lease, 2))).await else { panic!("it was held") };
    assert_eq!(talk.refused(ask(lease, 2, "a")).await, Reason::NotHeld, "it was released");

    let Answer::Acquired(_) = talk.ask(Call::Acquire(acquire(lease, 3, "a"))).await else {
        panic!("it is free")
    };
    let force = proto::ForceReleaseRequest { name: "a".into(), reason: "it hangs".into(), home: None };
    client.force_release(force).await.expect("allowed");
    assert!(matches!(talk.hear().await, Ok(Some((0, Answer::LockLost(_))))));
    assert_eq!(talk.refused(ask(lease, 3, "a")).await, Reason::ForceReleased);
    running.stop().await;
}
