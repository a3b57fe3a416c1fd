//! Datacenters come back after they have left, were evicted, or have lost their disks.
//!
//! Guarantees: docs/guarantees.md#order-and-availability.

use crate::evicting::evict;
use crate::fixture::calls::{acquire, put, read};
use crate::fixture::history::serving_at;
use crate::fixture::said::{Said, run};
use crate::fixture::{Cluster, lock, until};
use crate::growth::{AUTO, all_settled, joined, listed, refused};
use crate::leaving::{three, token};
use geolock::client::AcquireRequest;
use serde_json::Value;

/// Returns the generation of a member, as a list shows it.
fn generation(list: &Value, dc: u64) -> Option<u64> {
    let rows = list["members"].as_array().expect("a list");
    rows.iter().find(|row| row["dc"] == dc)?["generation"].as_u64()
}

fn lose_data(cluster: &Cluster, dc: u8) {
    std::fs::remove_dir_all(cluster.data_dir(dc)).expect("nobody uses it");
}

fn replace(cluster: &Cluster, dc: u8) -> Said {
    let dc = dc.to_string();
    run(&mut cluster.command(0, ["member", "replace", &dc, "--confirm-dead", "--clients-are-dead"]))
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_has_lost_its_disk_is_evicted_and_joins_again() {
    let (mut cluster, mut clients) = three(AUTO).await;
    let held = acquire(&clients[0], AcquireRequest::exclusive(lock("held"))).await;
    let written = put(&clients[2], "city", "Oslo").await;
    assert_eq!(read(&clients[1], "city", &written).await.as_deref(), Some(&b"Oslo"[..]));
    let mut before = token(&clients[2], "used there").await;
    drop(clients.pop());

    for returned in 1..3 {
        cluster.kill(2);
        lose_data(&cluster, 2);
        if returned == 1 {
            until("no member hears it any more, and it is evicted", || {
                (evict(&cluster, 0, "dc2").code == 0).then_some(())
            });
            // Its id is that of a member that was evicted: an operator has to agree.
            let said = refused(&cluster, 2, &[]);
            assert!(said.code != 0 && said.stderr.contains("member add city2"), "{said:?}");
            let said = replace(&cluster, 2);
            assert!(said.code != 0 && said.stderr.contains("dc2 is no member"), "{said:?}");
            let said = run(&mut cluster.command(1, ["member", "add", "city2"]));
            assert_eq!(said.code, 0, "{said:?}");
        } else {
            until("no member hears it any more, and it is replaced", || {
                let said = replace(&cluster, 2);
                let done = said.code == 0 && said.stdout.contains("city2 may join (decision ");
                assert!(done || said.stderr.contains("hears dc2"), "{said:?}");
                done.then_some(())
            });
        }
        let client = joined(&mut cluster, 2).await;
        for dc in 0..3 {
            let list = listed(&cluster, dc, "three settled members", |list| all_settled(list, 3));
            assert_eq!((generation(&list, 2), generation(&list, 1)), (Some(returned), Some(0)));
        }
        assert_eq!(held.is_lost(), None, "nobody lost a lock");
        assert_eq!(read(&client, "city", &written).await.as_deref(), Some(&b"Oslo"[..]));
        for name in ["used there", "never used"] {
            let after = token(&client, name).await;
            assert!(after > before && after >> 54 == 16 + returned, "{name}: {after} after {before}");
            before = after;
        }
        let news = put(&client, "news", returned.to_string()).await;
        let told = read(&clients[0], "news", &news).await;
        assert_eq!(told.as_deref(), Some(returned.to_string().as_bytes()));
    }

    // It stays the same member over a restart.
    cluster.kill(2);
    cluster.restart(2);
    for dc in 0..3 {
        let list = listed(&cluster, dc, "three settled members", |list| all_settled(list, 3));
        assert_eq!(generation(&list, 2), Some(2));
    }
    held.release().await.expect("it was held");
    token(&clients[1], "held").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_was_evicted_alive_is_refused_until_it_joins_anew() {
    let (mut cluster, mut clients) = three(AUTO).await;
    let before = token(&clients[2], "used there").await;
    drop(clients.pop());
    cluster.kill(2);
    let old = cluster.dir().join("evicted");
    std::fs::rename(cluster.data_dir(2), &old).expect("nobody uses it");
    until("no member hears it any more, and it is evicted", || {
        (evict(&cluster, 0, "dc2").code == 0).then_some(())
    });
    let said = run(&mut cluster.command(0, ["member", "policy", "--rejoin", "auto"]));
    assert_eq!(said.code, 0, "{said:?}");
    let client = joined(&mut cluster, 2).await;
    assert!(token(&client, "used there").await > before);
    drop(client);
    let said = run(&mut cluster.command(0, ["member", "remove", "2", "--wait"]));
    assert_eq!(said.code, 0, "{said:?}");
    cluster.server(2).line("has left the cluster");
    assert_eq!(cluster.server(2).wait(), 0);

    // The directory of its first life: it has a certificate, but is not the one that returns.
    let second = cluster.dir().join("left");
    std::fs::rename(cluster.data_dir(2), &second).expect("nobody uses it");
    let client = joined(&mut cluster, 2).await;
    assert_eq!(generation(&listed(&cluster, 0, "three", |list| all_settled(list, 3)), 2), Some(2));
    drop(client);
    cluster.kill(2);
    let third = cluster.dir().join("third");
    std::fs::rename(cluster.data_dir(2), &third).expect("nobody uses it");
    std::fs::rename(&old, cluster.data_dir(2)).expect("it is there");
    cluster.launch(2);
    cluster.server(2).line("it is server 0 with this id, known here is server 2");
    // It asks why, and is told.
    cluster.server(2).line("this datacenter was evicted: stopping");
    assert_eq!(cluster.server(2).wait(), 0);
    std::fs::remove_dir_all(cluster.data_dir(2)).expect("nobody uses it");
    std::fs::rename(&third, cluster.data_dir(2)).expect("it is there");
    cluster.restart(2);
    for dc in 0..3 {
        listed(&cluster, dc, "three settled members", |list| all_settled(list, 3));
    }
    token(&clients[0], "used there").await;
}

/// It is the founder: its configuration has nobody to ask.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_was_evicted_and_is_started_again_returns_by_itself_if_it_may() {
    let (mut cluster, mut clients) = three(AUTO).await;
    let held = acquire(&clients[1], AcquireRequest::exclusive(lock("held"))).await;
    let written = put(&clients[1], "city", "Oslo").await;
    let said = run(&mut cluster.command(1, ["member", "policy", "--rejoin", "auto"]));
    assert_eq!(said.code, 0, "{said:?}");
    let mut before = token(&clients[0], "used there").await;
    drop(clients.remove(0));

    for returned in 1..3 {
        cluster.kill(0);
        until("no member hears it any more, and it is evicted", || {
            let said = evict(&cluster, 1, "dc0");
            eprintln!("{said:?}");
            (said.code == 0).then_some(())
        });
        cluster.launch(0);
        cluster.server(0).line("this datacenter was evicted: stopping, to join again");
        cluster.server(0).line("admitted: this server is a member");
        let client = serving_at(&cluster, 0).await;
        let list = listed(&cluster, 0, "three settled members", |list| all_settled(list, 3));
        assert_eq!((generation(&list, 0), generation(&list, 1)), (Some(returned), Some(0)));
        assert_eq!(read(&client, "city", &written).await.as_deref(), Some(&b"Oslo"[..]));
        let after = token(&client, "used there").await;
        assert!(after > before, "{after} after {before}");
        before = after;
        let aside = cluster.data_dir(0).join(format!("evicted-{}", returned - 1));
        assert!(aside.join("identity").exists(), "what it had is kept in {}", aside.display());
    }
    assert_eq!(held.is_lost(), None, "nobody else lost a lock");

    // Over a restart it is that member, and returns no more.
    cluster.kill(0);
    cluster.restart(0);
    let list = listed(&cluster, 1, "three settled members", |list| all_settled(list, 3));
    assert_eq!(generation(&list, 0), Some(2));
    assert!(!cluster.data_dir(0).join("returning.json").exists());
}
