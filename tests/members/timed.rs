//! Datacenters that nobody hears are evicted without an operator.
//!
//! Guarantees: docs/guarantees.md#order-and-availability.

use rustix::process::Signal;

use crate::fixture::calls::acquire;
use crate::fixture::said::{Said, run};
use crate::fixture::{Cluster, lock, until};
use crate::growth::{AUTO, all_settled, listed, prepared_with};
use crate::leaving::{grown, three, token};
use geolock::client::{AcquireRequest, Client};

/// Tables of all: leases are short enough from the start.
pub const SHORT: &str = "[limits]\nmax_lease_ttl = \"10 s\"\n";

fn policy(cluster: &Cluster, args: &[&str]) -> Said {
    run(&mut cluster.command(0, [&["member", "policy"], args].concat()))
}

/// Three datacenters that evict by time, as soon as it is safe with leases of 10 s, and a client of each.
async fn three_by_time() -> (Cluster, Vec<Client>) {
    let (cluster, clients) = grown(prepared_with(&[AUTO, SHORT].concat(), SHORT)).await;
    let times = ["--fence-after", "3s", "--evict-after", "15s", "--max-lease-ttl", "10s"];
    let said = policy(&cluster, &[&["--evict", "auto"], &times[..]].concat());
    assert!(said.code == 0 && said.stdout.contains("The policy is set (decision "), "{said:?}");
    for dc in 0..3 {
        listed(&cluster, dc, "the policy is entered by all", |list| all_settled(list, 3));
    }
    let said = policy(&cluster, &[]);
    assert!(said.stdout.contains("evict          auto") && !said.stdout.contains("apply yet"), "{said:?}");
    (cluster, clients)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_killed_is_evicted_and_its_locks_are_granted_elsewhere() {
    let (mut cluster, mut clients) = three_by_time().await;
    let held = acquire(&clients[0], AcquireRequest::exclusive(lock("held"))).await;
    let before = token(&clients[2], "used there").await;
    cluster.kill(2);
    drop(clients.pop());
    for name in ["used there", "never used"] {
        let after = token(&clients[1], name).await;
        assert!(after > before && after >> 54 == 17, "{name}: {after} is above all tokens of before");
    }
    for dc in 0..2 {
        listed(&cluster, dc, "two settled members", |list| all_settled(list, 2));
    }
    assert_eq!(held.is_lost(), None, "nobody else lost a lock");
    for dc in 0..2 {
        let line = cluster.server(dc).line("the members have evicted dc2");
        assert!(line.contains("WARN"), "{line}");
        let page = cluster.page(dc, "/metrics");
        assert!(page.contains("geolock_evictions_total{cause=\"silence\"} 1"), "{page}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_no_majority_acknowledges_says_so_in_its_log_and_its_metrics() {
    let (mut cluster, clients) = three_by_time().await;
    drop(clients);
    let fenced = |page: String| page.contains("geolock_backed_for_seconds 0.0");
    assert!(!fenced(cluster.page(2, "/metrics")));
    for dc in 0..2 {
        cluster.server(dc).stop();
    }
    let line = cluster.server(2).line("no majority of the voters acknowledges this member");
    assert!(line.contains("WARN"), "{line}");
    until("the metric shows it", || fenced(cluster.page(2, "/metrics")).then_some(()));
    for dc in 0..2 {
        cluster.server(dc).signal(Signal::CONT);
    }
    cluster.server(2).line("a majority of the voters acknowledges this member again");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_stopped_for_long_is_evicted_when_its_clients_hold_nothing_any_more() {
    let (mut cluster, clients) = three_by_time().await;
    let there = acquire(&clients[2], AcquireRequest::exclusive(lock("held there"))).await;
    cluster.server(2).stop();
    let elsewhere = acquire(&clients[1], AcquireRequest::exclusive(lock("held there"))).await;
    assert!(there.is_lost().is_some(), "its client has lost it before another one was granted it");
    assert!(elsewhere.token().0 > there.token().0);
    cluster.server(2).signal(Signal::CONT);
    cluster.server(2).line("this datacenter was evicted: stopping");
    assert_eq!(cluster.server(2).wait(), 0);
    assert_eq!(elsewhere.is_lost(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_contradicts_itself_is_refused_and_the_policy_is_shown() {
    let (cluster, _clients) = three(AUTO).await;
    for (args, why) in [
        (["--evict", "auto", "--evict-after", "5s"].as_slice(), "evict_after"),
        (&["--fence-after", "1ms"], "fence_after"),
        (&["--evict", "never"], "never"),
        (&["--max-lease-ttl", "forever"], "forever"),
    ] {
        let said = policy(&cluster, args);
        assert!(said.code != 0 && said.stderr.contains(why), "{args:?}: {said:?}");
    }
    let said = policy(&cluster, &[]);
    assert!(said.code == 0 && said.stdout.contains("evict          operator"), "{said:?}");
    let set = || policy(&cluster, &["--evict", "wait"]);
    until("the policy is set", || (set().code == 0).then_some(()));
    assert_eq!(set().code, 0, "it may be repeated");
    let said = policy(&cluster, &["--json"]);
    assert!(said.stdout.contains("\"evict\":\"wait\""), "{said:?}");
    // By default, leases may be longer than with evict = auto. None is, so nothing waits for that.
    let said = policy(&cluster, &["--evict", "auto"]);
    assert!(said.code == 0 && said.stdout.contains("The policy is set (decision "), "{said:?}");
    let said = run(&mut cluster.command(0, ["member", "home", "jobs/", "1"]));
    assert_eq!(said.code, 0, "another change is possible at once: {said:?}");

    // Clients that ask for no time to live get a lease that is as short as it has to be.
    let said = policy(&cluster, &["--max-lease-ttl", "4s"]);
    assert_eq!(said.code, 0, "{said:?}");
    until("a limit below the default", || {
        let said = run(&mut cluster.command(0, ["lock", "--ttl", "10s", "x", "--", "true"]));
        (said.code == 64 && said.stderr.contains("a lease lives 1.0 s to 4.0 s")).then_some(())
    });
    for command in [
        ["lock", "x", "--", "true"].as_slice(),
        &["kv", "put", "k", "v"],
        &["once", "x", "--", "true"],
        &["every", "1h", "x", "--", "true"],
    ] {
        let said = run(&mut cluster.command(0, command));
        assert_eq!(said.code, 0, "{command:?}: {said:?}");
    }
}

/// A policy that limits leases applies when those from before are over.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_waits_for_longer_leases_says_so_and_for_how_long() {
    let (mut cluster, clients) = three(AUTO).await;
    drop(clients);
    let said = run(&mut cluster.command(0, ["lock", "--ttl", "50s", "x", "--", "true"]));
    assert_eq!(said.code, 0, "{said:?}");
    let said = policy(&cluster, &["--evict", "auto"]);
    assert!(said.stdout.contains("Evict = auto does not apply yet to dc0"), "{said:?}");
    let again = ["--evict-after", "40s"];
    let said = policy(&cluster, &again);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.stderr.contains("applies to dc0"), "{said:?}");
    assert!(said.stderr.contains("may still have longer leases than it allows"), "{said:?}");
    // limits.max_lease_ttl is 60 s by default, the policy allows 15 s.
    assert!(said.stderr.contains("They end within 45.0 s: repeat it then"), "{said:?}");
    cluster.kill(0);
    until("dc1 does not hear dc0", || {
        let said = run(&mut cluster.command(1, [&["member", "policy"], &again[..]].concat()));
        let is_true = said.stderr.contains("has reached dc0, which this server does not hear");
        (said.code == 1 && is_true).then_some(())
    });
}
