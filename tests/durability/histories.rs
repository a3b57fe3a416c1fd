//! Actions of operators on data directories and configurations that servers cannot repair: servers refuse
//! them, and say how to resolve them.
//!
//! Guarantee: docs/guarantees.md#locks-after-a-restart.

use std::fs;

use crate::fixture::backup::{SHORT_LEASES, copy};
use crate::fixture::calls::{put, read};
use crate::fixture::history::{serving, serving_at};
use crate::fixture::said::run;
use crate::fixture::{Cluster, servers, until};
use geolock::client::{Client, Snapshot};
use geolock_api::proto::Phase;

/// Creates two histories of one log: dc0 knows the entries that dc1 wrote before its disk was rolled back,
/// dc2 those that it wrote afterwards. Returns the last of the latter.
async fn fork(cluster: &mut Cluster) -> Snapshot {
    let clients = serving(cluster).await;
    put(&clients[1], "n", "before").await;
    drop(clients);
    cluster.kill(1);
    let backup = cluster.dir().join("backup");
    copy(&cluster.data_dir(1), &backup);
    cluster.restart(1);
    drop(serving(cluster).await);
    cluster.kill(2);
    let told = put(&cluster.client(1).await, "n", "told to dc0").await;
    assert!(read(&cluster.client(0).await, "n", &told).await.is_some());

    cluster.kill(0);
    cluster.kill(1);
    fs::remove_dir_all(cluster.data_dir(1)).expect("it is there");
    copy(&backup, &cluster.data_dir(1));
    cluster.restart(1);
    cluster.restart(2);
    let client = serving_at(cluster, 1).await;
    put(&client, "n", "written alone").await;
    let last = put(&client, "m", "written alone").await;
    assert!(read(&cluster.client(2).await, "m", &last).await.is_some());
    cluster.restart(0);
    last
}

async fn phase(client: &Client) -> Phase {
    client.status().await.expect("it is up").phase()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_histories_stop_all_until_an_operator_keeps_one() {
    let mut cluster = servers(3).quick().with(SHORT_LEASES).listening();
    let last = fork(&mut cluster).await;
    for dc in 0..3 {
        let client = cluster.client(dc).await;
        while phase(&client).await != Phase::Forked {}
        let status = run(&mut cluster.command(dc, ["status"]));
        assert!(
            status.stdout.contains("FORKED") && status.stdout.contains("Two histories"),
            "{}",
            status.stdout
        );
        let refused = run(&mut cluster.command(dc, ["kv", "put", "n", "more"]));
        assert!(refused.code != 0 && refused.stderr.contains("two histories"), "{}", refused.stderr);
        let lock = run(&mut cluster.command(dc, ["lock", "--shared", "--wait", "100ms", "x", "--", "true"]));
        assert_eq!(lock.code, 75, "nothing is granted: {}", lock.stderr);
    }

    (0..3).for_each(|dc| cluster.kill(dc));
    fs::remove_dir_all(cluster.data_dir(0)).expect("it is there");
    for dc in [1, 2] {
        fs::write(cluster.data_dir(dc).join("keep-history"), b"").expect("the folder is writable");
    }
    cluster.start_all();
    for client in serving(&cluster).await {
        assert_eq!(read(&client, "n", &last).await.as_deref(), Some(&b"written alone"[..]));
    }
    assert!([1, 2].iter().all(|dc| !cluster.data_dir(*dc).join("keep-history").exists()));
    assert_eq!(run(&mut cluster.command(0, ["kv", "put", "n", "more"])).code, 0);
}

#[test]
fn members_are_not_changed_by_editing_a_file() {
    let mut cluster = servers(3).listening();
    let serves = |cluster: &Cluster| {
        until("a server that serves", || {
            run(&mut cluster.command(2, ["status"])).stdout.contains("  serving  ").then_some(())
        });
    };
    serves(&cluster);
    cluster.kill(2);
    let file = cluster.config_file(2);
    let agreed = fs::read_to_string(&file).expect("it is there");
    let added = format!("{agreed}\n[[member]]\nid = 7\nname = \"gru\"\naddress = \"127.0.0.1:9\"\n");
    let (before, rest) = agreed.split_once("[[member]]\nid = 1\n").expect("it is a member");
    let (_, after) = rest.split_once("[[member]]").expect("it is not the last");
    let removed = format!("{before}[[member]]{after}");
    for changed in [added, removed] {
        fs::write(&file, changed).expect("the folder is writable");
        for check in [true, false] {
            let mut command = cluster.server_command(2);
            if check {
                command.arg("--check-config");
            }
            let said = run(&mut command);
            assert_eq!(said.code, 78, "{}", said.stderr);
            for text in ["city0 (0), city1 (1), city2 (2)", "cannot be changed", "name the same ones again"] {
                assert!(said.stderr.contains(text), "{text} is not in {}", said.stderr);
            }
        }
    }
    fs::write(&file, agreed).expect("the folder is writable");
    cluster.restart(2);
    serves(&cluster);
}
