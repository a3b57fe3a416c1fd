//! Memory of servers that used many locks once: at the start, at the peak, when all locks are home again,
//! and after a restart.
//!
//! `cargo test --profile sim --test resilience memory:: -- --ignored --nocapture`

use std::time::{Duration, Instant};

use geolock::client::{AcquireRequest, Client};
use tokio::task::JoinSet;

use crate::fixture::history::serving;
use crate::fixture::{Cluster, Running, lock, servers};

const DCS: u8 = 3;
const LOCKS: usize = 200_000;
/// Concurrent requests. Each is for one lock.
const TASKS: usize = 256;
/// By default, locks stay where they were used for a day.
const SOON: &str = "[[hold]]\nprefix = \"once/\"\nidle_return_after = \"30 s\"\n";
/// Permitted growth from the start until all locks are home, and until a restarted server is quiet, in MiB.
const MORE: u64 = 48;

/// Returns a size of each server's process as Linux reports it, in MiB.
fn sizes(cluster: &Cluster, name: &str) -> Vec<u64> {
    let of_server = |server: &Option<Running>| {
        let id = server.as_ref().expect("it runs").id();
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("its process is there");
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("Linux reports it");
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number of kB");
        kilobytes >> 10
    };
    cluster.servers.iter().map(of_server).collect()
}

fn resident(cluster: &Cluster) -> Vec<u64> {
    sizes(cluster, "VmRSS:")
}

/// The highest resident memory since the start of each process.
fn peak(cluster: &Cluster) -> Vec<u64> {
    sizes(cluster, "VmHWM:")
}

/// Acquires and releases each lock once.
async fn use_all_once(client: &Client) {
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let client = client.clone();
        tasks.spawn(async move {
            for n in (task..LOCKS).step_by(TASKS) {
                let request = AcquireRequest::exclusive(lock(&format!("once/{n}")));
                let guard = client.acquire(request).await.expect("nobody else wants it");
                guard.release().await.expect("it is held");
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no task panics");
    }
}

/// Waits until no datacenter has a part of another one, and all logs are truncated.
async fn all_at_home(clients: &[Client]) {
    // Queries cost memory and time: few of them.
    let mut every = tokio::time::interval(Duration::from_millis(500));
    for client in clients {
        loop {
            every.tick().await;
            let counts = client.status().await.expect("it is up").counts;
            let left = ["locks_moved", "locks_active", "log_entries"];
            if left.iter().all(|name| counts.get(*name).copied().unwrap_or(0) == 0) {
                break;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it takes minutes"]
async fn locks_that_are_home_again_leave_no_memory_behind() {
    let _alone = crate::alone().await;
    let (mut cluster, clients) = servers(DCS).with(SOON).serving().await;
    let begun = Instant::now();
    let start = resident(&cluster);
    println!("MiB of each server at the start: {start:?}");
    use_all_once(&clients[0]).await;
    println!("{LOCKS} locks were used once ({:.0?}): {:?}", begun.elapsed(), resident(&cluster));
    all_at_home(&clients).await;
    let home = resident(&cluster);
    println!("all are home ({:.0?}): {home:?}; the highest was {:?}", begun.elapsed(), peak(&cluster));
    drop(clients);
    (0..DCS).for_each(|dc| cluster.kill(dc));
    let begun = Instant::now();
    cluster.start_all();
    let clients = serving(&cluster).await;
    println!("all serve again after a restart ({:.0?}): {:?}", begun.elapsed(), resident(&cluster));
    all_at_home(&clients).await;
    println!("and are quiet ({:.0?}): the highest was {:?}", begun.elapsed(), peak(&cluster));
    for (dc, start) in start.iter().enumerate() {
        assert!(home[dc] <= start + MORE, "dc{dc}: {start} MiB at the start, {} when all are home", home[dc]);
    }
    // Freed pages are returned some seconds later.
    let mut every = tokio::time::interval(Duration::from_secs(1));
    loop {
        every.tick().await;
        let restarted = resident(&cluster);
        if restarted.iter().zip(&start).all(|(now, start)| *now <= start + MORE) {
            println!("what is not needed was given back ({:.0?}): {restarted:?}", begun.elapsed());
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{start:?} MiB, {restarted:?} after a restart");
    }
}
