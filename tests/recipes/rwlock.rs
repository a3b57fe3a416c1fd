//! Read-write locks on real servers.
//!
//! Guarantee: docs/guarantees.md#read-write-locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::fixture::{Cluster, lock, servers, within};
use geolock::client::{AcquireError, Client, ReadClient, Wait};
use geolock_recipes::{ReadGuard, RwLock};
use tokio::task::JoinSet;

fn rwlock(client: &Client) -> RwLock {
    RwLock::new(client, lock("prices"))
}

/// Waits until that many requests wait for the lock, as a datacenter sees it.
async fn wait_for_waiters(cluster: &Cluster, dc: u8, waiters: u64) {
    let viewer = ReadClient::connect(cluster.client_config(dc)).await.expect("it is up");
    let reached =
        async { while viewer.describe_lock(&lock("prices")).await.expect("it is up").waiting < waiters {} };
    within(reached).await;
}

async fn readers(cluster: &Cluster, count: usize) -> Vec<ReadGuard> {
    let mut guards = Vec::new();
    for _ in 0..count {
        guards.push(within(rwlock(&cluster.client(0).await).read()).await.expect("it is granted"));
    }
    guards
}

/// Readers that ask after it wait behind it: it waits for one turn of those that hold the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_is_next_whoever_reads_and_readers_come_in_together() {
    let (cluster, _clients) = servers(1).patient().serving().await;
    let first = readers(&cluster, 25).await;
    let writer = rwlock(&cluster.client(0).await);
    let writing = tokio::spawn(async move { writer.write().await });
    wait_for_waiters(&cluster, 0, 1).await;
    let mut later = JoinSet::new();
    for _ in 0..25 {
        let reader = rwlock(&cluster.client(0).await);
        later.spawn(async move { reader.read().await.expect("it is granted") });
    }
    wait_for_waiters(&cluster, 0, 26).await;
    let last = first.iter().map(ReadGuard::token).max().expect("there are some");
    for reader in first {
        within(reader.release()).await.expect("it is held");
    }
    let writing = within(writing).await.expect("no panic").expect("it is granted");
    assert!(writing.token() > last && later.try_join_next().is_none(), "the writer is alone");
    let token = writing.token();
    within(writing.release()).await.expect("it is held");
    let later = within(later.join_all()).await;
    assert!(later.iter().all(|reader| reader.token() > token), "they come in together, after it");
}

/// The load of ZooKeeper's and Curator's tests: 50 readers, and a writer every 10 ms.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_readers_in_three_datacenters_and_a_writer_see_each_other_never() {
    const WRITES: u64 = 50;
    let (cluster, clients) = servers(3).patient().quick().serving().await;
    let (value, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut reading = JoinSet::new();
    for number in 0..50 {
        let (reader, value, is_over) =
            (rwlock(&cluster.client(number % 3).await), Arc::clone(&value), Arc::clone(&is_over));
        reading.spawn(async move {
            let (mut reads, mut last) = (0_u64, 0);
            while !is_over.load(Ordering::Relaxed) {
                let guard = reader.read().await.expect("it is granted");
                let before = value.load(Ordering::Relaxed);
                tokio::task::yield_now().await;
                let after = value.load(Ordering::Relaxed);
                assert!(before == after && after.is_multiple_of(2), "{before} and {after} during a read");
                assert!(after >= last, "{after} after {last}");
                (reads, last) = (reads + 1, after);
                guard.release().await.expect("it is held");
            }
            reads
        });
    }
    let writer = rwlock(&clients[0]);
    let mut every = tokio::time::interval(Duration::from_millis(10));
    let writes = async {
        for _ in 0..WRITES {
            every.tick().await;
            let guard = writer.write().await.expect("it is granted");
            value.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            value.fetch_add(1, Ordering::Relaxed);
            guard.release().await.expect("it is held");
        }
    };
    within(writes).await;
    is_over.store(true, Ordering::Relaxed);
    let reads = within(reading.join_all()).await;
    assert_eq!((value.load(Ordering::Relaxed), reads.len()), (2 * WRITES, 50));
    assert!(reads.iter().all(|reads| *reads > 0), "{reads:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_twenty_waiting_writers_none_writes_before_a_downgraded_writer_releases() {
    let (cluster, clients) = servers(3).patient().quick().serving().await;
    let written = Arc::new(AtomicU64::new(0));
    let first = within(rwlock(&clients[0]).write()).await.expect("it is granted");
    let token = first.token();
    let early = rwlock(&cluster.client(0).await);
    let early = tokio::spawn(async move { early.read().await.expect("it is granted") });
    wait_for_waiters(&cluster, 0, 1).await;
    let mut writing = JoinSet::new();
    for number in 0..20 {
        let (writer, written) = (rwlock(&cluster.client(number % 3).await), Arc::clone(&written));
        writing.spawn(async move {
            let guard = writer.write().await.expect("it is granted");
            written.fetch_add(1, Ordering::SeqCst);
            let token = guard.token();
            guard.release().await.expect("it is held");
            token
        });
    }
    // The seven of this datacenter, and the first one of each other, which stands for all of its own.
    wait_for_waiters(&cluster, 0, 1 + 7 + 2).await;

    let reading = within(first.downgrade()).await.expect("it is held");
    let early = within(early).await.expect("no panic");
    assert!(reading.token() == token && early.token() > token, "the reader was before the writers");
    let late = rwlock(&clients[0]).with_wait(Wait::Try).read().await;
    assert!(matches!(late, Err(AcquireError::NotFree)), "a later one is behind them: {late:?}");
    within(early.release()).await.expect("it is held");
    for dc in 0..3 {
        let viewer = ReadClient::connect(cluster.client_config(dc)).await.expect("it is up");
        let described = viewer.describe_lock(&lock("prices")).await.expect("it is up");
        let holders: Vec<_> = described.holders.iter().map(|it| (it.dc, it.mode(), it.token)).collect();
        assert_eq!(holders, [(0, geolock_api::proto::Mode::Shared, token.0)], "as dc{dc} sees it");
    }
    assert_eq!(written.load(Ordering::SeqCst), 0, "nothing was written meanwhile");
    within(reading.release()).await.expect("it is held");
    let tokens = within(writing.join_all()).await;
    assert!(written.load(Ordering::SeqCst) == 20 && tokens.iter().all(|later| *later > token));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_downgraded_lock_is_shared_after_a_restart_too() {
    let (mut cluster, clients) = servers(1).patient().serving().await;
    let writing = within(rwlock(&clients[0]).write()).await.expect("it is granted");
    let (token, reading) = (writing.token(), within(writing.downgrade()).await.expect("it is held"));
    let other = within(rwlock(&cluster.client(0).await).read()).await.expect("it is shared");
    cluster.restart(0);
    // It waits until both have reclaimed.
    let third = cluster.client(0).await;
    let third = within(rwlock(&third).read()).await.expect("it is shared");
    assert_eq!((reading.guard().is_lost(), other.guard().is_lost()), (None, None));
    assert!(reading.token() == token && third.token() > other.token());
    let refused = rwlock(&clients[0]).with_wait(Wait::Try).write().await;
    assert!(matches!(refused, Err(AcquireError::NotFree)), "{refused:?}");
    for reader in [reading, other, third] {
        within(reader.release()).await.expect("it is held");
    }
    within(rwlock(&clients[0]).write()).await.expect("it is free").release().await.expect("it is held");
}
