//! Datacenters leave while locks are held elsewhere, down to one.

use crate::fixture::calls::{acquire, put, read};
use crate::fixture::history::serving_at;
use crate::fixture::said::run;
use crate::fixture::{Cluster, Output, Running, lock, until};
use crate::growth::{AUTO, all_settled, joined, listed, prepared};
use geolock::client::{AcquireRequest, Client};
use rustix::process::Signal;
use serde_json::Value;

/// Three datacenters, grown from one, and a client of each.
pub async fn three(tables: &str) -> (Cluster, Vec<Client>) {
    grown(prepared(tables)).await
}

/// Starts three datacenters one after the other. Returns a client of each.
pub async fn grown(mut cluster: Cluster) -> (Cluster, Vec<Client>) {
    cluster.launch(0);
    cluster.server(0).line("listening");
    let mut clients = vec![serving_at(&cluster, 0).await];
    for dc in 1..3 {
        clients.push(joined(&mut cluster, dc).await);
    }
    for dc in 0..3 {
        listed(&cluster, dc, "three settled members", |list| all_settled(list, 3));
    }
    (cluster, clients)
}

pub async fn token(client: &Client, name: &str) -> u64 {
    let held = acquire(client, AcquireRequest::exclusive(lock(name))).await;
    let token = held.token();
    held.release().await.expect("it was held");
    token.0
}

/// Until another one is elected, nothing can be decided.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_leaves_hands_the_control_group_over() {
    let (mut cluster, clients) = three(AUTO).await;
    drop(clients);
    let said = run(&mut cluster.command(0, ["member", "list"]));
    let leader = (0..3).find(|dc| said.stdout.contains(&format!("led by dc{dc}."))).expect("it is named");
    let other = (leader + 1) % 3;
    let said = run(&mut cluster.command(other, ["member", "remove", &leader.to_string(), "--wait"]));
    assert_eq!(said.code, 0, "{said:?}");
    cluster.server(leader).line("this member leaves: it hands the control group over");
    cluster.server(leader).line("has left the cluster");
    assert_eq!(cluster.server(leader).wait(), 0);
    listed(&cluster, other, "two settled members", |list| all_settled(list, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_stops_hands_the_control_group_over() {
    let (mut cluster, clients) = three(AUTO).await;
    drop(clients);
    let leader = listed(&cluster, 0, "a leader", |list| list["leader"].is_u64())["leader"].as_u64();
    let leader = leader.and_then(|dc| u8::try_from(dc).ok()).expect("the id of a datacenter");
    cluster.server(leader).signal(Signal::TERM);
    cluster.server(leader).line("this server stops: it hands the control group over");
    assert_eq!(cluster.server(leader).wait(), 0);
    let other = (leader + 1) % 3;
    let is_led = |list: &Value| list["leader"].as_u64().is_some_and(|dc| dc != u64::from(leader));
    listed(&cluster, other, "another leader", is_led);
    let said = run(&mut cluster.command(other, ["member", "policy", "--evict", "wait"]));
    assert_eq!(said.code, 0, "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn three_shrink_to_one_while_locks_are_held() {
    let (mut cluster, mut clients) = three(AUTO).await;
    let held = acquire(&clients[0], AcquireRequest::exclusive(lock("held"))).await;
    let written = put(&clients[2], "city", "Oslo").await;
    let before = token(&clients[2], "used there").await;
    let last = clients.pop().expect("there are three");
    drop(last);

    let said = run(&mut cluster.command(0, ["member", "remove", "2", "--wait"]));
    assert_eq!(said.code, 0, "{said:?}");
    assert!(
        said.stdout.contains("dc2 leaves (decision ") && said.stdout.contains("dc2 has left"),
        "{said:?}"
    );
    cluster.server(2).line("has left the cluster");
    assert_eq!(cluster.server(2).wait(), 0);
    for dc in 0..2 {
        listed(&cluster, dc, "two settled members", |list| all_settled(list, 2));
    }
    assert_eq!(held.is_lost(), None, "nobody lost a lock");
    assert!(token(&clients[1], "used there").await > before);
    token(&clients[1], "never used").await;
    assert_eq!(read(&clients[1], "city", &written).await.as_deref(), Some(&b"Oslo"[..]));

    // The founder leaves, and one is left, which needs nobody.
    held.release().await.expect("it was held");
    drop(clients.remove(0));
    let said = run(&mut cluster.command(1, ["member", "remove", "0", "--wait"]));
    assert_eq!(said.code, 0, "{said:?}");
    cluster.server(0).line("has left the cluster");
    assert_eq!(cluster.server(0).wait(), 0);
    listed(&cluster, 1, "one settled member", |list| all_settled(list, 1));
    token(&clients[0], "held").await;
    drop(clients);

    // Neither comes back, and the last one does, alone.
    cluster.restart(1);
    let client = serving_at(&cluster, 1).await;
    token(&client, "after the restart").await;
    cluster.launch(2);
    cluster.server(2).line("has left the cluster");
    assert_eq!(cluster.server(2).wait(), 0);
    std::fs::remove_dir_all(cluster.data_dir(2)).expect("nobody uses it");
    // With an empty directory, it is a new member.
    let client = joined(&mut cluster, 2).await;
    token(&client, "after it has returned").await;
    let list = listed(&cluster, 1, "two settled members", |list| all_settled(list, 2));
    assert_eq!(list["members"][1]["generation"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_leaves_waits_for_its_holders_and_admits_no_others() {
    let (mut cluster, clients) = three(AUTO).await;
    let held = acquire(&clients[1], AcquireRequest::exclusive(lock("held"))).await;
    let said = run(&mut cluster.command(0, ["member", "remove", "1"]));
    assert_eq!(said.code, 0, "{said:?}");
    listed(&cluster, 0, "one that leaves", |list| {
        list["members"].as_array().is_some_and(|rows| rows.iter().any(|row| row["phase"] == "leaving"))
    });
    // Others use their locks meanwhile, also those that nobody used.
    token(&clients[0], "never used").await;
    token(&clients[2], "never used").await;
    until("new locks are refused there", || {
        let said = run(&mut cluster.command(1, ["lock", "other", "--wait", "0s", "--", "true"]));
        said.stderr.contains("shuts down").then_some(())
    });
    for (args, why) in [
        (["member", "remove", "1"].as_slice(), "dc1 leaves"),
        (&["member", "remove", "2"], "dc1 is leaving"),
        (&["member", "remove", "7"], "dc7 is no member"),
    ] {
        let said = run(&mut cluster.command(0, args));
        assert!(format!("{}{}", said.stdout, said.stderr).contains(why), "{args:?}: {said:?}");
    }
    let mut waits = cluster.command(0, ["member", "remove", "1", "--wait"]);
    let mut waits = Running::start(&mut waits, Output::Stderr);
    let told = waits.line("geolock: waits until no client of dc1 holds a lock");
    assert!(told.contains("`geolock member remove 1 --cancel` there"), "{told}");
    assert_eq!(held.is_lost(), None);
    held.release().await.expect("it was held");
    assert_eq!(waits.wait(), 0);
    cluster.server(1).line("has left the cluster");
    assert_eq!(cluster.server(1).wait(), 0);
    for dc in [0, 2] {
        listed(&cluster, dc, "two settled members", |list| all_settled(list, 2));
    }
    token(&clients[2], "held").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_killed_while_it_leaves_completes_it_later() {
    let (mut cluster, clients) = three(AUTO).await;
    let held = acquire(&clients[2], AcquireRequest::shared(lock("held"))).await;
    let said = run(&mut cluster.command(0, ["member", "remove", "2"]));
    assert_eq!(said.code, 0, "{said:?}");
    listed(&cluster, 2, "it leaves", |list| list["members"][2]["phase"] == "leaving");
    cluster.kill(2);
    let elsewhere = acquire(&clients[0], AcquireRequest::shared(lock("elsewhere"))).await;
    elsewhere.release().await.expect("it was held");
    cluster.launch(2);
    cluster.server(2).line("listening");
    held.release().await.expect("it is reclaimed, and released");
    cluster.server(2).line("has left the cluster");
    assert_eq!(cluster.server(2).wait(), 0);
    listed(&cluster, 0, "two settled members", |list| all_settled(list, 2));
}
