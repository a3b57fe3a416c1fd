//! Watches of real servers: their events across kills and restarts, and `geolock watch` as a user sees it.
//!
//! Guarantee: docs/guarantees.md#watches.

use std::collections::{BTreeMap, BTreeSet};

use crate::fixture::said::run;
use crate::fixture::{Cluster, Output, Running, key, lock, servers, within};
use geolock::client::{
    Batch, Client, LockEvent, LockWatch, LockWatchRequest, ReadClient, TxnRequest, Update, Watch,
    WatchRequest,
};
use geolock_api::names::{DcId, LockName};
use rustix::process::Signal;
use tokio::sync::watch;

/// Transactions of each of the two datacenters that are not killed.
const TRANSACTIONS: u64 = 150;
const LOCKS: [&str; 3] = ["l/0", "l/1", "l/2"];

async fn reader(cluster: &Cluster, dc: u8) -> ReadClient {
    ReadClient::connect(cluster.client_config(dc)).await.expect("the server listens")
}

/// Counts under locks that the other datacenter wants, too, beside a key that is not watched.
async fn count(client: Client) {
    for i in 0..TRANSACTIONS {
        let request = TxnRequest::exclusive(lock(LOCKS[i as usize % LOCKS.len()]));
        let batch = Batch::new()
            .update(&key("n"), Update::counter(1))
            .update(&key("other"), Update::register(vec![b'x'; 8_000]));
        client.transact(request, batch).await.expect("it commits in the end");
    }
    client.close().await.expect("it closes");
}

/// Receives every increment once; reports how many it has received.
async fn hear_counts(mut watch: Watch, heard: watch::Sender<usize>) {
    let mut commits = BTreeSet::new();
    while commits.len() < 2 * TRANSACTIONS as usize {
        let changed = watch.next().await.expect("all of it is remembered");
        assert_eq!(changed.changes.len(), 1, "the other key is not followed");
        assert!(commits.insert((changed.dc, changed.seq)), "{changed:?} is told twice");
        heard.send_replace(commits.len());
    }
}

type Owners = BTreeMap<(LockName, DcId), DcId>;

/// Receives every move once, in causal order: each begins where the one before it ended. Continues until the
/// parts are at `end`.
async fn hear_moves(mut watch: LockWatch, mut end: watch::Receiver<Owners>) -> usize {
    let mut owners = Owners::new();
    let mut moves = 0;
    loop {
        tokio::select! {
            event = watch.next() => {
                let LockEvent::Moved(moved) = event.expect("all of it is remembered") else { continue };
                for one in moved.moves {
                    for part in one.parts {
                        let owner = owners.entry((one.lock.clone(), part)).or_insert(part);
                        assert_eq!(*owner, moved.dc, "part {part} of {} moves from where it is", one.lock);
                        *owner = one.to;
                        moves += 1;
                    }
                }
            }
            seen = end.changed() => seen.expect("the test lasts longer"),
        }
        if *end.borrow() == owners {
            return moves;
        }
    }
}

async fn owners(reader: &ReadClient) -> Owners {
    let mut owners = Owners::new();
    let dc = |id: u32| DcId::new(u8::try_from(id).expect("small")).expect("few datacenters");
    for name in LOCKS {
        let described = reader.describe_lock(&lock(name)).await.expect("it answers");
        owners.extend(described.owners.into_iter().map(|part| ((lock(name), dc(part.part)), dc(part.owner))));
    }
    owners
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_told_twice_or_left_out_while_the_server_is_killed() {
    // With an early checkpoint, so that it restarts from one.
    let mut cluster = servers(3).with("[journal]\ncheckpoint_bytes = \"1 MiB\"\n").listening();
    let watcher = reader(&cluster, 0).await;
    let counts = watcher.watch(WatchRequest::of(&key("n"))).await.expect("it begins");
    let moves = watcher.watch_locks(LockWatchRequest::prefix("l/")).await.expect("it begins");
    let (heard, mut hearing) = watch::channel(0);
    let (last, end) = watch::channel(Owners::new());
    let counts = tokio::spawn(hear_counts(counts, heard));
    let moves = tokio::spawn(hear_moves(moves, end));
    let writers =
        [cluster.client(1).await, cluster.client(2).await].map(|client| tokio::spawn(count(client)));
    for heard in [30, 120, 200] {
        within(hearing.wait_for(|so_far| *so_far >= heard)).await.expect("it lives");
        if heard == 200 {
            let until_it_is_there = async {
                while !cluster.has_checkpoint(0) {
                    tokio::task::yield_now().await;
                }
            };
            within(until_it_is_there).await;
        }
        cluster.kill(0);
        cluster.restart(0);
    }
    for writer in writers {
        within(writer).await.expect("it does not fail");
    }
    within(counts).await.expect("it hears all");
    last.send_replace(owners(&reader(&cluster, 1).await).await);
    let moves = within(moves).await.expect("it hears all");
    assert!(moves > 9, "parts moved to and fro, {moves} times in all");
}

#[test]
fn a_watch_shows_who_has_locks_and_where_they_go() {
    let cluster = servers(2).listening();
    let succeeds = |dc, args: &[&str]| {
        let said = run(&mut cluster.command(dc, args));
        assert_eq!(said.code, 0, "{args:?}: {}", said.stderr);
    };
    succeeds(1, &["lock", "orders", "--", "true"]);
    let mut holder = cluster
        .command(0, ["lock", "--shared", "--label", "me", "jobs/1", "--", "sh", "-c", "echo has it; cat"]);
    holder.stdin(std::process::Stdio::piped());
    let mut holder = Running::start(&mut holder, Output::Stdout);
    holder.line("has it");
    let mut watch = cluster.command(0, ["watch", "orders", "--prefix", "jobs/", "--snapshot"]);
    let mut watch = Running::start(&mut watch, Output::Stdout);
    assert!(watch.line("held").starts_with("held jobs/1 shared by me token "));
    drop(holder.stdin());
    assert!(watch.line("released").starts_with("released jobs/1 shared by me token "));
    assert_eq!(holder.wait(), 0);
    succeeds(0, &["lock", "--label", "you", "orders", "--", "true"]);
    assert_eq!(watch.line("moved"), "moved orders to dc0 (city0): 2 parts from dc1 (city1)");
    assert!(watch.line("granted").starts_with("granted orders exclusive by you token "));
    assert!(watch.line("released").starts_with("released orders exclusive by you token "));
    watch.signal(Signal::INT);
    let rest = watch.rest();
    assert_eq!((rest.len(), watch.wait()), (1, 0), "{rest:?}");
    assert!(watch.seen.is_empty(), "nothing else was shown: {:?}", watch.seen);

    succeeds(1, &["lock", "orders", "--", "true"]);
    let after = ["watch", "--json", "--from", &rest[0]];
    let mut watch = Running::start(&mut cluster.command(1, after), Output::Stdout);
    let moved: serde_json::Value = serde_json::from_str(&watch.line("moved")).expect("it is JSON");
    assert_eq!((&moved["name"], &moved["from"], &moved["to"]), (&"orders".into(), &0.into(), &1.into()));
    watch.line("holders_synced");
    watch.signal(Signal::TERM);
    assert_eq!(watch.wait(), 0);
    assert_eq!(run(&mut cluster.command(0, ["watch", "--from", "1000000"])).code, 64);
}
