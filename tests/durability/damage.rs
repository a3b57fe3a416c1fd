//! Real servers whose disks were damaged while they were down, or belong to other servers.
//!
//! Guarantee: docs/guarantees.md#commits.

use std::fs;
use std::path::PathBuf;

use crate::fixture::history::{patient, serving_at};
use crate::fixture::mounted::{Mounted, skip};
use crate::fixture::{Cluster, key, lock, servers, within};
use geolock::client::{AcquireRequest, Batch, Client, Snapshot, TxnRequest, Update};
use rustix::process::Signal;

const LARGE: usize = 100 << 10;

/// Returns the newest log file of a datacenter.
fn newest_log(cluster: &Cluster, dc: u8) -> PathBuf {
    let files = fs::read_dir(cluster.data_dir(dc)).expect("it is there");
    let files = files.map(|file| file.expect("it is readable").path());
    files.filter(|path| path.extension().is_some_and(|name| name == "log")).max().expect("there is a log")
}

/// Increments a counter that many times.
async fn count(client: &Client, times: u64) -> Snapshot {
    let mut last = Snapshot::default();
    for _ in 0..times {
        last = client.update(&key("counter"), Update::counter(1)).await.expect("it is committed");
    }
    last
}

async fn counted(client: &Client, at_least: &Snapshot) -> i64 {
    let view = client.read_many(&[key("counter")], &patient(at_least)).await.expect("it comes");
    view.values[0].counter().expect("it is a counter")
}

fn stop(cluster: &mut Cluster, dc: u8) {
    let mut server = cluster.servers[usize::from(dc)].take().expect("it runs");
    server.signal(Signal::TERM);
    assert_eq!(server.wait(), 0, "it drains and stops");
}

/// Starts a server that refuses to start: an operator has to restore its data. Returns the reason.
fn refuses_to_start(cluster: &Cluster, dc: u8) -> String {
    let said = crate::fixture::said::run(&mut cluster.server_command(dc));
    assert_eq!(said.code, 78, "{}", said.stderr);
    said.stderr
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_is_named_and_never_served() {
    let mut cluster = servers(1).listening();
    let commit = count(&serving_at(&cluster, 0).await, 100).await;
    stop(&mut cluster, 0);
    let log = newest_log(&cluster, 0);
    let good = fs::read(&log).expect("it is readable");
    // From the first bytes, which name the owner of the log, to the last eighth: valid records follow each of
    // them.
    for part in 0..8 {
        let mut bad = good.clone();
        bad[good.len() * part / 8 + part] ^= 1 << part;
        fs::write(&log, &bad).expect("it is writable");
        let said = refuses_to_start(&cluster, 0);
        assert!(said.contains(&*log.to_string_lossy()) && said.contains("damaged"), "{part}: {said}");
        assert_eq!(fs::read(&log).expect("it is readable"), bad, "nothing was changed");
    }

    fs::write(&log, &good).expect("it is writable");
    cluster.restart(0);
    assert_eq!(counted(&serving_at(&cluster, 0).await, &commit).await, 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_torn_write_at_the_end_costs_nothing() {
    let mut cluster = servers(1).listening();
    let client = serving_at(&cluster, 0).await;
    let commit = count(&client, 20).await;
    let log = newest_log(&cluster, 0);
    let acknowledged = fs::read(&log).expect("it is readable").len();
    // Far larger than all other records written meanwhile: the cut is in the middle of this one.
    let large = Batch::new()
        .update(&key("counter"), Update::counter(1))
        .update(&key("large"), Update::register(vec![7; LARGE]));
    client.transact(TxnRequest::new(), large).await.expect("it is committed");
    cluster.kill(0);
    let all = fs::read(&log).expect("it is readable");
    assert!(all.len() > acknowledged + LARGE, "it is in this file");
    fs::write(&log, &all[..acknowledged + LARGE / 2]).expect("it is writable");
    cluster.restart(0);
    let client = serving_at(&cluster, 0).await;
    assert_eq!(counted(&client, &commit).await, 20);
    assert_eq!(
        client.read(&key("large")).await.expect("it serves").register(),
        Ok(None),
        "none of it is there"
    );
    let next = count(&client, 1).await;
    assert!(next.seqs[0] > commit.seqs[0], "{next:?} is after {commit:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_that_the_disk_lost_comes_back_from_the_others() {
    // For this long it writes nothing afterwards: a disk that lost log records may have lost leases, too.
    let (mut cluster, clients) = servers(3).with("[limits]\nmax_lease_ttl = \"10 s\"\n").serving().await;
    let guard = clients[1].acquire(AcquireRequest::exclusive(lock("mine"))).await.expect("it is free");
    let token = guard.token();
    let commit = count(&clients[1], 50).await;
    for client in &clients {
        assert_eq!(counted(client, &commit).await, 50);
    }
    cluster.kill(1);
    let log = newest_log(&cluster, 1);
    let whole = fs::read(&log).expect("it is readable");
    fs::write(&log, &whole[..whole.len() - whole.len() / 4]).expect("it is writable");
    cluster.restart(1);
    assert_eq!(counted(&clients[1], &commit).await, 50);
    serving_at(&cluster, 1).await;
    // No number is used again for another entry: all datacenters see the next ones, and count them once.
    let next = within(count(&clients[1], 10)).await;
    assert!(next.seqs[1] > commit.seqs[1], "{next:?} is after {commit:?}");
    for client in &clients {
        assert_eq!(counted(client, &next).await, 60);
    }
    drop(guard);
    let again = within(clients[2].acquire(AcquireRequest::exclusive(lock("mine")))).await;
    assert!(again.expect("it is given").token() > token);
}

#[test]
fn a_folder_of_somebody_else_is_refused() {
    let mut cluster = servers(1).listening();
    stop(&mut cluster, 0);
    let dir = cluster.data_dir(0);
    if std::os::unix::fs::chown(&dir, Some(12_345), None).is_err() {
        return skip("only root may give files away");
    }
    let said = refuses_to_start(&cluster, 0);
    assert!(said.contains(&*dir.to_string_lossy()) && said.contains("belongs to user 12345"), "{said}");
}

#[test]
fn a_disk_that_cannot_be_written_is_named() {
    let mut cluster = servers(1).prepared();
    let Some(_mounted) = Mounted::at_data_of(&mut cluster, 0, "ro,mode=700") else { return };
    let said = crate::fixture::said::run(&mut cluster.server_command(0));
    assert_eq!(said.code, 1, "another start may find it writable: {said:?}");
    let (text, dir) = (said.stderr, cluster.data_dir(0));
    assert!(text.contains(&*dir.to_string_lossy()) && text.contains("Read-only file system"), "{text}");
}
