//! A datacenter that is down. Requests that do not need its parts are not affected; those that do are told so
//! while they wait, and are granted when it is back.
//!
//! Guarantees: docs/guarantees.md#order-and-availability, docs/guarantees.md#not-promised.

use std::time::Duration;

use crate::fixture::calls::acquire;
use crate::fixture::history::patient;
use crate::fixture::{key, lock, servers, within};
use geolock::client::{
    AcquireError, AcquireRequest, Client, LockEvent, LockWatchRequest, ReadClient, TxnRequest, Update, Wait,
};
use tokio::task::JoinHandle;

/// Acquires and releases the lock, so that its parts are there.
async fn bring(client: &Client, name: &str) {
    acquire(client, AcquireRequest::exclusive(lock(name))).await.release().await.expect("it was held");
}

/// Requests the lock in a task, and releases it as soon as it is granted.
fn ask(client: &Client, name: &str) -> JoinHandle<()> {
    let (client, name) = (client.clone(), name.to_owned());
    tokio::spawn(async move { bring(&client, &name).await })
}

/// Waits until the only request for a lock is parked because this datacenter is away.
async fn until_parked(client: &Client, name: &str, away: u32) {
    let parked = async {
        loop {
            let described = client.describe_lock(&lock(name)).await.expect("the server answers");
            if described.waiters.iter().any(|waiter| waiter.parked) && described.unreachable_dcs == [away] {
                return;
            }
        }
    };
    within(parked).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_need_a_datacenter_that_is_down_does_not_notice() {
    let (mut cluster, clients) = servers(3).quick().serving().await;
    for (name, dc) in [("here", 0), ("busy", 0), ("open", 1), ("there", 2)] {
        bring(&clients[dc], name).await;
    }
    let held = acquire(&clients[0], AcquireRequest::exclusive(lock("here"))).await;
    let mut open = clients[1].begin(TxnRequest::exclusive(lock("open"))).await.expect("it is free");
    open.update(&key("open"), Update::counter(1)).await.expect("it goes on");

    cluster.kill(2);
    open.update(&key("open"), Update::counter(1)).await.expect("it goes on");
    let committed = within(open.commit()).await.expect("it does not need the other");
    let waiting = [ask(&clients[0], "there"), ask(&clients[1], "there")];
    for _ in 0..20 {
        bring(&clients[0], "busy").await;
        within(clients[1].update(&key("free"), Update::counter(1))).await.expect("it is committed here");
    }
    let seen = within(clients[0].read_many(&[key("open")], &patient(&committed))).await.expect("it comes");
    assert_eq!(seen.values[0].counter().expect("it is a counter"), 2);
    until_parked(&clients[0], "there", 2).await;
    let request = || AcquireRequest::exclusive(lock("there")).wait(Wait::AtMost(Duration::from_millis(200)));
    match within(clients[0].acquire(request())).await.expect_err("its parts are where nobody is") {
        AcquireError::TimedOut { locks, .. } => {
            assert!(
                matches!(&locks[..], [there] if there.unreachable_dcs == [2]),
                "it says which ones: {locks:?}"
            );
        }
        other => panic!("nobody there can be asked: {other}"),
    }
    assert_eq!(held.is_lost(), None);
    held.release().await.expect("it was held all the time");

    // Its own clients get an error, and reconnect by themselves.
    let alone = within(clients[2].acquire(request())).await.expect_err("nobody is there");
    assert!(matches!(alone, AcquireError::Unreachable), "{alone}");

    cluster.restart(2);
    let own = ask(&clients[2], "there");
    for waiting in waiting.into_iter().chain([own]) {
        within(waiting).await.expect("it is granted");
    }
    let seen = within(clients[2].read_many(&[key("open")], &patient(&committed))).await.expect("it comes");
    assert_eq!(seen.values[0].counter().expect("it is a counter"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_lock_returns_to_its_homes_and_then_needs_them() {
    let rule = "[[hold]]\nprefix = \"idle/\"\nidle_return_after = \"1 s\"\n";
    let (mut cluster, clients) = servers(2).quick().with(rule).serving().await;
    let reader = ReadClient::connect(cluster.client_config(0)).await.expect("the server listens");
    let mut watch =
        reader.watch_locks(LockWatchRequest::prefix("idle/")).await.expect("the server serves watches");
    for name in ["idle/lock", "kept"] {
        bring(&clients[0], name).await;
    }
    // From the other datacenter to this one at the first use, and back after a second without a use.
    let mut owners = Vec::new();
    let returned = async {
        while owners != [0, 1] {
            if let LockEvent::Moved(moved) = watch.next().await.expect("the server goes on") {
                owners.extend(moved.moves.iter().map(|part| part.to.get()));
            }
        }
    };
    within(returned).await;

    cluster.kill(1);
    let waiting = ask(&clients[0], "idle/lock");
    until_parked(&clients[0], "idle/lock", 1).await;
    within(bring(&clients[0], "kept")).await;
    assert!(!waiting.is_finished(), "a part of it is in the datacenter that is down");
    cluster.restart(1);
    within(waiting).await.expect("it is granted");
}
