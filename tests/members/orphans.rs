//! Commits that only an evicted datacenter had: listed from its data directory, and made again.
//!
//! Operation: docs/membership.md#commits-that-only-a-lost-datacenter-had.

use std::path::Path;

use serde_json::Value;

use crate::fixture::calls::{put, read};
use crate::fixture::history::{patient, serving_at};
use crate::fixture::said::{Said, run};
use crate::fixture::{Cluster, key, lock, until, within};
use crate::growth::{AUTO, all_settled, listed};
use crate::leaving::{three, token};
use geolock::client::{AcquireRequest, Batch, Client, DcId, LockName, Reading, TxnRequest, Update, Wait};

fn orphans(cluster: &Cluster, at: u8, dir: &Path, more: &[&str]) -> Said {
    let dir = dir.to_str().expect("a path of the test is text");
    let args = ["journal", "orphans", "--json", "--data-dir", dir];
    run(&mut cluster.command(at, args.iter().chain(more)))
}

fn listing(said: &Said) -> Value {
    assert_eq!(said.code, 0, "{said:?}");
    serde_json::from_str(&said.stdout).expect("one object")
}

/// The field of each orphan, in their order.
fn all<'a>(listing: &'a Value, field: &str) -> Vec<&'a Value> {
    listing["orphans"].as_array().expect("a list").iter().map(|orphan| &orphan[field]).collect()
}

async fn count(client: &Client) -> i64 {
    match within(client.read(&key("count"))).await.expect("it is up").reading() {
        Some(Reading::Counter(count)) => *count,
        None => 0,
        other => panic!("{other:?}"),
    }
}

/// Commits five times in a datacenter whose commits nobody gets.
async fn commit_alone(client: &Client) {
    put(client, "city", "Bergen").await;
    within(client.update(&key("count"), Update::counter(1))).await.expect("it is up");
    let locked = TxnRequest::exclusive(lock("used there"));
    let change = Batch::new().update(&key("guarded"), Update::register("by dc2"));
    within(client.transact(locked, change)).await.expect("all parts are there");
    within(client.transact(TxnRequest::new(), Batch::new().remove(&key("old")))).await.expect("it is up");
    // The same key as before: refused when it is made again, because it is a register today.
    within(client.update(&key("changed"), Update::counter(1))).await.expect("it is up");
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_of_an_evicted_datacenter_are_made_again_once() {
    let (mut cluster, mut clients) = three(AUTO).await;
    let old = put(&clients[0], "old", "stays").await;
    read(&clients[2], "old", &old).await.expect("it was written");
    // From now on commits can say under which token they were made.
    let homed = LockName::homed(DcId::new(2).expect("a small id"), b"x").expect("a short name");
    let speaks = async || {
        let request = AcquireRequest::exclusive(homed.clone()).wait(Wait::Forever);
        clients[2].acquire(request).await.is_ok()
    };
    while !within(speaks()).await {}
    token(&clients[2], "used there").await;
    let said = run(&mut cluster.command(0, ["member", "policy", "--rejoin", "auto"]));
    assert_eq!(said.code, 0, "{said:?}");

    let alone = clients.pop().expect("there are three");
    drop(clients);
    cluster.kill(0);
    cluster.kill(1);
    commit_alone(&alone).await;
    drop(alone);
    cluster.kill(2);
    for dc in 0..2 {
        cluster.restart(dc);
    }
    let client = serving_at(&cluster, 0).await;
    until("dc2 is not heard, and evicted", || {
        let args = ["member", "evict", "dc2", "--confirm-dead", "--clients-are-dead"];
        (run(&mut cluster.command(0, args)).code == 0).then_some(())
    });
    assert_eq!(orphans(&cluster, 0, &cluster.data_dir(0), &[]).code, 64, "a server uses it");
    // It returns by itself; its old data is kept.
    cluster.launch(2);
    cluster.server(2).line("admitted: this server is a member");
    listed(&cluster, 0, "three settled members", |list| all_settled(list, 3));
    let aside = cluster.data_dir(2).join("evicted-0");

    let list = listing(&orphans(&cluster, 0, &aside, &[]));
    assert_eq!((&list["dc"], &list["end"]), (&2.into(), &"evicted".into()));
    assert_eq!(all(&list, "entry").len(), 5, "{list}");
    let is_locked: Vec<bool> = all(&list, "token").into_iter().map(Value::is_string).collect();
    assert_eq!(is_locked, [false, false, true, false, false], "{list}");
    let locked = all(&list, "entry")[2].to_string();
    assert_eq!(count(&client).await, 0, "listing changes nothing");
    put(&client, "changed", "a register").await;

    let done = orphans(&cluster, 0, &aside, &["--apply"]);
    assert_eq!(done.code, 1, "one is refused: {done:?}");
    let done: Value = serde_json::from_str(&done.stdout).expect("one object");
    assert_eq!(all(&done, "outcome"), ["made", "made", "left_out", "nothing_left", "refused"], "{done}");
    assert_eq!(read(&client, "city", &old).await.as_deref(), Some(&b"Bergen"[..]));
    assert_eq!((count(&client).await, read(&client, "guarded", &old).await), (1, None));
    assert_eq!(read(&client, "old", &old).await.as_deref(), Some(&b"stays"[..]));

    // In another datacenter, with the rest.
    let done = orphans(&cluster, 1, &aside, &["--apply", "--with-removals", "--apply-locked", &locked]);
    let done: Value = serde_json::from_str(&done.stdout).expect("one object");
    let outcomes = ["made_earlier", "made_earlier", "made", "made", "refused"];
    assert_eq!(all(&done, "outcome"), outcomes, "{done}");
    let other = serving_at(&cluster, 1).await;
    let seen = within(other.read_many(&[key("guarded")], &Default::default())).await.expect("it is up");
    let seen = within(client.read_many(&[key("old"), key("guarded")], &patient(&seen.snapshot))).await;
    let seen = seen.expect("it is up");
    assert!(!seen.values[0].is_some() && seen.values[1].is_some(), "{seen:?}");
    assert_eq!((count(&client).await, count(&other).await), (1, 1), "once");

    drop((client, other));
    cluster.kill(1);
    refusals(&cluster, &aside);
}

fn refusals(cluster: &Cluster, aside: &Path) {
    let refused = |dir: &Path, more: &[&str], reason: &str| {
        let said = orphans(cluster, 0, dir, more);
        assert!(said.code == 64 && said.stderr.contains(reason), "{said:?}");
    };
    refused(aside, &["--apply-locked", "999"], "entry 999 is none of the orphans");
    refused(aside, &["--with-removals"], "--with-removals needs --apply");
    refused(cluster.dir(), &[], "is not the data directory of a geolock server");
    refused(&cluster.data_dir(1), &[], "dc1 (generation 0) is a member");
}
