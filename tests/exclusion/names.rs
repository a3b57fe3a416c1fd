//! Names of other datacenters that cannot be resolved any more, over a restart of all servers.
//!
//! Operation: docs/operations.md.

use std::fs;

use crate::fixture::calls::acquire;
use crate::fixture::history::serving_at;
use crate::fixture::{Cluster, lock, servers, until};
use geolock::client::AcquireRequest;

/// The file in a data directory that has the last addresses.
const FILE: &str = "addresses.json";

fn replace(file: &std::path::Path, from: &str, to: &str) {
    let text = fs::read_to_string(file).expect("it is there");
    fs::write(file, text.replace(from, to)).expect("the folder is writable");
}

/// Gives each server this host for the other one.
fn name_others(cluster: &Cluster, from: &str, to: &str) {
    for (dc, other) in [(0, 1), (1, 0)] {
        let port = cluster.quic_address(other).port();
        let (from, to) = (format!("address = \"{from}:{port}\""), format!("address = \"{to}:{port}\""));
        replace(&cluster.config_file(dc), &from, &to);
    }
}

async fn moves_a_lock(cluster: &Cluster) {
    for dc in 0..2 {
        let client = serving_at(cluster, dc).await;
        let held = acquire(&client, AcquireRequest::exclusive(lock("wanted by both"))).await;
        held.release().await.expect("it was held");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_are_restarted_while_names_are_gone_find_each_other() {
    let mut cluster = servers(2).prepared();
    name_others(&cluster, "127.0.0.1", "localhost");
    cluster.start_all();
    moves_a_lock(&cluster).await;
    let files = [0, 1].map(|dc| cluster.data_dir(dc).join(FILE));
    until("a server that dialled remembers where", || files.iter().any(|file| file.exists()).then_some(()));
    [0, 1].into_iter().for_each(|dc| cluster.kill(dc));
    // No name server answers for this one (RFC 6761).
    name_others(&cluster, "localhost", "gone.invalid");
    files.iter().filter(|file| file.exists()).for_each(|file| replace(file, "localhost", "gone.invalid"));
    cluster.start_all();
    moves_a_lock(&cluster).await;
}
