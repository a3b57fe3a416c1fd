//! A datacenter with an old copy of its data directory gets back the entries it had made since, before it
//! does anything else.
//!
//! Guarantee: docs/guarantees.md#locks-after-a-restart.

use std::fs;

use crate::fixture::backup::{SHORT_LEASES, copy};
use crate::fixture::calls::{acquire, put, read};
use crate::fixture::history::serving;
use crate::fixture::said::run;
use crate::fixture::{lock, servers, until};
use geolock::client::AcquireRequest;

#[tokio::test(flavor = "multi_thread")]
async fn an_old_copy_catches_up_and_reuses_no_number() {
    let (mut cluster, clients) = servers(3).quick().with(SHORT_LEASES).serving().await;
    put(&clients[0], "before", "copied").await;
    drop(clients);
    cluster.kill(0);
    let backup = cluster.dir().join("backup");
    copy(&cluster.data_dir(0), &backup);
    fs::write(backup.join("restored"), b"").expect("the copy is marked");

    // All continue: entries that dc0 makes now are not in the copy.
    cluster.restart(0);
    let clients = serving(&cluster).await;
    let made = put(&clients[0], "since", "acknowledged").await;
    let guard = acquire(&clients[0], AcquireRequest::exclusive(lock("moved"))).await;
    let token = guard.token();
    guard.release().await.expect("it is up");
    let guard = acquire(&clients[1], AcquireRequest::exclusive(lock("moved"))).await;
    assert_eq!(read(&clients[1], "since", &made).await.as_deref(), Some(&b"acknowledged"[..]));
    drop(clients);

    cluster.kill(0);
    fs::remove_dir_all(cluster.data_dir(0)).expect("it is there");
    copy(&backup, &cluster.data_dir(0));
    cluster.restart(0);
    let reason = "it waits until the longest lease that it may not know has ended (limits.max_lease_ttl), ";
    until("it says for what it waits, and for how long", || {
        let said = run(&mut cluster.command(0, ["status"])).stdout;
        let rest = said.split_once(reason)?.1;
        rest.split_once(" s more").and_then(|(left, _)| left.parse::<f64>().ok()).filter(|left| *left > 0.0)
    });
    let clients = serving(&cluster).await;
    assert_eq!(read(&clients[0], "since", &made).await.as_deref(), Some(&b"acknowledged"[..]));
    assert!(!cluster.data_dir(0).join("restored").exists(), "it is known");
    let again = put(&clients[0], "again", "another number").await;
    assert_eq!(read(&clients[1], "again", &again).await.as_deref(), Some(&b"another number"[..]));
    assert_eq!(read(&clients[2], "since", &again).await.as_deref(), Some(&b"acknowledged"[..]));
    // It had transferred the lock after the copy was made.
    guard.release().await.expect("it is up");
    let back = acquire(&clients[0], AcquireRequest::exclusive(lock("moved"))).await;
    assert!(back.token() > token);
}
