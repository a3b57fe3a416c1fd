//! Semaphores on real servers.
//!
//! Guarantee: docs/guarantees.md#semaphores.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::fixture::said::run;
use crate::fixture::{servers, within};
use geolock::client::{AcquireError, Wait};
use geolock_recipes::{Semaphore, SemaphoreError};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

/// The load of Curator's test: 10 permits, 30 clients, 1 000 acquires. Ten are held at a time, never more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_ten_permits_thirty_clients_in_three_datacenters_hold_ten_at_most() {
    const ACQUIRES: u64 = 34;
    let (cluster, _clients) = servers(3).patient().quick().serving().await;
    let held = Arc::new(AtomicU64::new(0));
    // In their first turn they take one each, and release it when ten hold one. The next turns begin when all
    // have ended that: an earlier request for three gathers permits, and would keep the tenth away.
    let (all_held, all_took) = (Arc::new(Barrier::new(10)), Arc::new(Barrier::new(30)));
    let mut clients = JoinSet::new();
    for number in 0..30_u8 {
        let client = cluster.client(number % 3).await;
        let permits = Semaphore::new(&client, "exports", 10).expect("it is fine");
        let (held, all_held, all_took) = (Arc::clone(&held), Arc::clone(&all_held), Arc::clone(&all_took));
        clients.spawn(async move {
            for turn in 0..ACQUIRES {
                let take = if turn == 0 { 1 } else { 1 + (turn + u64::from(number)) % 3 };
                let taken = permits.acquire(take as u32).await.expect("it is granted");
                assert_eq!(taken.numbers().len() as u64, take, "each weighs 1");
                let now = held.fetch_add(take, Ordering::SeqCst) + take;
                assert!(now <= 10, "{now} permits are held");
                if turn == 0 {
                    all_held.wait().await;
                }
                tokio::task::yield_now().await;
                held.fetch_sub(take, Ordering::SeqCst);
                taken.release().await.expect("it is held");
                if turn == 0 {
                    all_took.wait().await;
                }
            }
        });
    }
    let ended = async {
        while let Some(ended) = clients.join_next().await {
            ended.expect("no panic");
        }
    };
    within(ended).await;
    assert_eq!(held.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_permits_can_be_held_and_the_next_one_waits_for_a_release_or_a_death() {
    let (cluster, clients) = servers(1).patient().serving().await;
    let first = Semaphore::new(&clients[0], "exports", 3).expect("it is fine");
    let two = within(first.acquire(2)).await.expect("it is free");
    let dies = cluster.client(0).await;
    let one = within(Semaphore::new(&dies, "exports", 3).expect("it is fine").acquire(1)).await;
    let one = one.expect("it is free");
    let mut numbers: Vec<u32> = two.numbers().iter().chain(one.numbers()).copied().collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2]);
    let refused = first.clone().with_wait(Wait::Try).acquire(1).await;
    assert!(
        matches!(refused, Err(SemaphoreError::Acquire(AcquireError::NotEnoughFree { free: 0 }))),
        "{refused:?}"
    );
    // Its lease is closed, as it would end without a renewal.
    let token = one.token();
    std::mem::forget(one);
    within(dies.close()).await.expect("it is open");
    let next = within(first.acquire(1)).await.expect("it is free again");
    assert!(next.token() > token);
    drop(two);
    drop(within(first.acquire(2)).await.expect("they are free"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_count_on_other_numbers_are_refused() {
    let (cluster, clients) = servers(2).patient().quick().serving().await;
    let first = Semaphore::new(&clients[0], "exports", 3).expect("it is fine");
    drop(within(first.acquire(1)).await.expect("it is free"));
    let other = Semaphore::new(&cluster.client(1).await, "exports", 4).expect("it is fine");
    let refused = within(other.acquire(1)).await.expect_err("it has three");
    assert!(
        matches!(&refused, SemaphoreError::PermitsDiffer { name, recorded: 3, asked: 4 } if name == "exports"),
        "{refused}"
    );
    let refused = first.acquire(4).await.expect_err("it has three");
    assert!(matches!(refused, SemaphoreError::Take { asked: 4, permits: 3 }), "{refused}");
    let refused = first.acquire(0).await.expect_err("it takes none");
    assert!(matches!(refused, SemaphoreError::Take { asked: 0, .. }), "{refused}");
    for permits in [0, 10_001] {
        let refused = Semaphore::new(&clients[0], "exports", permits).expect_err("out of range");
        assert!(matches!(refused, SemaphoreError::Permits(_)), "{refused}");
    }
    assert!(matches!(Semaphore::new(&clients[0], "", 1), Err(SemaphoreError::Name(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_runs_with_permits() {
    let (cluster, clients) = servers(1).patient().serving().await;
    let lock = |flags: &[&str], script: &str| {
        let mut command = cluster.command(0, ["lock"]);
        run(command.args(flags).args(["--", "sh", "-c", script]))
    };
    let done = lock(&["--permits", "2", "--take", "2", "exports"], "echo token $GEOLOCK_TOKEN");
    assert_eq!((done.code, done.stdout.starts_with("token ")), (0, true), "{}", done.stderr);
    let one = within(Semaphore::new(&clients[0], "exports", 2).expect("it is fine").acquire(1)).await;
    let one = one.expect("it is free");
    assert_eq!(lock(&["--permits", "2", "--try", "exports"], "exit 3").code, 3, "the other one is free");
    assert_eq!(lock(&["--permits", "2", "--take", "2", "--try", "exports"], "true").code, 75);
    let other = lock(&["--permits", "3", "exports"], "true");
    assert!(other.code == 64 && other.stderr.contains("has 2 permits"), "{}", other.stderr);
    for flags in [
        &["--permits", "2", "--take", "3", "exports"][..],
        &["--permits", "0", "exports"],
        &["--permits", "2", "exports", "imports"],
        &["--permits", "2", "--shared", "exports"],
        &["--take", "2", "exports"],
    ] {
        assert_eq!(lock(flags, "true").code, 64, "{flags:?}");
    }
    drop(one);
}
