//! Locks below a prefix get a home while locks are in use, lose it, and survive restarts and ends of members.
//!
//! Guarantees: docs/guarantees.md#homed-locks; operation: docs/membership.md#homes-by-prefix.

use serde_json::Value;

use crate::fixture::calls::acquire;
use crate::fixture::history::serving_at;
use crate::fixture::said::{Said, run};
use crate::fixture::{Cluster, lock, until};
use crate::growth::{AUTO, all_settled, listed};
use crate::leaving::{three, token};
use geolock::client::{AcquireError, AcquireRequest, Wait};

fn home(cluster: &Cluster, at: u8, args: &[&str]) -> Said {
    run(&mut cluster.command(at, [&["member", "home"], args].concat()))
}

fn set(cluster: &Cluster, at: u8, args: &[&str]) {
    let said = home(cluster, at, args);
    assert_eq!(said.code, 0, "{args:?}: {said:?}");
}

/// Waits until all parts of an unused lock are in a datacenter, as all of these see it; `None`: each part is
/// in its own.
fn until_at(cluster: &Cluster, seen_by: &[u8], name: &str, home: Option<u8>) {
    for dc in seen_by {
        until("the parts of an unused lock are at its home", || {
            let said = run(&mut cluster.command(*dc, ["describe", name, "--json"]));
            let lock: Value = serde_json::from_str(&said.stdout).ok()?;
            let owners = lock["owners"].as_array()?.clone();
            let is_there =
                |row: &Value| row["owner"] == home.map_or_else(|| row["part"].clone(), Value::from);
            owners.iter().all(is_there).then_some(())
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prefix_gets_a_home_while_its_locks_are_in_use() {
    let (mut cluster, clients) = three(AUTO).await;
    let held = acquire(&clients[1], AcquireRequest::exclusive(lock("jobs/held"))).await;
    let shared = acquire(&clients[0], AcquireRequest::shared(lock("jobs/shared"))).await;
    set(&cluster, 0, &["jobs/", "2"]);
    until_at(&cluster, &[0, 1, 2], "jobs/new", Some(2));
    let said = run(&mut cluster.command(1, ["describe", "jobs/new"]));
    assert!(said.stdout.contains("dc2") && said.stdout.contains("by its prefix"), "{said:?}");
    assert!(home(&cluster, 1, &[]).stdout.contains("jobs/   dc2"), "all members know it");

    // Those in use stay where they are, and nobody else has them.
    assert_eq!((held.is_lost(), shared.is_lost()), (None, None), "nobody lost a lock");
    for name in ["jobs/held", "jobs/shared"] {
        let tried = clients[2].acquire(AcquireRequest::exclusive(lock(name)).wait(Wait::Try)).await;
        assert!(matches!(tried, Err(AcquireError::NotFree)), "{name}: {tried:?}");
    }
    let before = held.token().0;
    held.release().await.expect("it was held");
    assert!(token(&clients[2], "jobs/held").await > before, "another datacenter gets it as ever");

    // Nobody else has to be up for a lock that was never used.
    cluster.kill(0);
    drop(shared);
    token(&clients[2], "jobs/first use").await;
    cluster.kill(1);
    token(&clients[2], "jobs/first use of another one").await;

    // A restart forgets nothing, also not of the home.
    cluster.kill(2);
    (0..3).for_each(|dc| cluster.restart(dc));
    let client = serving_at(&cluster, 2).await;
    token(&client, "jobs/after the restart").await;
    until_at(&cluster, &[0, 1, 2], "jobs/new", Some(2));
    set(&cluster, 1, &["jobs/", "0"]);
    until_at(&cluster, &[0, 1, 2], "jobs/new", Some(0));
    set(&cluster, 2, &["jobs/", "--remove"]);
    until_at(&cluster, &[0, 1, 2], "jobs/new", None);
    assert!(home(&cluster, 0, &[]).stdout.contains("No prefix has a home."));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_home_ends_with_its_datacenter_and_wrong_rules_change_nothing() {
    let (mut cluster, mut clients) = three(AUTO).await;
    set(&cluster, 0, &["jobs/", "dc2"]);
    for (args, why) in [
        (["jobs/daily/", "1"].as_slice(), "jobs/"),
        (&["j", "1"], "overlaps"),
        (&["other/", "7"], "the home dc7 of prefix other/ is no member"),
        (&["other/", "--remove"], "other/"),
        (&["other/"], "<DC|--remove>"),
        (&["", "1"], "at least 1 byte"),
    ] {
        let said = home(&cluster, 1, args);
        let is_done = args == ["other/", "--remove"];
        assert_eq!(said.code == 0, is_done, "{args:?}: {said:?}");
        assert!(format!("{}{}", said.stdout, said.stderr).contains(why), "{args:?}: {said:?}");
    }
    set(&cluster, 1, &["jobs/", "2"]);
    until_at(&cluster, &[0, 1, 2], "jobs/new", Some(2));
    let before = token(&clients[2], "jobs/used").await;

    drop(clients.pop());
    let said = run(&mut cluster.command(0, ["member", "remove", "2", "--wait"]));
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(cluster.server(2).wait(), 0);
    for dc in 0..2 {
        listed(&cluster, dc, "two settled members", |list| all_settled(list, 2));
    }
    until_at(&cluster, &[0, 1], "jobs/new", None);
    assert!(token(&clients[1], "jobs/used").await > before);
    assert!(home(&cluster, 1, &["--json"]).stdout.contains("\"homes\":[]"));
}
