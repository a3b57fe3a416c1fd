//! A real server on a real file system that is full.
//!
//! Guarantee: docs/guarantees.md#commits.

use std::fs::{self, File};
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use crate::fixture::history::{patient, serving_at};
use crate::fixture::mounted::Mounted;
use crate::fixture::said::run;
use crate::fixture::{Cluster, key, lock, servers, until, within};
use geolock::client::{
    AcquireError, AcquireRequest, AtLeast, Batch, Client, CommitError, ReadClient, Reason, Status,
    Transacted, TxnError, TxnRequest, Update,
};
use geolock_api::proto::DiskSpace;

/// Prepares servers that keep this much of their disks free.
fn prepared(dcs: u8, min_free: &str) -> Cluster {
    let journal = format!(
        "[journal]\nsegment_bytes = \"1 MiB\"\ncheckpoint_bytes = \"64 MiB\"\nmin_free_bytes = \"{min_free}\"\n"
    );
    servers(dcs).with(&journal).prepared()
}

/// A file system of 16 MiB at the data directory of datacenter 0.
struct SmallDisk(Mounted);

impl SmallDisk {
    fn mount(cluster: &mut Cluster) -> Option<SmallDisk> {
        Mounted::at_data_of(cluster, 0, "size=16m,mode=700").map(SmallDisk)
    }

    /// Takes all room except that many bytes.
    fn fill_but(&self, left: u64) {
        let mut ballast = File::create(self.0.path.join("ballast")).expect("there is room for a name");
        let stat = rustix::fs::statvfs(&self.0.path).expect("it is mounted");
        let mut more = (stat.f_bavail * stat.f_frsize).saturating_sub(left) as usize;
        while more > 0 {
            match ballast.write(&vec![0; more.min(4096)]) {
                Ok(0) | Err(_) => return,
                Ok(written) => more -= written,
            }
        }
    }

    fn make_room(&self) {
        fs::remove_file(self.0.path.join("ballast")).expect("it is there");
    }
}

async fn until_status(client: &Client, is: impl Fn(&Status) -> bool) {
    let found = async { while !client.status().await.is_ok_and(|status| is(&status)) {} };
    within(found).await;
}

/// Waits until a page of its metrics port satisfies `is`: pages are updated ten times a second.
fn shows(cluster: &Cluster, path: &str, is: impl Fn(&str) -> bool) {
    until(path, || is(&cluster.page(0, path)).then_some(()));
}

/// Commits 20 KiB and an increment of a counter.
async fn write(client: &Client) -> Result<Transacted, CommitError> {
    let batch = Batch::new()
        .update(&key("n"), Update::counter(1))
        .update(&key("r"), Update::register(vec![7; 20 << 10]));
    client.transact(TxnRequest::new(), batch).await
}

async fn count(client: &Client) -> i64 {
    client.read(&key("n")).await.expect("reading goes on").counter().expect("it is a counter")
}

fn is_refused(result: &Result<Transacted, CommitError>) -> bool {
    matches!(result, Err(CommitError::NotCommitted(TxnError::Refused(Reason::DiskFull, _))))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_disk_fills_up_says_so_reads_on_and_loses_nothing() {
    let mut cluster = prepared(2, "4 MiB");
    let Some(disk) = SmallDisk::mount(&mut cluster) else { return };
    cluster.start_all();
    let (here, there) = (serving_at(&cluster, 0).await, serving_at(&cluster, 1).await);
    for _ in 0..20 {
        write(&here).await.expect("there is room");
    }

    disk.fill_but(1 << 20);
    cluster.server(0).line("disk is full (space, inodes or a quota)");
    until_status(&here, |status| status.disk_space() == DiskSpace::Full).await;
    let refused = write(&here).await;
    assert!(is_refused(&refused), "{refused:?}");
    let acquired = here.acquire(AcquireRequest::exclusive(lock("both have a part of it"))).await;
    assert!(matches!(acquired, Err(AcquireError::Refused(Reason::DiskFull, _))), "{:?}", acquired.err());
    assert_eq!(count(&here).await, 20);
    shows(&cluster, "/readyz", |page| page.starts_with("HTTP/1.1 503") && page.contains("disk full"));
    shows(&cluster, "/metrics", |page| page.contains("\ngeolock_disk_pressure 2\n"));
    let shown = run(&mut cluster.command(0, ["status"])).stdout;
    assert!(shown.contains("! its disk is full"), "{shown}");
    let put = run(&mut cluster.command(0, ["kv", "put", "k", "v"]));
    assert!(put.code == 72 && put.stderr.contains("DISK_FULL"), "{}", put.stderr);

    let commit = write(&there).await.expect("the other one has room").commit;
    disk.make_room();
    cluster.server(0).line("has room again");
    let view = here.read_many(&[key("n")], &patient(&commit)).await.expect("what came meanwhile comes again");
    assert_eq!(view.values[0].counter(), Ok(21));
    write(&here).await.expect("there is room");
    shows(&cluster, "/readyz", |page| page.starts_with("HTTP/1.1 200"));
}

/// Without a reserve of space, so that writers are busy when the last byte is taken. The server is killed
/// while records wait for room, and starts on the full disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_a_full_disk_and_a_kill() {
    let mut cluster = prepared(1, "0 B");
    let Some(disk) = SmallDisk::mount(&mut cluster) else { return };
    cluster.start_all();
    let client = serving_at(&cluster, 0).await;
    let done = Arc::new(AtomicBool::new(false));
    let tally = Arc::new(Mutex::new((0, 0)));
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (client, done, tally) = (client.clone(), Arc::clone(&done), Arc::clone(&tally));
        writers.spawn(async move {
            while !done.load(Ordering::Relaxed) {
                let written = write(&client).await;
                let mut tally = tally.lock().expect("nobody panics with it");
                match written {
                    Ok(_) => tally.0 += 1,
                    Err(CommitError::NotCommitted(_)) => {}
                    Err(_) => tally.1 += 1,
                }
            }
        });
    }
    let some_written = async {
        while tally.lock().expect("nobody panics with it").0 < 20 {
            tokio::task::yield_now().await;
        }
    };
    within(some_written).await;
    disk.fill_but(0);
    shows(&cluster, "/metrics", |page| page.contains("\ngeolock_journal_waiting_for_disk_space 1\n"));
    let reader = ReadClient::connect(cluster.client_config(0)).await.expect("it listens");
    let before = tally.lock().expect("nobody panics with it").0;
    let view = reader.read(&[key("n")], &AtLeast::default()).await.expect("reading goes on");
    assert!(view.values[0].counter().expect("it is a counter") >= before);

    cluster.kill(0);
    let config = fs::read_to_string(cluster.config_file(0)).expect("it is there");
    fs::write(cluster.config_file(0), config.replace("0 B", "4 MiB")).expect("it can be written");
    cluster.restart(0);
    // Before it listens or after: two threads log these lines.
    cluster.server(0).says("disk is full");
    let view =
        reader.read(&[key("n")], &AtLeast::default()).await.expect("it starts on a full disk, and reads");
    assert!(view.values[0].counter().expect("it is a counter") >= before);
    disk.make_room();
    cluster.server(0).line("has room again");
    done.store(true, Ordering::Relaxed);
    while let Some(ended) = writers.join_next().await {
        ended.expect("no writer panics");
    }
    let (acknowledged, unknown) = *tally.lock().expect("nobody panics with it");
    let client = serving_at(&cluster, 0).await;
    let counted = count(&client).await;
    assert!(
        (acknowledged..=acknowledged + unknown).contains(&counted),
        "{counted} of {acknowledged}, {unknown} unknown"
    );
    write(&client).await.expect("there is room");
}

/// The cause is not a full disk: files of this process may not grow further.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_fails_otherwise_stops_the_server_and_says_why() {
    let mut cluster = prepared(1, "4 MiB");
    let script = "trap '' XFSZ; ulimit -f 1000; exec \"$0\" \"$@\"";
    cluster.runners[0] = ["sh", "-c", script].map(String::from).to_vec();
    cluster.start_all();
    let client = serving_at(&cluster, 0).await;
    let acknowledged = Arc::new(AtomicI64::new(0));
    let writer = tokio::spawn({
        let acknowledged = acknowledged.clone();
        async move {
            while write(&client).await.is_ok() {
                acknowledged.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let said = cluster.server(0).line("the journal failed");
    assert!(said.contains("cannot write") && said.contains(".log"), "{said}");
    assert_ne!(cluster.server(0).wait(), 0);
    // Its last write would wait for the server until its session is over.
    writer.abort();
    drop(writer.await);
    let acknowledged = acknowledged.load(Ordering::Relaxed);
    assert!(acknowledged > 5, "{acknowledged}");
    cluster.runners[0].clear();
    cluster.restart(0);
    let client = serving_at(&cluster, 0).await;
    let counted = count(&client).await;
    // One writer: the outcome of its last write is unknown.
    assert!((acknowledged..=acknowledged + 1).contains(&counted), "{counted} of {acknowledged}");
}

#[test]
fn a_file_system_without_inodes_is_not_told_as_one_without_space() {
    let mut cluster = prepared(1, "1 MiB");
    let Some(_few) = Mounted::at_data_of(&mut cluster, 0, "size=16m,nr_inodes=3,mode=700") else { return };
    let said = run(&mut cluster.server_command(0));
    assert_eq!(said.code, 72, "{said:?}");
    assert!(said.stderr.contains("no inode (`df -i`)"), "{said:?}");
}
