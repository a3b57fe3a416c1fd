//! The bank: money moves between accounts under their locks, in three datacenters at once, while servers are killed. Nobody
//! ever sees a snapshot in which the total is another.

mod common;

use std::time::Duration;

use common::Cluster;
use geolock::client::{AtLeast, Batch, Client, Key, Mode, Snapshot, TxnRequest, Update, Wait};
use geolock::names::LockName;
use geolock::proto::Phase;
use tokio::sync::watch;

const ACCOUNTS: usize = 1_000;
const OPENING: i64 = 100;
const TOTAL: i64 = ACCOUNTS as i64 * OPENING;
/// Of all datacenters together.
const TRANSFERS: u64 = 200;
const TELLERS: u64 = 2;

fn account(n: usize) -> Key {
    Key::new(b"accounts", format!("{n:04}").as_bytes()).expect("it is a key")
}

fn lock(n: usize) -> LockName {
    LockName::try_from(&*format!("account/{n:04}")).expect("it is a name")
}

fn patient(snapshot: &Snapshot) -> AtLeast {
    AtLeast { snapshot: snapshot.clone(), patience: Duration::from_secs(60) }
}

/// Numbers that differ from teller to teller: no test of this is about chance.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }
}

async fn serving(cluster: &Cluster, dc: u8) -> Client {
    let client = cluster.client(dc).await;
    while client.status().await.is_ok_and(|status| status.phase() != Phase::Serving) {}
    client
}

/// Moves money between accounts that are often the same ones, until enough has moved anywhere.
async fn teller(client: Client, number: u64, done: watch::Sender<u64>) {
    let mut dice = Dice(number);
    while *done.borrow() < TRANSFERS {
        let (from, to) = (dice.roll(100), dice.roll(ACCOUNTS));
        if from == to {
            continue;
        }
        // In any order: one request for several locks cannot deadlock.
        let request = TxnRequest::exclusive(lock(from)).lock(lock(to), Mode::Exclusive);
        let Ok(mut txn) = client.begin(request.wait(Wait::AtMost(Duration::from_secs(5)))).await else {
            continue;
        };
        let Ok(values) = txn.read_many(&[account(from), account(to)]).await else { continue };
        let balance = values[0].counter().expect("it is a counter");
        let amount = 1 + dice.roll(10) as i64;
        assert!(balance >= 0, "account {from} never goes below 0: it is read and written under its lock");
        if balance < amount {
            continue;
        }
        let batch = Batch::new()
            .update(&account(from), Update::counter(-amount))
            .update(&account(to), Update::counter(amount));
        if txn.commit_with(batch).await.is_ok() {
            done.send_modify(|done| *done += 1);
        }
    }
}

/// Reads all accounts at one snapshot, again and again.
async fn auditor(client: Client, mut done: watch::Receiver<u64>) -> u64 {
    let keys: Vec<Key> = (0..ACCOUNTS).map(account).collect();
    let mut audits = 0;
    while *done.borrow_and_update() < TRANSFERS {
        // While its server is down it cannot look.
        if let Ok(view) = client.read_many(&keys, &AtLeast::default()).await {
            let balances = view.values.iter().map(|value| value.counter().expect("it is a counter"));
            assert_eq!(balances.sum::<i64>(), TOTAL, "audit {audits} at {:?}", view.snapshot);
            audits += 1;
        }
        // Looks again when something has happened.
        if done.changed().await.is_err() {
            break;
        }
    }
    audits
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_total_is_the_same_in_every_snapshot_while_servers_are_killed() {
    let mut cluster = Cluster::start(3);
    let clients = [serving(&cluster, 0).await, serving(&cluster, 1).await, serving(&cluster, 2).await];
    let opening = (0..ACCOUNTS)
        .map(account)
        .fold(Batch::new(), |batch, key| batch.update(&key, Update::counter(OPENING)));
    let opened = clients[0].transact(TxnRequest::new(), opening).await.expect("it needs no lock").commit;
    for client in &clients {
        client.read_many(&[account(0)], &patient(&opened)).await.expect("it comes");
    }

    let (done, progress) = watch::channel(0);
    let mut tellers = tokio::task::JoinSet::new();
    let mut auditors = tokio::task::JoinSet::new();
    for (dc, client) in clients.iter().enumerate() {
        for n in 0..TELLERS {
            tellers.spawn(teller(client.clone(), 1 + n + TELLERS * dc as u64, done.clone()));
        }
        auditors.spawn(auditor(client.clone(), progress.clone()));
    }
    // Every server is killed once, each when enough has happened since the one before.
    let mut kills = progress.clone();
    for (dc, after) in [(1, TRANSFERS / 4), (2, TRANSFERS / 2), (0, 3 * TRANSFERS / 4)] {
        kills.wait_for(|done| *done >= after).await.expect("tellers run");
        cluster.kill(dc);
        cluster.restart(dc);
    }
    while let Some(ended) = tellers.join_next().await {
        ended.expect("no teller saw anything wrong");
    }
    drop(done);
    while let Some(audits) = auditors.join_next().await {
        assert!(audits.expect("no auditor saw another total") > 0, "every auditor has looked");
    }
    // What everybody has in the end is the same.
    let mut shown = Vec::new();
    let keys: Vec<Key> = (0..ACCOUNTS).map(account).collect();
    for client in &clients {
        let last = client.update(&account(ACCOUNTS), Update::counter(1)).await.expect("it serves");
        shown.push(last);
    }
    let mut balances = Vec::new();
    for client in &clients {
        for commit in &shown {
            client.read_many(&[account(0)], &patient(commit)).await.expect("it comes");
        }
        let view = client.read_many(&keys, &AtLeast::default()).await.expect("it is there");
        balances
            .push(view.values.iter().map(|value| value.counter().expect("a counter")).collect::<Vec<_>>());
    }
    assert_eq!(balances[0].iter().sum::<i64>(), TOTAL);
    assert!(balances.iter().all(|shown| *shown == balances[0]), "all datacenters show the same");
    assert!(balances[0].iter().any(|balance| *balance != OPENING), "money has moved");
}
