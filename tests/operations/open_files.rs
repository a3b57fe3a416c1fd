//! A server with a low limit of open files.

use std::net::TcpStream;

use crate::fixture::calls::{put, read};
use crate::fixture::history::serving_at;
use crate::fixture::{servers, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_leave_files_for_the_journal() {
    let mut cluster =
        servers(1).with("[journal]\nsegment_bytes = \"1 MiB\"\ncheckpoint_bytes = \"64 MiB\"\n").prepared();
    cluster.runners[0] = ["sh", "-c", "ulimit -n 220; exec \"$0\" \"$@\""].map(String::from).to_vec();
    cluster.restart(0);
    let client = serving_at(&cluster, 0).await;
    let address = cluster.endpoint(0);
    let silent: Vec<TcpStream> =
        (0..300).map(|_| TcpStream::connect(&address).expect("it listens")).collect();
    let mut last = None;
    for number in 0..8 {
        // Every second value begins a segment.
        last = Some(within(put(&client, "large", vec![number; 512 << 10])).await);
    }
    let found = read(&client, "large", &last.expect("it was written")).await;
    assert_eq!(found, Some(vec![7; 512 << 10]));
    cluster.server(0).says("does not fit the limit of open files");
    drop(silent);
}
