//! A datacenter that is away for longer than the others keep entries for it recovers by itself; so does one
//! that lost its disk.
//!
//! Guarantees: docs/guarantees.md#replicas, docs/guarantees.md#not-promised.

use std::collections::BTreeMap;

use crate::fixture::calls::{acquire, put, read};
use crate::fixture::history::serving;
use crate::fixture::{Cluster, lock, servers};
use geolock::client::{AcquireRequest, Client, Snapshot};

/// The smallest log that can be configured; and short leases, so that leases lost with a disk end soon.
const SMALL_LOG: &str = "[limits]\nmax_log_bytes = \"1 MiB\"\nmax_lease_ttl = \"10 s\"\n";
const VALUE: usize = 100 << 10;
/// Most values that are written until the log is full: many times what is needed.
const MOST: usize = 200;

async fn counts(client: &Client) -> BTreeMap<String, u64> {
    client.status().await.expect("it is up").counts.into_iter().collect()
}

/// Writes to dc0 until it keeps no more entries for the member that is away.
async fn outgrow(cluster: &Cluster) -> Snapshot {
    let client = cluster.client(0).await;
    let mut before = 0;
    for n in 0..MOST {
        let snapshot = put(&client, &format!("page {n}"), vec![n as u8; VALUE]).await;
        let kept = counts(&client).await["log_entries"];
        if n > 10 && kept < before {
            client.close().await.expect("it is up");
            return snapshot;
        }
        before = kept;
    }
    panic!("it keeps everything: {before} entries")
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_away_for_long_and_who_lost_its_disk_get_the_state_of_another() {
    let mut cluster = servers(3).quick().with(SMALL_LOG).listening();
    let far = serving(&cluster).await.remove(2);
    let own = put(&far, "from far", b"kept".to_vec()).await;
    let guard = acquire(&far, AcquireRequest::exclusive(lock("moved"))).await;
    let token = guard.token();
    guard.release().await.expect("it is up");
    drop(far);

    cluster.kill(2);
    let last = outgrow(&cluster).await;
    cluster.restart(2);
    // Before it listens or after.
    cluster.server(2).says("took its state over");
    let far = cluster.client(2).await;
    assert_eq!(read(&far, "from far", &own).await.as_deref(), Some(&b"kept"[..]));
    assert_eq!(read(&far, "page 3", &last).await, Some(vec![3; VALUE]));
    drop(far);

    cluster.kill(2);
    std::fs::remove_dir_all(cluster.data_dir(2)).expect("it is there");
    cluster.restart(2);
    // Before it listens or after.
    cluster.server(2).says("took its state over");
    let far = serving(&cluster).await.remove(2);
    assert_eq!(read(&far, "from far", &own).await.as_deref(), Some(&b"kept"[..]));
    let last = put(&far, "from far", b"again".to_vec()).await;
    let guard = acquire(&far, AcquireRequest::exclusive(lock("moved"))).await;
    assert!(guard.token() > token, "it knows what it handed out");
    let near = cluster.client(0).await;
    assert_eq!(read(&near, "from far", &last).await.as_deref(), Some(&b"again"[..]));
    let taken = counts(&far).await["state_transfers_received_total"];
    assert_eq!(taken, 1, "once in this life");
}
