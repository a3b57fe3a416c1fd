//! A crowd of clients that asks for more than the server may accept: refused requests are retried later,
//! accepted ones are granted once and exclusively, and afterwards the server is as before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::fixture::{lock, servers, within};
use geolock::client::{AcquireError, AcquireRequest, Client, TxnError, TxnRequest};
use tokio::sync::watch;
use tokio::task::JoinSet;

const CLIENTS: usize = 4;
/// Per client: together three times as many as may wait.
const REQUESTS: usize = 150;
const LOCKS: usize = 5;
const MAX_WAITING: u64 = 200;

/// Counts over the whole crowd.
#[derive(Default)]
struct Seen {
    /// By lock: true while a client is in the critical section.
    inside: [AtomicBool; LOCKS],
    granted: AtomicU64,
    refused: AtomicU64,
}

fn name(request: usize) -> String {
    format!("wanted/{}", request % LOCKS)
}

async fn gauge(client: &Client, name: &str) -> u64 {
    client.status().await.expect("it is up").counts[name]
}

/// Asks once. Checks that it is alone in the critical section.
async fn ask(client: Client, request: usize, seen: Arc<Seen>) {
    let wanted = AcquireRequest::exclusive(lock(&name(request)));
    match client.acquire(wanted).await {
        Ok(guard) => {
            let inside = &seen.inside[request % LOCKS];
            assert!(!inside.swap(true, Ordering::SeqCst), "two at once hold {}", name(request));
            // Gives the others every chance to enter, too.
            tokio::task::yield_now().await;
            inside.store(false, Ordering::SeqCst);
            seen.granted.fetch_add(1, Ordering::SeqCst);
            guard.release().await.expect("it is held");
        }
        Err(AcquireError::Exhausted { retry_after, .. }) => {
            assert!(retry_after > Duration::ZERO);
            seen.refused.fetch_add(1, Ordering::SeqCst);
        }
        Err(error) => panic!("request {request}: {error}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_much_is_refused_and_the_rest_is_served() {
    let _alone = crate::alone().await;
    let (cluster, mut clients) =
        servers(1).with(&format!("[limits]\nmax_waiting = {MAX_WAITING}\n")).serving().await;
    let operator = clients.swap_remove(0);
    let mut held = Vec::new();
    for number in 0..LOCKS {
        held.push(
            operator.acquire(AcquireRequest::exclusive(lock(&name(number)))).await.expect("it is free"),
        );
    }
    let seen = Arc::new(Seen::default());
    let mut crowd = JoinSet::new();
    for _ in 0..CLIENTS {
        let client = cluster.client(0).await;
        for request in 0..REQUESTS {
            crowd.spawn(ask(client.clone(), request, Arc::clone(&seen)));
        }
    }
    let (over, mut is_over) = watch::channel(false);
    let beside = tokio::spawn({
        let operator = operator.clone();
        async move {
            let mut most = 0;
            while !*is_over.borrow_and_update() {
                most = most.max(gauge(&operator, "waiting").await);
            }
            most
        }
    });
    // No request is granted before all were accepted or refused.
    let total = (CLIENTS * REQUESTS) as u64;
    let all_asked =
        async { while seen.refused.load(Ordering::SeqCst) + gauge(&operator, "waiting").await < total {} };
    within(all_asked).await;
    assert_eq!(gauge(&operator, "waiting").await, MAX_WAITING);
    // A transaction that wants locks is refused in the same way.
    let txn = TxnRequest::exclusive(lock("another"));
    match operator.begin(txn).await.map(drop) {
        Err(TxnError::NotBegun(AcquireError::Exhausted { retry_after, .. })) => {
            assert!(retry_after > Duration::ZERO)
        }
        other => panic!("it should be refused for a while, this is {other:?}"),
    }
    for guard in held {
        guard.release().await.expect("it is held");
    }
    within(async { while crowd.join_next().await.transpose().expect("nobody panics").is_some() {} }).await;
    over.send_replace(true);
    assert!(beside.await.expect("it looks on") <= MAX_WAITING);
    assert_eq!(seen.granted.load(Ordering::SeqCst), MAX_WAITING, "what was accepted was granted");
    assert_eq!(seen.refused.load(Ordering::SeqCst), total - MAX_WAITING);

    // Locks that were just used are remembered for a moment.
    for name in ["waiting", "held", "locks_active"] {
        within(async { while gauge(&operator, name).await > 0 {} }).await;
    }
    assert!(!operator.status().await.expect("it is up").overloaded);
    let guard = operator.acquire(AcquireRequest::exclusive(lock(&name(0)))).await.expect("it is free");
    guard.release().await.expect("it is held");
}
