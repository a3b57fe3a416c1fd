//! Three real servers with real TLS, links and disks, and clients of each.
//!
//! Guarantees: docs/guarantees.md#mutual-exclusion, docs/guarantees.md#order-and-availability,
//! docs/guarantees.md#tokens-and-snapshots-of-grants, docs/guarantees.md#locks-after-a-restart.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::fixture::calls::acquire;
use crate::fixture::{lock, servers, within};
use geolock::client::{AcquireRequest, Client, LockGuard, Mode};
use geolock_api::names::FencingToken;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::sleep;

fn all_of(names: impl IntoIterator<Item = String>) -> AcquireRequest {
    let mut names = names.into_iter().map(|text| lock(&text));
    let first = AcquireRequest::exclusive(names.next().expect("at least one"));
    names.fold(first, |request, name| request.and(name, Mode::Exclusive))
}

async fn release(guard: LockGuard) {
    within(guard.release()).await.expect("it was held");
}

async fn all<T: 'static>(mut tasks: JoinSet<T>) {
    while let Some(done) = within(tasks.join_next()).await {
        done.expect("no task fails");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn datacenters_take_the_same_locks_in_turn() {
    let (_cluster, clients) = servers(3).connected().await;
    let mut last = FencingToken(0);
    for dc in [2, 0, 0, 1, 2, 1, 2, 0] {
        let guard = acquire(&clients[dc], all_of(["a", "b", "c", "d"].map(String::from))).await;
        assert!(guard.token() > last, "{} after {last}", guard.token());
        last = guard.token();
        release(guard).await;
    }
}

/// Reads the number, waits, writes the next one: wrong if another client does so concurrently.
async fn increment(counter: &Path, pause: Duration) {
    let number: u64 = std::fs::read_to_string(counter).expect("it is there").parse().expect("a number");
    sleep(pause).await;
    std::fs::write(counter, (number + 1).to_string()).expect("it is writable");
}

async fn count(pause: Duration) {
    let (cluster, clients) = servers(3).connected().await;
    let counter = cluster.dir().join("counter");
    std::fs::write(&counter, "0").expect("the folder is writable");
    let mut tasks = JoinSet::new();
    for client in clients {
        let counter = counter.clone();
        tasks.spawn(async move {
            for _ in 0..100 {
                let guard = acquire(&client, AcquireRequest::exclusive(lock("counter"))).await;
                increment(&counter, pause).await;
                release(guard).await;
            }
        });
    }
    all(tasks).await;
    assert_eq!(std::fs::read_to_string(&counter).expect("it is there"), "300");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_under_a_lock_counts_right() {
    count(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_under_a_lock_counts_right_with_pauses() {
    count(Duration::from_millis(30)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_counts_right_while_servers_are_killed() {
    const EACH: u64 = 60;
    let (mut cluster, clients) = servers(3).connected().await;
    let counter = cluster.dir().join("counter");
    std::fs::write(&counter, "0").expect("the folder is writable");
    let (tell, mut progress) = tokio::sync::mpsc::channel(1);
    let mut tasks = JoinSet::new();
    for client in clients {
        let (counter, tell) = (counter.clone(), tell.clone());
        tasks.spawn(async move {
            for done in 1..=EACH {
                let guard = acquire(&client, AcquireRequest::exclusive(lock("counter"))).await;
                increment(&counter, Duration::from_millis(5)).await;
                assert_eq!(guard.is_lost(), None);
                release(guard).await;
                if done.is_multiple_of(EACH / 3) {
                    tell.send(()).await.expect("somebody listens");
                }
            }
        });
    }
    drop(tell);
    // At each third of each client's run another server.
    let mut kills = 0;
    while within(progress.recv()).await.is_some() {
        let dc = kills % 3;
        cluster.kill(dc);
        cluster.restart(dc);
        kills += 1;
    }
    all(tasks).await;
    assert_eq!(kills, 9);
    assert_eq!(std::fs::read_to_string(&counter).expect("it is there"), (3 * EACH).to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_used_again_in_its_datacenter_says_nothing_to_the_others() {
    let (_cluster, clients) = servers(3).connected().await;
    release(acquire(&clients[1], AcquireRequest::exclusive(lock("local"))).await).await;
    let counts = async || clients[1].status().await.expect("the server answers").counts;
    let before = counts().await;
    for _ in 0..100 {
        release(acquire(&clients[1], AcquireRequest::exclusive(lock("local"))).await).await;
    }
    let after = counts().await;
    let grown = |count: &str| after[count] - before[count];
    assert_eq!(grown("grants_local_total"), 100);
    assert_eq!((grown("entries_made_total"), grown("part_transfers_received_total")), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_locks_at_once_from_everywhere() {
    let (_cluster, clients) = servers(3).connected().await;
    let mut tasks = JoinSet::new();
    for client in clients {
        for _ in 0..20 {
            let client = client.clone();
            tasks.spawn(async move {
                let guard = acquire(&client, all_of((0..100).map(|i| format!("lock/{i}")))).await;
                release(guard).await;
            });
        }
    }
    assert_eq!(tasks.len(), 60);
    all(tasks).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shared_everywhere_then_exclusive_then_shared_again() {
    let (_cluster, clients) = servers(3).connected().await;
    for writer in &clients {
        let mut readers = Vec::new();
        for client in &clients {
            readers.push(acquire(client, AcquireRequest::shared(lock("config"))).await);
        }
        let newest = readers.iter().map(LockGuard::token).max().expect("there are readers");
        let waiting = writer.acquire(AcquireRequest::exclusive(lock("config")));
        tokio::pin!(waiting);
        for reader in readers {
            assert!(still_waits(waiting.as_mut()).await, "a reader is still in");
            release(reader).await;
        }
        let guard = within(waiting).await.expect("it is granted");
        assert!(guard.token() > newest);
        release(guard).await;
    }
}

/// Returns true if it is not complete at this moment.
async fn still_waits<F: Future>(mut future: std::pin::Pin<&mut F>) -> bool {
    std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_elsewhere_gets_in_between_overlapping_readers() {
    let (_cluster, clients) = servers(3).connected().await;
    let overlap = Arc::new(Barrier::new(2));
    let mut readers = JoinSet::new();
    for _ in 0..2 {
        let (client, overlap) = (clients[0].clone(), Arc::clone(&overlap));
        readers.spawn(async move {
            // Each acquires the next lock before it releases the last one; without the writer the lock is
            // never free.
            let mut guard = acquire(&client, AcquireRequest::shared(lock("page"))).await;
            overlap.wait().await;
            loop {
                let next = client.acquire(AcquireRequest::shared(lock("page")));
                tokio::pin!(next);
                tokio::select! {
                    next = &mut next => release(std::mem::replace(&mut guard, next.expect("it is granted"))).await,
                    () = sleep(Duration::from_millis(20)) => {
                        // Another request comes first: release, as a reader does at some time.
                        release(guard).await;
                        guard = within(next).await.expect("it is granted");
                    }
                }
            }
        });
    }
    for _ in 0..3 {
        let guard = acquire(&clients[1], AcquireRequest::exclusive(lock("page"))).await;
        release(guard).await;
    }
    readers.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_gives_its_clients_their_locks_back() {
    let mut cluster = servers(3).listening();
    let holder = cluster.client(0).await;
    let guard = acquire(&holder, AcquireRequest::exclusive(lock("leader")).label("the holder")).await;
    let mut contenders = JoinSet::new();
    let contend = |contenders: &mut JoinSet<_>, client: Client| {
        contenders.spawn(async move { acquire(&client, AcquireRequest::exclusive(lock("leader"))).await });
    };
    contend(&mut contenders, cluster.client(1).await);
    cluster.kill(0);
    cluster.restart(0);
    let neighbour = cluster.client(0).await;
    contend(&mut contenders, neighbour.clone());
    let token = within(async {
        loop {
            let described = neighbour.describe_lock(&lock("leader")).await.expect("the server answers");
            if let [held] = &described.holders[..] {
                assert_eq!(held.label, "the holder");
                return held.token;
            }
            assert!(described.holders.is_empty(), "nobody else holds it: {described:?}");
        }
    })
    .await;
    assert_eq!(token, guard.token().0);
    assert_eq!(guard.is_lost(), None);
    assert!(contenders.try_join_next().is_none(), "the others wait");
    let mut last = guard.token();
    release(guard).await;
    for _ in 0..2 {
        let next = within(contenders.join_next()).await.expect("there are two").expect("no task fails");
        assert!(next.token() > last);
        last = next.token();
        release(next).await;
    }
}
