//! Real servers whose disks were damaged while they were down, or are not theirs to write.

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use common::history::{patient, serving, serving_at};
use common::{Cluster, Output, Running, key, lock, within};
use geolock::client::{AcquireRequest, Client, Snapshot, Update};
use rustix::process::Signal;

/// The log file of a datacenter that was written last.
fn newest_log(cluster: &Cluster, dc: u8) -> PathBuf {
    let files = fs::read_dir(cluster.data_dir(dc)).expect("it is there");
    let files = files.map(|file| file.expect("it is readable").path());
    files.filter(|path| path.extension().is_some_and(|name| name == "log")).max().expect("there is a log")
}

/// Adds to a counter, that often.
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

/// Starts a server that does not come up: why.
fn refuses_to_start(cluster: &Cluster, dc: u8) -> String {
    let mut command = cluster.command(dc, ["server", "--config"]);
    let said = common::said::run(command.arg(cluster.config_file(dc)));
    assert_eq!(said.code, 1, "{}", said.stderr);
    said.stderr
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_is_named_and_never_served() {
    let mut cluster = Cluster::start(1);
    let commit = count(&serving_at(&cluster, 0).await, 100).await;
    stop(&mut cluster, 0);
    let log = newest_log(&cluster, 0);
    let good = fs::read(&log).expect("it is readable");
    let mut bad = good.clone();
    bad[good.len() / 2] ^= 0x10;
    fs::write(&log, &bad).expect("it is writable");
    let said = refuses_to_start(&cluster, 0);
    assert!(said.contains(&*log.to_string_lossy()) && said.contains("damaged"), "{said}");
    assert_eq!(fs::read(&log).expect("it is readable"), bad, "nothing was changed");

    fs::write(&log, &good).expect("it is writable");
    cluster.restart(0);
    assert_eq!(counted(&serving_at(&cluster, 0).await, &commit).await, 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_torn_write_at_the_end_costs_nothing() {
    let mut cluster = Cluster::start(1);
    let commit = count(&serving_at(&cluster, 0).await, 20).await;
    cluster.kill(0);
    let log = newest_log(&cluster, 0);
    let mut torn = fs::read(&log).expect("it is readable");
    torn.extend_from_within(torn.len() - 50..);
    fs::write(&log, torn).expect("it is writable");
    cluster.restart(0);
    let client = serving_at(&cluster, 0).await;
    assert_eq!(counted(&client, &commit).await, 20);
    let next = count(&client, 1).await;
    assert!(next.seqs[0] > commit.seqs[0], "{next:?} is after {commit:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_that_the_disk_lost_comes_back_from_the_others() {
    let mut cluster = Cluster::start(3);
    let clients = serving(&cluster).await;
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
    // No number is used again for something else: everybody sees the next ones, and counts them once.
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
    let mut cluster = Cluster::start(1);
    stop(&mut cluster, 0);
    let dir = cluster.data_dir(0);
    if std::os::unix::fs::chown(&dir, Some(12_345), None).is_err() {
        println!("skipped: only root may give files away");
        return;
    }
    let said = refuses_to_start(&cluster, 0);
    assert!(said.contains(&*dir.to_string_lossy()) && said.contains("belongs to user 12345"), "{said}");
}

#[test]
fn a_disk_that_cannot_be_written_is_named() {
    let cluster = Cluster::prepare(1);
    cluster.configure("");
    let dir = cluster.data_dir(0);
    fs::create_dir(&dir).expect("the folder is writable");
    let mut keeper = Command::new("unshare");
    let script = "mount -t tmpfs -o ro,mode=700 tmpfs \"$0\" && echo mounted || echo not; exec sleep 600";
    keeper.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]).arg(&dir);
    let Some(mut keeper) = Running::start_if_there(keeper.stdin(Stdio::null()), Output::Stdout) else {
        println!("skipped: nothing can be mounted here");
        return;
    };
    if keeper.any_line().is_none_or(|line| line != "mounted") {
        println!("skipped: nothing can be mounted here");
        return;
    }
    let id = keeper.id().to_string();
    let mut command = Command::new("nsenter");
    command.args(["--target", &id, "--user", "--mount", "--preserve-credentials"]);
    command.arg(env!("CARGO_BIN_EXE_geolock")).arg("server").arg("--config").arg(cluster.config_file(0));
    let said = common::said::run(&mut command);
    assert_eq!(said.code, 1, "{}", said.stderr);
    let text = said.stderr;
    assert!(text.contains(&*dir.to_string_lossy()) && text.contains("Read-only file system"), "{text}");
}
