//! Locks with a value on real servers, in three datacenters.
//!
//! Guarantee: docs/guarantees.md#locks-with-a-value.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::fixture::{servers, within};
use geolock::client::{AdminClient, Client, ForceReason};
use geolock_recipes::{HeldError, HeldOptions, ValuedLock};
use tokio::task::JoinSet;

fn valued(client: &Client, who: &str) -> ValuedLock {
    let mut options = HeldOptions::default();
    options.who = who.to_owned();
    ValuedLock::new(client, "import", options).expect("the options are fine")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_is_that_of_the_latest_holder_or_of_the_one_before() {
    const TURNS: usize = 60;
    let (cluster, clients) = servers(3).patient().quick().serving().await;
    // The token of the latest holder, and those of all, in their order.
    let (latest, all) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(vec![0])));
    let mut watches = JoinSet::new();
    for client in clients {
        let mut watch = valued(&client, "").watch();
        assert_eq!(within(watch.next()).await.expect("it is readable"), None);
        watches.spawn(async move {
            let (mut tokens, mut last) = (BTreeSet::new(), 0);
            loop {
                let Some(held) = watch.next().await.expect("it is readable") else { continue };
                assert!(held.token.0 >= last, "{} after {last}", held.token);
                last = held.token.0;
                tokens.insert(last);
                if tokens.len() == TURNS && held.value[..] == b"second"[..] {
                    return tokens;
                }
            }
        });
    }
    let mut holders = JoinSet::new();
    for number in 0..6 {
        let lock = valued(&cluster.client(number % 3).await, "holder");
        let (latest, all) = (Arc::clone(&latest), Arc::clone(&all));
        holders.spawn(async move {
            for _ in 0..TURNS / 6 {
                let held = lock.acquire("first").await.expect("it is granted");
                all.lock().expect("nothing panics").push(held.token().0);
                latest.store(held.token().0, Ordering::SeqCst);
                held.set("second").await.expect("it is held");
                let own = lock.read().await.expect("it is up").expect("it was written");
                assert_eq!((own.token, &own.value[..]), (held.token(), &b"second"[..]));
                held.release().await.expect("it is held");
            }
        });
    }
    within(async {
        while let Some(ended) = holders.join_next().await {
            ended.expect("no panic")
        }
    })
    .await;
    let all = all.lock().expect("nothing panics").clone();
    assert!(all.is_sorted_by(|a, b| a < b), "{all:?}");
    for seen in within(watches.join_all()).await {
        assert!(seen.iter().eq(&all[1..]), "{seen:?}");
    }
    assert_eq!(latest.load(Ordering::SeqCst), all[TURNS]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_stays_and_the_next_holder_has_it_wherever_it_is() {
    let (cluster, clients) = servers(3).patient().quick().serving().await;
    assert_eq!(valued(&clients[1], "").read().await.expect("it is up"), None);
    let first =
        within(valued(&cluster.client(0).await, "ann").acquire("begins")).await.expect("it is granted");
    assert_eq!(first.previous(), None);
    within(first.set("7 rows")).await.expect("it is held");
    let token = first.token();
    within(first.release()).await.expect("it is held");
    for client in &clients {
        let held = within(valued(client, "bob").acquire("goes on")).await.expect("it is granted");
        let previous = held.previous().expect("there is one").clone();
        match held.token() > previous.token && previous.token == token {
            true => assert_eq!((&*previous.who, &previous.value[..]), ("ann", &b"7 rows"[..])),
            false => assert_eq!((&*previous.who, &previous.value[..]), ("bob", &b"goes on"[..])),
        }
        within(held.release()).await.expect("it is held");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_has_lost_the_lock_sets_nothing() {
    let (cluster, clients) = servers(3).patient().quick().serving().await;
    let lock = valued(&cluster.client(0).await, "ann");
    let held = within(lock.acquire("ann's")).await.expect("it is granted");
    let operator = AdminClient::connect(cluster.client_config(0)).await.expect("it is up");
    let reason = ForceReason::new("it hangs").expect("it says something");
    operator.force_release(lock.lock(), &reason).await.expect("it is allowed");
    let error = within(held.set("too late")).await.expect_err("it is lost");
    assert!(matches!(error, HeldError::Lost(_)), "{error}");
    assert!(held.is_lost().is_some());
    let next = within(valued(&clients[2], "bob").acquire("bob's")).await.expect("it is granted");
    let previous = next.previous().expect("there is one");
    assert_eq!((previous.token, &previous.value[..]), (held.token(), &b"ann's"[..]));
    assert!(within(held.release()).await.is_err(), "it had been lost");

    let long = ValuedLock::new(&clients[0], "n".repeat(1_010), HeldOptions::default());
    assert!(matches!(long, Err(HeldError::Name { len: 1_010, most: 1_009 })), "{long:?}");
    let error = within(next.set(vec![0; 65_537])).await.expect_err("it is too long");
    assert!(matches!(error, HeldError::Value { len: 65_537, most: 65_536 }), "{error}");
}
