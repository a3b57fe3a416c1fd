//! Data written by the previous version can be read and continued: `golden/version1.tar.gz` has the data
//! directories of two datacenters that ran it and were killed, each with a checkpoint and records after it.

use std::process::Command;

use crate::fixture::calls::{acquire, put, read};
use crate::fixture::history::serving;
use crate::fixture::said::run;
use crate::fixture::{Cluster, lock};
use geolock::client::AcquireRequest;

/// The content of the old data.
const SHOWN: &str = "city\tOslo\ncounter\t7\nlate\tBergen\npage\tsmall\n";

fn shown(cluster: &Cluster, dc: u8) -> String {
    run(&mut cluster.command(dc, ["kv", "get", "city", "counter", "late", "page"])).stdout
}

/// Returns the format version of each segment of a log.
fn segments(cluster: &Cluster, dc: u8) -> Vec<u8> {
    let files = std::fs::read_dir(cluster.data_dir(dc)).expect("it is there");
    let paths = files.map(|file| file.expect("it is listed").path());
    let mut logs: Vec<_> = paths.filter(|path| path.extension() == Some("log".as_ref())).collect();
    logs.sort();
    logs.iter().map(|path| std::fs::read(path).expect("it is readable")[8]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn data_of_the_version_before_is_read_and_continued() {
    let mut cluster = Cluster::prepare(2);
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/durability/golden/version1.tar.gz");
    let unpacked = Command::new("tar").arg("-xzf").arg(golden).arg("-C").arg(cluster.dir()).status();
    assert!(unpacked.expect("there is tar").success());
    assert_eq!(segments(&cluster, 0), [1]);
    cluster.configure("");
    cluster.start_all();
    let clients = serving(&cluster).await;
    for dc in 0..2 {
        assert_eq!(shown(&cluster, dc), SHOWN);
        assert_eq!(segments(&cluster, dc), [1, 3], "what is written now is of this version");
    }
    // dc1 has one of them, dc0 the other.
    for name in ["moved", "back"] {
        let mut last = None;
        for client in &clients {
            let guard = acquire(client, AcquireRequest::exclusive(lock(name))).await;
            assert!(last.is_none_or(|last| last < guard.token()));
            last = Some(guard.token());
            guard.release().await.expect("it is up");
        }
    }
    let written = put(&clients[0], "new", b"written".to_vec()).await;
    assert_eq!(read(&clients[1], "new", &written).await.as_deref(), Some(&b"written"[..]));
    drop(clients);

    // Restarts with both versions in one log.
    (0..2).for_each(|dc| cluster.kill(dc));
    (0..2).for_each(|dc| cluster.restart(dc));
    let clients = serving(&cluster).await;
    for dc in 0..2 {
        assert_eq!(shown(&cluster, dc), SHOWN);
        assert_eq!(read(&clients[usize::from(dc)], "new", &written).await.as_deref(), Some(&b"written"[..]));
    }
}
