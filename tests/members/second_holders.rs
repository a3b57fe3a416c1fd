//! A datacenter that was evicted, and does not know it or learns it: none of its clients relies on a lock
//! that others are granted.
//!
//! Guarantees: docs/guarantees.md#mutual-exclusion.

use std::time::Duration;

use rustix::process::Signal;

use crate::evicting::evict;
use crate::fixture::backup::copy;
use crate::fixture::calls::acquire;
use crate::fixture::growth::prepared_with;
use crate::fixture::history::serving_at;
use crate::fixture::said::run;
use crate::fixture::{Cluster, Output, Running, geolock, lock, servers, until, within};
use crate::growth::{AUTO, all_settled, listed};
use crate::leaving::{grown, three, token};
use geolock::client::{AcquireRequest, Client, ClientConfig, LostReason};

fn set_policy(cluster: &Cluster, at: u8, evict: &str) {
    until("it is decided", || {
        let said = run(&mut cluster.command(at, ["member", "policy", "--evict", evict]));
        (said.code == 0).then_some(())
    });
}

fn evicted(cluster: &Cluster, at: u8, lost: &str) {
    until("no member hears it any more, and it is evicted", || {
        (evict(cluster, at, lost).code == 0).then_some(())
    });
}

/// dc2 knows the policy `wait`. While it is down the others choose another one, and evict it.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_was_evicted_under_a_policy_that_it_does_not_know_serves_nothing() {
    let (mut cluster, clients) = three(AUTO).await;
    set_policy(&cluster, 0, "wait");
    for dc in 0..3 {
        until("it knows the policy", || {
            let said = run(&mut cluster.command(dc, ["member", "policy", "--json"]));
            said.stdout.contains("\"wait\"").then_some(())
        });
    }
    token(&clients[2], "used there").await;
    cluster.kill(2);
    set_policy(&cluster, 0, "operator");
    evicted(&cluster, 1, "2");
    drop(clients);
    cluster.kill(0);
    cluster.kill(1);
    cluster.launch(2);
    // Its links to both are down, and it does not give out what it owned.
    let held = cluster.command(2, ["lock", "used there", "--wait", "1s", "--", "true"]).output();
    let held = held.expect("the binary is there");
    assert!(!held.status.success(), "{held:?}");
    cluster.restart(0);
    cluster.restart(1);
    cluster.server(2).line("this datacenter was evicted: stopping");
    assert_eq!(cluster.server(2).wait(), 0);
    for dc in 0..2 {
        listed(&cluster, dc, "two settled members", |list| all_settled(list, 2));
    }
}

/// dc2 is stopped while a client of it holds a lock, and evicted; then it runs on.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_learns_of_its_eviction_ends_the_locks_of_its_clients_before_it_stops() {
    let (mut cluster, clients) = three(AUTO).await;
    let config = ClientConfig { ttl: Some(Duration::from_secs(60)), ..cluster.client_config(2) };
    let client = within(Client::connect(config)).await.expect("it serves");
    let held = acquire(&client, AcquireRequest::exclusive(lock("held there"))).await;
    cluster.server(2).signal(Signal::STOP);
    evicted(&cluster, 0, "2");
    token(&clients[0], "held there").await;
    cluster.server(2).signal(Signal::CONT);
    assert_eq!(within(held.lost()).await, LostReason::LeaseEnded, "it was told so");
    cluster.server(2).line("this datacenter was evicted: stopping");
    assert_eq!(cluster.server(2).wait(), 0);
}

/// Starts a server on a copy of the data directory of dc2, with its certificate, at other ports.
fn started_on_a_copy(cluster: &Cluster) -> Running {
    let (data, config) = (cluster.data_dir(2), cluster.dir().join("copy.toml"));
    let copied = cluster.dir().join("copy");
    copy(&data, &copied);
    let text = std::fs::read_to_string(cluster.config_file(2)).expect("it was written");
    let text = text.replace(&data.display().to_string(), &copied.display().to_string());
    let (before, listen) = text.split_once("[listen]").expect("it says where it listens");
    let port = cluster.quic_address(2).port();
    let moved = (port - 1..=port + 1).fold(listen.to_owned(), |listen, port| {
        listen.replace(&format!(":{port}\""), &format!(":{}\"", port + 4))
    });
    std::fs::write(&config, format!("{before}[listen]{moved}")).expect("the folder is writable");
    let mut command = geolock(&cluster.dir().join("home"));
    Running::start(command.args(["server", "--config"]).arg(config), Output::Stderr)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copied_server_and_its_original_are_both_stopped() {
    let (mut cluster, clients) = servers(3).quick().serving().await;
    token(&clients[2], "used there").await;
    drop(clients);
    cluster.kill(2);
    let mut copied = started_on_a_copy(&cluster);
    cluster.launch(2);
    for server in [cluster.server(2), &mut copied] {
        server.line("two servers run at the same time with the identity of this one");
        assert_eq!(server.wait(), 0);
    }
    // It is one of the others that has seen it first, and so both have stopped.
    let mut said = cluster.server(0).drain();
    said.extend(cluster.server(1).drain());
    assert!(said.iter().any(|line| line.contains("two servers run at the same time with one identity")));
    // The operator removes the copy.
    cluster.restart(2);
    token(&serving_at(&cluster, 2).await, "used there").await;
}

/// dc2 gives shorter leases than the others, and is lost: that is what the operator waits for.
#[tokio::test(flavor = "multi_thread")]
async fn an_eviction_waits_for_the_leases_of_the_lost_datacenter_and_not_for_those_of_the_asked_one() {
    let (mut cluster, clients) = grown(prepared_with(AUTO, "[limits]\nmax_lease_ttl = \"10 s\"\n")).await;
    token(&clients[2], "used there").await;
    cluster.kill(2);
    let said = until("no member hears it any more, and it is evicted", || {
        let said = run(&mut cluster.command(0, ["member", "evict", "2", "--confirm-dead"]));
        (said.code == 0).then_some(said)
    });
    assert!(
        said.stdout.contains("Clients of dc2 may rely on their locks for 10 s more: waiting."),
        "{said:?}"
    );
}
