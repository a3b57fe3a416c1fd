//! A majority of the datacenters is gone for good, and the others go on by force.
//!
//! Guarantees: docs/guarantees.md#order-and-availability.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::UNIX_EPOCH;

use rustix::process::Signal;
use serde_json::Value;

use crate::fixture::calls::{acquire, put, read};
use crate::fixture::history::serving_at;
use crate::fixture::said::{Said, run};
use crate::fixture::{Cluster, lock, until};
use crate::growth::{AUTO, all_settled, joined, listed};
use crate::leaving::{three, token};
use geolock::client::{AcquireRequest, Client};

const RECOVER: [&str; 4] = ["member", "recover", "--clients-are-dead", "--json"];

fn recover(cluster: &Cluster, at: u8, survivors: &str, lost: &str) -> Said {
    let named = ["--survivors", survivors, "--confirm-lost", lost];
    run(&mut cluster.command(at, RECOVER.iter().chain(&named)))
}

/// Of five members dc0 and dc1 are left, hear each other, and hear nobody else.
fn only_survivors_are_heard(cluster: &Cluster) {
    for dc in 0..2 {
        let is_heard = |list: &Value, dc: usize| list["members"][dc]["heard"] == true;
        let survivors_alone = |list: &Value| (0..5).all(|dc| is_heard(list, dc) == (dc < 2));
        listed(cluster, dc, "only the survivors are heard", survivors_alone);
    }
}

/// Recovers as soon as nobody hears the lost ones any more. Returns the report.
fn recovered(cluster: &Cluster, at: u8, survivors: &str, lost: &str) -> Value {
    let said = until("no survivor hears a lost one any more", || {
        let said = recover(cluster, at, survivors, lost);
        let is_heard = said.stderr.contains("hears dc") || said.stderr.contains("heard dc");
        (!is_heard).then_some(said)
    });
    assert_eq!(said.code, 0, "{said:?}");
    serde_json::from_str(&said.stdout).expect("a report")
}

/// Returns true if so many members have entered the last epoch, and somebody leads.
fn goes_on(list: &Value, members: usize) -> bool {
    all_settled(list, members) && list["leader"].is_u64()
}

/// The present time, in milliseconds since the Unix epoch.
fn millis() -> u64 {
    UNIX_EPOCH.elapsed().expect("it is later").as_millis() as u64
}

/// Starts a cluster of founders. Returns it with a client of each.
pub async fn founded(dcs: u8) -> (Cluster, Vec<Client>) {
    let mut cluster = Cluster::prepare(dcs);
    for dc in 0..dcs {
        cluster.write_founders(dc, dcs, AUTO);
    }
    (0..dcs).for_each(|dc| cluster.launch(dc));
    let mut clients = Vec::new();
    for dc in 0..dcs {
        cluster.server(dc).line("listening");
        clients.push(serving_at(&cluster, dc).await);
        listed(&cluster, dc, "all are settled", |list| all_settled(list, usize::from(dcs)));
    }
    (cluster, clients)
}

/// With `--list` a command names the only lock that was used last at a lost datacenter.
fn names_the_lock(cluster: &Cluster, command: &str) {
    let command: Vec<&str> = command.split(' ').collect();
    let names = "returned to their homes:\n  used there\nLocks that were never used there have no row";
    let said = run(&mut cluster.command(0, [&command[..], &["--list"]].concat()));
    assert!(said.code == 0 && said.stdout.contains(names), "{said:?}");
    let said = run(&mut cluster.command(0, &command));
    assert!(said.code == 0 && !said.stdout.contains("  used there\n"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_three_goes_on_and_grows_again() {
    let (mut cluster, mut clients) = three(AUTO).await;
    let held = acquire(&clients[0], AcquireRequest::exclusive(lock("held"))).await;
    let written = put(&clients[2], "city", "Oslo").await;
    assert_eq!(read(&clients[0], "city", &written).await.as_deref(), Some(&b"Oslo"[..]));
    let mut before = token(&clients[2], "used there").await;
    let said = recover(&cluster, 0, "0", "1,2");
    assert!(said.code != 0 && said.stderr.contains("hears dc"), "{said:?}");

    cluster.kill(1);
    cluster.kill(2);
    clients.truncate(1);
    let report = recovered(&cluster, 0, "0", "1,2");
    assert_eq!(report["lineage"], 1);
    assert_eq!(report["survivors"], serde_json::json!([0]));
    assert_eq!(report["lost"].as_array().map(Vec::len), Some(2));
    assert_eq!(report["locks"], 1, "one lock was used last at a lost one: {report}");
    listed(&cluster, 0, "one settled member", |list| goes_on(list, 1));
    assert_eq!(held.is_lost(), None, "no survivor lost a lock");
    for name in ["used there", "never used"] {
        let after = token(&clients[0], name).await;
        assert!(after > before && after >> 54 == 32, "{name}: {after} is above all tokens of before");
        before = after;
    }
    assert_eq!(read(&clients[0], "city", &written).await.as_deref(), Some(&b"Oslo"[..]));
    let again = recover(&cluster, 0, "0", "1,2");
    assert_eq!(serde_json::from_str::<Value>(&again.stdout).ok(), Some(report.clone()), "{again:?}");
    names_the_lock(&cluster, "member recover --clients-are-dead --survivors 0 --confirm-lost 1,2");

    // It is remembered over a restart.
    held.release().await.expect("it was held");
    cluster.kill(0);
    cluster.launch(0);
    cluster.server(0).line("listening");
    let survivor = serving_at(&cluster, 0).await;
    token(&survivor, "used there").await;
    let again = recover(&cluster, 0, "0", "1,2");
    assert_eq!(serde_json::from_str::<Value>(&again.stdout).ok(), Some(report), "{again:?}");
    let audit = run(&mut cluster.command(0, ["audit"]));
    names_the_lock(&cluster, "audit");
    // Shown if the test fails.
    eprintln!("{}", audit.stdout);
    assert!(audit.stdout.contains("dc0 without dc1, dc2"), "{audit:?}");

    // A majority of the old cluster is started again: it learns that it was lost, and does not serve.
    for dc in 1..3 {
        cluster.launch(dc);
    }
    for dc in 1..3 {
        cluster.server(dc).line("the cluster was recovered by force without this datacenter: stopping");
        assert_eq!(cluster.server(dc).wait(), 0);
    }
    token(&survivor, "used there").await;

    // New servers join in the places of the lost ones.
    for dc in 1..3 {
        std::fs::remove_dir_all(cluster.data_dir(dc)).expect("nobody uses it");
        if dc == 2 {
            cluster.write_joiner(2, cluster.quic_address(0), "city2", "");
        }
        let said = run(&mut cluster.command(0, ["member", "add", &format!("city{dc}")]));
        assert_eq!(said.code, 0, "{said:?}");
        let client = joined(&mut cluster, dc).await;
        assert!(token(&client, "used there").await > before);
        assert_eq!(read(&client, "city", &written).await.as_deref(), Some(&b"Oslo"[..]));
    }
    for dc in 0..3 {
        listed(&cluster, dc, "three settled members", |list| goes_on(list, 3));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recovery_that_is_killed_is_repeated_at_another_survivor() {
    let (mut cluster, mut clients) = founded(5).await;
    let mut before = token(&clients[3], "used there").await;
    clients.truncate(2);
    (2..5).for_each(|dc| cluster.kill(dc));
    only_survivors_are_heard(&cluster);
    // One that answers no more has not promised: the other waits for it, and is killed.
    cluster.server(1).stop();
    let mut command =
        cluster.command(0, RECOVER.iter().chain(&["--survivors", "0,1", "--confirm-lost", "2,3,4"]));
    let mut asked = command.stderr(Stdio::piped()).spawn().expect("it starts");
    let mut said = String::new();
    let stderr = asked.stderr.as_mut().expect("it is piped");
    BufReader::new(stderr).read_line(&mut said).expect("it says what it waits for");
    eprintln!("{said}");
    cluster.kill(0);
    asked.kill().expect("it is our child");
    asked.wait().expect("it has ended");
    cluster.server(1).signal(Signal::CONT);
    cluster.launch(0);
    cluster.server(0).line("listening");

    let report = until("both survivors hear each other", || {
        let said = recover(&cluster, 1, "0,1", "2,3,4");
        (said.code == 0).then(|| serde_json::from_str::<Value>(&said.stdout).expect("a report"))
    });
    assert_eq!((report["lineage"].as_u64(), report["locks"].as_u64()), (Some(1), Some(1)), "{report}");
    // Both are killed, and it is still so.
    drop(clients);
    (0..2).for_each(|dc| cluster.kill(dc));
    (0..2).for_each(|dc| cluster.launch(dc));
    for dc in 0..2 {
        cluster.server(dc).line("listening");
    }
    for dc in [0, 1, 0] {
        let client = serving_at(&cluster, dc).await;
        listed(&cluster, dc, "two settled members", |list| goes_on(list, 2));
        let again = recover(&cluster, dc, "0,1", "2,3,4");
        assert_eq!(serde_json::from_str::<Value>(&again.stdout).ok(), Some(report.clone()), "{again:?}");
        let after = token(&client, "used there").await;
        assert!(after > before, "{after} is above all tokens of before");
        before = after;
    }
}

/// Plans that are refused where dc0 and dc1 of five are left.
fn refusals(cluster: &Cluster) {
    for (survivors, lost, why) in [
        ("0", "1,2,3,4", "it runs, or was stopped a moment ago"),
        ("0,1", "2,3", "not named: dc4"),
        ("0,1,2", "2,3,4", "named twice: dc2"),
        ("1", "0,2,3,4", "is not among the survivors"),
        ("0,1,2", "3,4", "3 are a majority: evict the others instead"),
        ("0,1", "2,3,4,7", "dc7 is no member"),
    ] {
        let said = recover(cluster, 0, survivors, lost);
        assert!(said.code != 0 && said.stderr.contains(why), "{survivors} {lost}: {said:?}");
    }
    let said = run(&mut cluster.command(0, ["member", "recover", "--survivors", "0,1"]));
    assert!(said.code != 0 && said.stderr.contains("--confirm-lost"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_of_five_go_on_and_name_what_was_lost() {
    let (mut cluster, mut clients) = founded(5).await;
    let held = acquire(&clients[1], AcquireRequest::exclusive(lock("held"))).await;
    let shown = put(&clients[4], "shown", "yes").await;
    for client in &clients {
        assert_eq!(read(client, "shown", &shown).await.as_deref(), Some(&b"yes"[..]));
    }
    let mut before = 0;
    for dc in [2, 3] {
        before = before.max(token(&clients[dc], &format!("used at {dc}")).await);
    }
    // All of it is everywhere.
    let began = millis();
    let last = put(&clients[4], "last", "yes").await;
    assert_eq!(read(&clients[0], "last", &last).await.as_deref(), Some(&b"yes"[..]));
    assert_eq!(read(&clients[1], "last", &last).await.as_deref(), Some(&b"yes"[..]));

    // The survivors are away while one that will be lost acknowledges a commit.
    cluster.server(0).stop();
    cluster.server(1).stop();
    // While a link is up, what is sent waits in the buffers of the one that is stopped.
    until("it has no link to them", || {
        let status = run(&mut cluster.command(4, ["status", "--json"]));
        let status: Value = serde_json::from_str(&status.stdout).ok()?;
        (0..2).all(|peer| status["peers"][peer]["connected"] == false).then_some(())
    });
    let ended = millis();
    put(&clients[4], "alone", "lost").await;
    for dc in 2..5 {
        cluster.kill(dc);
    }
    clients.truncate(2);
    for dc in 0..2 {
        cluster.server(dc).signal(Signal::CONT);
    }
    only_survivors_are_heard(&cluster);

    refusals(&cluster);
    let before_it = listed(&cluster, 0, "the list", |_| true)["decision"].as_u64().expect("a number");

    let report = recovered(&cluster, 1, "0,1", "2,3,4");
    assert_eq!(report["decision"].as_u64(), Some(before_it + 1), "refusals decide nothing");
    assert_eq!(report["locks"], 2, "{report}");
    let lost = &report["lost"][2];
    let at = lost["last_entry_ms"].as_u64().expect("a time");
    assert_eq!((&lost["dc"], &lost["name"]), (&Value::from(4), &Value::from("city4")), "{report}");
    assert!(
        (began..=ended).contains(&at),
        "its last entry is of {began} to {ended}, before it was alone: {report}"
    );
    for dc in 0..2 {
        listed(&cluster, dc, "two settled members", |list| goes_on(list, 2));
    }
    assert_eq!(held.is_lost(), None, "no survivor lost a lock");
    for client in &clients {
        assert_eq!(read(client, "last", &last).await.as_deref(), Some(&b"yes"[..]));
        assert_eq!(read(client, "alone", &last).await, None, "it was acknowledged there, and nowhere else");
    }
    // The same at the other survivor, and exclusive between both.
    let again = recover(&cluster, 0, "0,1", "2,3,4");
    assert_eq!(serde_json::from_str::<Value>(&again.stdout).ok(), Some(report), "{again:?}");
    for client in [0, 1, 0, 1] {
        for name in ["used at 2", "used at 3", "never used"] {
            let after = token(&clients[client], name).await;
            assert!(after > before && after >> 54 == 32, "{name}: {after}");
            before = after;
        }
    }
    held.release().await.expect("it was held");
}
