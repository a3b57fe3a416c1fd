//! Two datacenters without a link to each other, and a third with links to both: every entry still arrives.
//!
//! Guarantees: docs/guarantees.md#tokens-and-snapshots-of-grants, docs/guarantees.md#isolation.

use std::sync::{Arc, Mutex};

use crate::fixture::history::{Commit, History, merged, patient, shown_by_all};
use crate::fixture::{HANGS, servers, within};
use geolock::client::{Client, Key, Snapshot, Transaction, TxnRequest, Update};
use geolock_api::names::LockName;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout};

fn key(n: usize) -> Key {
    Key::new(b"counters", format!("{n}").as_bytes()).expect("it is a key")
}

fn lock() -> LockName {
    LockName::try_from("lock").expect("it is a name")
}

/// Returns how many entries a datacenter has passed on for others.
async fn relayed(client: &Client) -> u64 {
    client.status().await.expect("it is up").counts["entries_relayed_total"]
}

/// Increments a number of keys in turn, without locks, and merges the vectors of all its commits.
async fn increment(client: Client, keys: impl Iterator<Item = usize>, committed: Arc<Mutex<Snapshot>>) {
    for n in keys {
        let commit = client.update(&key(n), Update::counter(1)).await.expect("it needs no lock");
        let mut committed = committed.lock().expect("nobody panics with it");
        *committed = merged([&*committed, &commit]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_increments_converge_along_a_chain() {
    const KEYS: usize = 500;
    const INCREMENTS: usize = 10_000;
    /// Concurrent tasks in each datacenter.
    const TASKS: usize = 16;
    let (mut wan, clients) = servers(3).quick().patient().relayed().cut(0, 2).serving().await;
    let committed = Arc::new(Mutex::new(Snapshot::default()));
    let mut tasks = JoinSet::new();
    for worker in 0..3 * TASKS {
        let keys = (worker..INCREMENTS).step_by(3 * TASKS).map(|n| n % KEYS);
        tasks.spawn(increment(clients[worker % 3].clone(), keys, Arc::clone(&committed)));
    }
    let began = Instant::now();
    while let Some(done) = timeout(5 * HANGS, tasks.join_next()).await.expect("nobody waits for others") {
        done.expect("every increment commits");
    }
    let last = Instant::now();
    let committed = committed.lock().expect("nobody panics with it").clone();
    let keys: Vec<Key> = (0..KEYS).map(key).collect();
    for client in &clients {
        let view = client.read_many(&keys, &patient(&committed)).await.expect("it comes");
        let counts = view.values.iter().map(|value| value.counter().expect("it is a counter"));
        assert!(counts.eq(std::iter::repeat_n((INCREMENTS / KEYS) as i64, KEYS)), "all of them are counted");
    }
    println!("{INCREMENTS} increments in {:?}, everywhere {:?} after the last", last - began, last.elapsed());
    shown_by_all(&clients, &keys, &committed).await;
    assert!(!wan.is_linked(0, 2) && !wan.is_linked(2, 0), "the ends of the chain never met");
    let relayed = relayed(&clients[1]).await;
    assert!(relayed >= 2 * INCREMENTS as u64 / 3, "the middle has passed on what the ends made: {relayed}");
}

/// Moves a lock back and forth between two datacenters. The holder counts under it, and releases it when the
/// other's request has arrived.
struct HandOver<'a> {
    clients: [&'a Client; 2],
    dcs: [u8; 2],
    /// The next holder, and the number of grants so far.
    turn: usize,
    history: History,
}

impl HandOver<'_> {
    async fn turns(&mut self, turns: usize) {
        let mut waiting = self.begin();
        for _ in 0..turns {
            let mut txn = within(waiting).await.expect("no panic");
            let [here, there] = [self.turn, self.turn + 1].map(|turn| self.clients[turn % 2]);
            let read = txn.read(&key(0)).await.expect("it is open").counter().expect("it is a counter");
            assert_eq!(read, self.turn as i64, "what was done under the lock is here");
            let dc = self.dcs[self.turn % 2];
            self.turn += 1;
            waiting = self.begin();
            within(arrived(here, there)).await;
            txn.update(&key(0), Update::counter(1)).await.expect("it is a counter");
            let (token, saw) = (txn.token().expect("it has a lock"), txn.snapshot().clone());
            let commit = txn.commit().await.expect("it has its lock");
            self.history.note([lock()], &Commit { dc, token, saw, commit });
        }
        let last = within(waiting).await.expect("no panic");
        last.abort().await.expect("it is open");
    }

    fn begin(&self) -> JoinHandle<Transaction> {
        let client = self.clients[self.turn % 2].clone();
        tokio::spawn(async move { client.begin(TxnRequest::exclusive(lock())).await.expect("it is granted") })
    }
}

/// Waits until a request for the lock waits `here`. The log delivers the request with any later commit
/// `there`.
async fn arrived(here: &Client, there: &Client) {
    while here.describe_lock(&lock()).await.expect("it is up").waiting == 0 {
        let commit = there.update(&key(1), Update::counter(1)).await.expect("it needs no lock");
        here.read_many(&[key(1)], &patient(&commit)).await.expect("it comes");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_third_datacenter_bridges_a_cut() {
    const TURNS: usize = 10;
    let (mut wan, clients) = servers(3).quick().relayed().serving().await;
    wan.break_link(0, 1);
    let mut hand_over =
        HandOver { clients: [&clients[0], &clients[1]], dcs: [0, 1], turn: 0, history: History::default() };
    hand_over.turns(TURNS).await;
    // Also for a server that starts when that path is the only one, and after the third server itself was
    // down.
    wan.kill(0);
    wan.restart(0);
    hand_over.turns(TURNS).await;
    wan.kill(2);
    wan.restart(2);
    hand_over.turns(TURNS).await;

    let committed = Arc::new(Mutex::new(hand_over.history.all()));
    let increments = [0, 1].map(|dc| {
        let keys = (0..300).map(|n| 2 + n % 10);
        tokio::spawn(increment(clients[dc].clone(), keys, Arc::clone(&committed)))
    });
    for done in increments {
        done.await.expect("every increment commits");
    }
    let committed = committed.lock().expect("nobody panics with it").clone();
    let keys: Vec<Key> = (2..12).map(key).collect();
    let shown = shown_by_all(&clients, &keys, &committed).await;
    assert!(shown.iter().all(|value| value.counter() == Ok(60)), "{shown:?}");
    assert_eq!(hand_over.history.check(), 3 * TURNS as u32 - 1, "it went to and fro");
    assert!(!wan.is_linked(0, 1) && !wan.is_linked(1, 0), "the two never met");
    assert!(relayed(&clients[2]).await > 600, "the third has passed everything on");

    wan.heal_all();
    wan.await_whole();
    let commit =
        clients[0].update(&key(0), Update::counter(-3 * TURNS as i64)).await.expect("it needs no lock");
    let view = clients[1].read_many(&[key(0)], &patient(&commit)).await.expect("it comes");
    assert_eq!(view.values[0].counter(), Ok(0));
}
