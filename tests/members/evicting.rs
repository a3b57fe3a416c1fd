//! Datacenters are lost for good, and evicted.
//!
//! Guarantees: docs/guarantees.md#order-and-availability.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::fixture::calls::{acquire, put, read};
use crate::fixture::said::{Said, run, said};
use crate::fixture::{Cluster, lock, until};
use crate::growth::{AUTO, all_settled, listed, prepared_with};
use crate::leaving::{grown, three, token};
use crate::timed::SHORT;
use geolock::client::AcquireRequest;

pub fn evict(cluster: &Cluster, at: u8, lost: &str) -> Said {
    run(&mut cluster.command(at, ["member", "evict", lost, "--confirm-dead", "--clients-are-dead"]))
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_lost_is_evicted_and_its_locks_are_granted_elsewhere() {
    let (mut cluster, mut clients) = three(AUTO).await;
    let held = acquire(&clients[0], AcquireRequest::exclusive(lock("held"))).await;
    let written = put(&clients[2], "city", "Oslo").await;
    assert_eq!(read(&clients[1], "city", &written).await.as_deref(), Some(&b"Oslo"[..]));
    let before = token(&clients[2], "used there").await;
    let lost = acquire(&clients[2], AcquireRequest::exclusive(lock("held there"))).await;

    let said = evict(&cluster, 0, "2");
    assert_ne!(said.code, 0, "{said:?}");
    assert!(said.stderr.contains("hears dc2: it runs, or was stopped a moment ago"), "{said:?}");
    let said = evict(&cluster, 2, "2");
    assert!(said.stderr.contains("dc2 is the member that is asked, and it runs"), "{said:?}");
    assert_eq!(lost.is_lost(), None, "a refused eviction changes nothing");

    cluster.kill(2);
    drop((lost, clients.pop()));
    let said = evict(&cluster, 0, "dc2");
    assert_eq!(said.code, 0, "it waits until no member hears it any more: {said:?}");
    for dc in 0..2 {
        listed(&cluster, dc, "two settled members", |list| all_settled(list, 2));
    }
    assert_eq!(held.is_lost(), None, "nobody else lost a lock");
    for name in ["used there", "held there", "never used"] {
        let after = token(&clients[1], name).await;
        assert!(after > before && after >> 54 == 17, "{name}: {after} is above all tokens of before");
    }
    assert_eq!(read(&clients[1], "city", &written).await.as_deref(), Some(&b"Oslo"[..]));
    let again = evict(&cluster, 1, "2");
    assert_eq!(again.code, 0, "it may be repeated: {again:?}");

    // Its server is started again: it hears that before it serves, and stops.
    cluster.launch(2);
    cluster.server(2).line("this datacenter was evicted: stopping");
    assert_eq!(cluster.server(2).wait(), 0);
    token(&clients[0], "used there").await;
}

/// The command waits for the leases of its clients; meanwhile its server is started, serves, and dies again.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_started_after_the_operators_word_is_not_evicted() {
    let (mut cluster, mut clients) = grown(prepared_with(&[AUTO, SHORT].concat(), SHORT)).await;
    cluster.kill(2);
    drop(clients.pop());
    let is_heard = |list: &Value| list["members"][2]["heard"] == true;
    let unheard = |cluster: &Cluster, dc| listed(cluster, dc, "dc2 is not heard", |list| !is_heard(list));
    for dc in 0..2 {
        unheard(&cluster, dc);
    }
    let mut command = cluster.command(0, ["member", "evict", "2", "--confirm-dead"]);
    let mut evicting =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary is there");
    let mut lines = BufReader::new(evicting.stdout.take().expect("it is piped")).lines();
    let waits = |line: &String| line.contains("Clients of dc2 may rely on their locks");
    assert!(lines.by_ref().map(|line| line.expect("it prints text")).any(|line| waits(&line)), "it waits");
    cluster.restart(2);
    listed(&cluster, 1, "dc2 is heard", is_heard);
    cluster.kill(2);
    let said = said(evicting);
    let is_seen = ["dc2 was heard after the command was given", "hears dc2: it runs", "heard dc2"];
    assert!(said.code != 0 && is_seen.iter().any(|text| said.stderr.contains(text)), "{said:?}");
    cluster.restart(2);
    for dc in 0..3 {
        listed(&cluster, dc, "three settled members", |list| all_settled(list, 3));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_evicted_is_refused() {
    let (mut cluster, clients) = three(AUTO).await;
    for (args, why) in [
        (["member", "evict", "2"].as_slice(), "--confirm-dead"),
        (&["member", "evict", "7", "--confirm-dead"], "dc7 is no member"),
        (&["member", "evict", "--confirm-dead"], "required"),
        (&["member", "evict", "0", "1", "2", "--confirm-dead"], "dc0"),
    ] {
        let said = run(&mut cluster.command(0, args));
        assert!(said.code != 0 && said.stderr.contains(why), "{args:?}: {said:?}");
    }
    // Without a majority of the voters nobody is evicted.
    cluster.kill(1);
    cluster.kill(2);
    let said = until("no member hears them any more", || {
        let said = evict(&cluster, 0, "1");
        (!said.stderr.contains("hears dc1")).then_some(said)
    });
    assert_ne!(said.code, 0, "{said:?}");
    cluster.restart(1);
    cluster.restart(2);
    for dc in 0..3 {
        listed(&cluster, dc, "three settled members", |list| all_settled(list, 3));
    }
    token(&clients[0], "still works").await;
}
