//! Commits at the documented limits, and one above: what is acknowledged is read by the other datacenters and
//! after a restart.
//!
//! Guarantee: docs/guarantees.md#commits.

use std::time::Duration;

use tokio::time::sleep;

use crate::fixture::history::{merged, patient, serving_at};
use crate::fixture::{key, servers, within};
use geolock::client::{
    AcquireError, Batch, Client, ClientConfig, Reason, Snapshot, Transaction, TxnError, TxnRequest, Update,
};

/// Elements of 3 bytes of one step.
const STEP: u32 = 100_000;
/// Most of them of one set.
const SET: u32 = 4 * STEP;

/// A server that has just taken or applied a commit of this size may be behind, and says when to ask again.
async fn begin(client: &Client) -> Transaction {
    loop {
        match client.begin(TxnRequest::new()).await {
            Err(TxnError::NotBegun(AcquireError::Exhausted { retry_after, .. })) => sleep(retry_after).await,
            begun => return begun.expect("it serves"),
        }
    }
}

fn elements(from: u32, count: u32) -> Update {
    Update::set_add((from..from + count).map(|n| n.to_le_bytes()[..3].to_vec()))
}

/// The most elements of sets that fit a commit: each takes 5 of 4 MiB, and the smallest number of bytes on
/// disk for its weight. One step above is refused and changes nothing.
async fn largest_sets(client: &Client) -> Snapshot {
    let mut txn = begin(client).await;
    let mut count = 0;
    loop {
        let set = key(&format!("set {}", count / SET));
        match txn.update(&set, elements(count, STEP)).await {
            Ok(()) => count += STEP,
            Err(TxnError::Refused(Reason::TransactionTooLarge, why)) => {
                assert!(why.to_string().contains("4194304"), "{why}");
                break;
            }
            Err(other) => panic!("after {count} elements: {other}"),
        }
    }
    assert_eq!(count, 8 * STEP);
    txn.commit().await.expect("it is within the limits")
}

/// The most changes of a commit, each as deep as it may be.
async fn deepest_counters(client: &Client) -> Snapshot {
    let deep = (0..8).fold(Update::counter(1), |update, _| update.in_field("f"));
    let mut txn = begin(client).await;
    for _ in 0..6 {
        let step = (0..10_000).fold(Batch::new(), |batch, _| batch.update(&key("deep"), deep.clone()));
        txn.run(step).await.expect("it is within the limits");
    }
    txn.commit().await.expect("it is within the limits")
}

async fn shows_counters(client: &Client, at_least: &Snapshot) {
    let read = client.read_many(&[key("deep")], &patient(at_least)).await.expect("it is up");
    let mut value = read.values.into_iter().next().expect("one key was read");
    for _ in 0..8 {
        value = value.field("f").expect("it is a map");
    }
    assert_eq!(value.counter(), Ok(60_000));
    let mut after = begin(client).await;
    after.update(&key("after"), Update::counter(1)).await.expect("it serves");
    after.commit().await.expect("it serves");
}

async fn shows_sets(client: &Client, at_least: &Snapshot) {
    for (set, from) in [("set 0", 0), ("set 1", SET)] {
        let read = client.read_many(&[key(set)], &patient(at_least)).await.expect("it is up");
        let value = read.values.into_iter().next().expect("one key was read");
        let mut wanted: Vec<_> = (from..from + SET).map(|n| n.to_le_bytes()[..3].to_vec()).collect();
        wanted.sort();
        let found: Vec<_> =
            value.set().expect("it is a set").iter().map(|element| element.to_vec()).collect();
        assert!(found == wanted, "{} of {} elements", found.len(), wanted.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_commits_are_read_elsewhere_and_after_a_restart() {
    let options = "[limits]\nmax_transaction_time = \"300 s\"\n";
    let (mut cluster, clients) = servers(3).with(options).serving().await;
    // Preparing a step takes seconds on a busy machine.
    let config = ClientConfig { ttl: Some(Duration::from_secs(60)), ..cluster.client_config(0) };
    let writer = within(Client::connect(config)).await.expect("it serves");
    let sets = largest_sets(&writer).await;
    let both = merged([&sets, &deepest_counters(&writer).await]);
    for client in &clients {
        shows_counters(client, &both).await;
    }
    shows_sets(&clients[1], &both).await;
    drop((writer, clients));
    for dc in 0..3 {
        cluster.kill(dc);
    }
    cluster.start_all();
    for dc in 0..3 {
        shows_counters(&serving_at(&cluster, dc).await, &both).await;
    }
    shows_sets(&serving_at(&cluster, 2).await, &both).await;
}
