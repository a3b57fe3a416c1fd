//! Operators are told what stops if a datacenter dies, what its eviction costs, and what was decided.
//!
//! Guarantees: docs/guarantees.md#order-and-availability.

use serde_json::Value;

use crate::evicting::evict;
use crate::fixture::calls::{acquire, put, read};
use crate::fixture::said::run;
use crate::fixture::{Cluster, Output, Running, lock, until};
use crate::growth::{AUTO, all_settled, listed};
use crate::leaving::{three, token};
use geolock::client::AcquireRequest;

fn said(cluster: &Cluster, dc: u8, args: &[&str]) -> String {
    let said = run(&mut cluster.command(dc, args));
    assert_eq!(said.code, 0, "{args:?}: {said:?}");
    said.stdout
}

fn status(cluster: &Cluster, dc: u8) -> Value {
    serde_json::from_str(&said(cluster, dc, &["status", "--json"])).expect("an object")
}

/// Returns the row of a datacenter in the list of another one, once it is as wanted.
fn row(cluster: &Cluster, dc: u8, of: usize, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let is_wanted = |list: &Value| list["members"].as_array().is_some_and(|rows| wanted(&rows[of]));
    listed(cluster, dc, what, is_wanted)["members"][of].clone()
}

/// Returns the decisions in the audit of a datacenter, with their numbers.
fn decisions(cluster: &Cluster, dc: u8) -> Vec<(u64, String)> {
    let lines = said(cluster, dc, &["audit", "--json"]);
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("an object"));
    let decision = |line: Value| Some((line["decision"].as_u64()?, line["text"].as_str()?.to_owned()));
    lines.filter_map(decision).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stops_with_a_datacenter_and_what_its_eviction_costs() {
    let (mut cluster, mut clients) = three(AUTO).await;
    let held = acquire(&clients[2], AcquireRequest::exclusive(lock("held there"))).await;
    token(&clients[2], "used there").await;
    let written = put(&clients[2], "city", "Oslo").await;
    assert_eq!(read(&clients[1], "city", &written).await.as_deref(), Some(&b"Oslo"[..]));
    for dc in 0..2 {
        let seen =
            row(&cluster, dc, 2, "two locks of which dc2 has all", |row| row["at_stake"]["away_locks"] == 2);
        assert_eq!((&seen["heard"], &seen["at_stake"]["held"]), (&true.into(), &Value::Null));
    }
    // It knows more of itself.
    let own = row(&cluster, 2, 2, "a lock that is held", |row| row["at_stake"]["held"] == 1);
    assert_eq!((&own["at_stake"]["away_locks"], &own["at_stake"]["leases"]), (&2.into(), &1.into()));
    let itself = until("all that it has is elsewhere, too", || {
        Some(status(&cluster, 2)).filter(|status| status["at_stake"]["only_here"] == 0)
    });
    assert_eq!((&itself["at_stake"]["held"], &itself["epoch"]), (&1.into(), &status(&cluster, 0)["epoch"]));
    let text = said(&cluster, 2, &["status"]);
    for line in ["  locks        2 with parts of others", "1 lease, 1 request with locks, 0 waiting"] {
        assert!(text.contains(line), "{line} is missing in {text}");
    }

    let waiting = ["lock", "held there", "--", "echo", "granted"];
    let mut waiter = Running::start(&mut cluster.command(0, waiting), Output::Stdout);
    for dc in 0..2 {
        row(&cluster, dc, 2, "a request that waits for it", |row| row["at_stake"]["waiting"] == 1);
    }
    cluster.kill(2);
    drop((held, clients.pop()));
    for dc in 0..2 {
        let lost = row(&cluster, dc, 2, "one that is not heard, and a request that waits for it", |row| {
            row["heard"] == false && row["at_stake"]["waiting"] == 1
        });
        assert!(lost["at_stake"]["heard_ms"].as_u64().is_some_and(|ms| ms > 0), "{lost}");
        let list = said(&cluster, dc, &["member", "list"]);
        for text in [
            "dc2 was last heard ",
            ": 2 locks have parts there, and 1 request waits for it. An eviction frees them",
        ] {
            assert!(list.contains(text), "{text} is missing in {list}");
        }
    }
    let peers = &status(&cluster, 0)["peers"];
    assert_eq!(
        (&peers[1]["at_stake"]["away_locks"], &peers[0]["at_stake"]["away_locks"]),
        (&2.into(), &0.into())
    );
    says_who_is_unreachable(&cluster);

    let evicted = until("no member hears it any more, and it is evicted", || {
        Some(evict(&cluster, 0, "dc2")).filter(|said| said.code == 0)
    });
    assert!(evicted.stdout.contains("2 locks have parts there"), "{evicted:?}");
    waiter.line("granted");
    let list = listed(&cluster, 0, "two settled members", |list| all_settled(list, 2));
    listed(&cluster, 1, "two settled members", |list| all_settled(list, 2));
    assert_eq!(list["evictions_left"], 1_006);
    lists_decisions(&cluster);
}

/// `describe` and the metrics of dc0 tell of dc2, which is down.
fn says_who_is_unreachable(cluster: &Cluster) {
    let described = until("it is unreachable", || {
        let described = said(cluster, 0, &["describe", "used there"]);
        described.contains("  unreachable  dc2").then_some(described)
    });
    assert!(described.contains("last heard") && described.contains("returns or is evicted"), "{described}");
    let page = cluster.page(0, "/metrics");
    for line in ["geolock_peer_away_locks{peer=\"dc2\"} 2", "geolock_peer_awaited_requests{peer=\"dc2\"} 1"] {
        assert!(page.contains(line), "{line} is missing in {page}");
    }
}

/// The audits of dc0 and dc1 have the eviction of dc2.
fn lists_decisions(cluster: &Cluster) {
    let all = until("every datacenter has the same", || {
        let all = decisions(cluster, 0);
        (all == decisions(cluster, 1)).then_some(all)
    });
    let texts: Vec<&str> = all.iter().map(|(_, text)| text.as_str()).collect();
    for text in
        ["the first members are dc0", "dc2 has joined", "the eviction of dc2 begins, as an operator demands"]
    {
        assert!(texts.contains(&text), "{text} is missing in {texts:?}");
    }
    let audit = said(cluster, 1, &["audit"]);
    assert!(
        audit.lines().any(|line| line.starts_with("decision ") && line.contains(" UTC  the eviction of dc2")),
        "{audit}"
    );
}
