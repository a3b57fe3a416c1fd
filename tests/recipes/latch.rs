//! Count-down latches on real servers, in three datacenters.
//!
//! Guarantee: docs/guarantees.md#count-down-latch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::fixture::{servers, within};
use geolock::client::{Client, Key, Update};
use geolock_recipes::{Latch, LatchError, LatchOptions};
use tokio::task::JoinSet;

fn latch(client: &Client, needed: u64) -> Latch {
    Latch::new(client, "loaded", needed, LatchOptions::default()).expect("the options are fine")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_count_downs_in_three_datacenters_open_it_everywhere() {
    const NEEDED: u64 = 30;
    let (_cluster, clients) = servers(3).patient().quick().serving().await;
    let begun = Arc::new(AtomicU64::new(0));
    let mut waiters = JoinSet::new();
    for client in &clients {
        for _ in 0..3 {
            let (latch, begun) = (latch(client, NEEDED), Arc::clone(&begun));
            waiters.spawn(async move {
                latch.wait().await.expect("it is readable");
                assert_eq!(begun.load(Ordering::SeqCst), NEEDED, "too early");
            });
        }
    }
    let mut workers = JoinSet::new();
    for number in 0..NEEDED as usize {
        let (latch, begun) = (latch(&clients[number % 3], NEEDED), Arc::clone(&begun));
        workers.spawn(async move {
            begun.fetch_add(1, Ordering::SeqCst);
            latch.count_down().await.expect("it commits");
        });
    }
    within(async {
        while let Some(ended) = workers.join_next().await {
            ended.expect("no panic")
        }
    })
    .await;
    within(async {
        while let Some(ended) = waiters.join_next().await {
            ended.expect("no panic")
        }
    })
    .await;
    // It stays open, and one that needs more does not open.
    within(latch(&clients[0], NEEDED).wait()).await.expect("it is open");
    assert_eq!(latch(&clients[1], NEEDED + 5).lacking().await.expect("it is readable"), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_datacenter_that_is_cut_off_counts_and_is_counted_later() {
    let (wan, clients) = servers(3).patient().quick().relayed().serving().await;
    wan.cut(0, 2);
    wan.cut(1, 2);
    within(latch(&clients[0], 2).count_down()).await.expect("it commits");
    within(latch(&clients[2], 2).count_down()).await.expect("it commits alone");
    let lacking = |client: &Client| latch(client, 2);
    assert_eq!(lacking(&clients[2]).lacking().await.expect("it is up"), 1);
    assert_eq!(lacking(&clients[0]).lacking().await.expect("it is up"), 1);
    let waiting = [0, 1, 2].map(|dc: usize| {
        let latch = latch(&clients[dc], 2);
        tokio::spawn(async move { latch.wait().await.expect("it is readable") })
    });
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
    wan.heal_all();
    for waiting in waiting {
        within(waiting).await.expect("no panic");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_latches_are_named() {
    let (_cluster, clients) = servers(1).patient().serving().await;
    let client = &clients[0];
    let new = |name: &str, needed| Latch::new(client, name, needed, LatchOptions::default());
    assert!(matches!(new("", 1), Err(LatchError::Name(0))));
    assert!(matches!(new(&"n".repeat(1_025), 1), Err(LatchError::Name(1_025))));
    assert!(matches!(new("x", 0), Err(LatchError::Zero)));
    let mut options = LatchOptions::default();
    options.keep = Duration::from_secs(9);
    assert!(matches!(Latch::new(client, "x", 1, options), Err(LatchError::Keep(_))));

    let foreign = Key::new(b"geolock.latch", b"loaded").expect("it is short");
    client.update(&foreign, Update::register("hello")).await.expect("it commits");
    let latch = latch(client, 1);
    assert!(matches!(within(latch.wait()).await, Err(LatchError::NoCounter(_))));
    assert!(matches!(within(latch.count_down()).await, Err(LatchError::Commit(_))));
}
