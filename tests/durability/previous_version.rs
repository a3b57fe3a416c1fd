//! Data written by earlier versions can be read and continued: `golden/versionN.tar.gz` has the data
//! directories of two datacenters that ran it and were killed, each with a checkpoint and records after it.
//! `scripts/golden-data` made those from version 2 on.

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

/// Starts servers on the data of an earlier version.
async fn is_read_and_continued(version: u8) {
    let mut cluster = Cluster::prepare(2);
    let golden = format!("{}/tests/durability/golden/version{version}.tar.gz", env!("CARGO_MANIFEST_DIR"));
    let unpacked = Command::new("tar").arg("-xzf").arg(golden).arg("-C").arg(cluster.dir()).status();
    assert!(unpacked.expect("there is tar").success());
    assert_eq!(segments(&cluster, 0), [version]);
    cluster.configure("");
    cluster.start_all();
    let clients = serving(&cluster).await;
    for dc in 0..2 {
        assert_eq!(shown(&cluster, dc), SHOWN);
        assert_eq!(segments(&cluster, dc), [version, 5], "what is written now is of this version");
    }
    if version >= 3 {
        let policy = run(&mut cluster.command(0, ["member", "policy", "--json"])).stdout;
        assert!(policy.contains(r#""evict":"wait""#), "{policy}");
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

#[tokio::test(flavor = "multi_thread")]
async fn data_of_version_1_is_read_and_continued() {
    is_read_and_continued(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn data_of_version_2_is_read_and_continued() {
    is_read_and_continued(2).await;
}

/// It has a decision about the members, too.
#[tokio::test(flavor = "multi_thread")]
async fn data_of_version_3_is_read_and_continued() {
    is_read_and_continued(3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn data_of_version_4_is_read_and_continued() {
    is_read_and_continued(4).await;
}
