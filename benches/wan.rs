//! The cost of a lock between continents: `geolock dev --wan world` (round trips of 80, 150 and 220 ms), its
//! real process, sockets, TLS and disks, and a client in each datacenter.
//!
//! `cargo bench --bench wan`. Baseline in the same run: the round trip to the farthest other datacenter as
//! the link itself measures it. An idle lock should cost one of those, a hundred locks at once the same, and
//! a lock that is used again at the same place none.
//!
//! Also what a commit costs that is durable at a majority, as a ratio to the round trip to the nearest other
//! datacenter, which makes a majority of three: aimed at are 1.1 round trips and two commits that are durable
//! here, each of which waits for one sync.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a bench reads clocks")]

#[path = "../tests/fixture/mod.rs"]
mod fixture;
mod rounds;

use std::path::Path;
use std::time::{Duration, Instant};

use fixture::{Output, Running, free_ports};
use geolock::client::{
    AcquireRequest, Batch, Client, ClientConfig, ClientTls, CommitError, Durability, Key, Mode, TxnRequest,
    Update,
};
use geolock_api::names::LockName;
use rounds::AnyError;
use tokio::task::JoinSet;

const SAMPLES: usize = 60;

fn main() -> Result<(), AnyError> {
    let (data, base) = (tempfile::tempdir()?, free_ports(3));
    let mut playground = fixture::geolock(data.path());
    playground.args([
        "dev",
        "--wan",
        "world",
        "--seconds",
        "600",
        "--base-port",
        &base.to_string(),
        "--data",
    ]);
    let mut playground = Running::start(playground.arg(data.path()), Output::Stdout);
    playground.line("ready");
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(run(data.path(), base))
}

async fn run(data: &Path, base: u16) -> Result<(), AnyError> {
    println!(
        "{:>4} {:>14} {:>32} {:>32} {:>32}",
        "from", "farthest link", "idle lock (p50, p99)", "100 idle locks", "used again here"
    );
    for dc in 0..3 {
        let tls = ClientTls::from_dir(data.join("client"))?;
        let endpoint = format!("127.0.0.1:{}", base + 10 * dc);
        let client = Client::connect(ClientConfig::new([endpoint], tls)).await?;
        let status = client.status().await?;
        let farthest = status.peers.iter().map(|peer| peer.rtt_us).max().unwrap_or(0) as f64 / 1_000.0;
        let one = times(&client, |i| vec![format!("dc{dc}/idle/{i}")]).await?;
        let many = times(&client, |i| (0..100).map(|k| format!("dc{dc}/many/{i}/{k}")).collect()).await?;
        let again = times(&client, |_| vec![format!("dc{dc}/idle/0")]).await?;
        let ratios = |times: [f64; 2]| times.map(|ms| format!("{ms:.2} ms {:.3}x", ms / farthest)).join(", ");
        println!(
            "{:>4} {farthest:>11.2} ms {:>32} {:>32} {:>32}",
            format!("dc{dc}"),
            ratios(one),
            ratios(many),
            ratios(again)
        );
        client.close().await?;
    }
    commits(data, base).await
}

async fn commits(data: &Path, base: u16) -> Result<(), AnyError> {
    println!(
        "\n{:>4} {:>14} {:>32} {:>32} {:>32}",
        "from", "nearest link", "durable here (p50, p99)", "at a majority", "at a majority, 32 at a time"
    );
    for dc in 0..3 {
        let tls = ClientTls::from_dir(data.join("client"))?;
        let client =
            Client::connect(ClientConfig::new([format!("127.0.0.1:{}", base + 10 * dc)], tls)).await?;
        let status = client.status().await?;
        let nearest = status.peers.iter().map(|peer| peer.rtt_us).min().unwrap_or(0) as f64 / 1_000.0;
        let here = commit_times(&client, Durability::Local, 1).await?;
        let majority = commit_times(&client, Durability::Majority, 1).await?;
        let many = commit_times(&client, Durability::Majority, 32).await?;
        let ratios = |times: [f64; 2]| times.map(|ms| format!("{ms:.2} ms {:.3}x", ms / nearest)).join(", ");
        println!(
            "{:>4} {nearest:>11.2} ms {:>32} {:>32} {:>32}",
            format!("dc{dc}"),
            ratios(here),
            ratios(majority),
            ratios(many)
        );
        client.close().await?;
    }
    Ok(())
}

/// Returns milliseconds of commits, p50 and p99, with that many at a time.
async fn commit_times(
    client: &Client,
    durability: Durability,
    at_a_time: usize,
) -> Result<[f64; 2], AnyError> {
    let mut clients = JoinSet::new();
    for n in 0..at_a_time {
        let (client, key) = (client.clone(), Key::new(b"bench", format!("n{n}").as_bytes())?);
        clients.spawn(async move {
            let mut times = Vec::new();
            for _ in 0..SAMPLES {
                let batch = Batch::new().update(&key, Update::counter(1));
                let start = Instant::now();
                client.transact(TxnRequest::new().durability(durability), batch).await?;
                times.push(start.elapsed());
            }
            Ok::<_, CommitError>(times)
        });
    }
    let mut times = Vec::new();
    while let Some(of_one) = clients.join_next().await {
        times.extend(of_one??);
    }
    times.sort_unstable();
    Ok([times.len() / 2, times.len() * 99 / 100].map(|at| times[at].as_secs_f64() * 1_000.0))
}

/// Returns milliseconds of exclusive acquires: p50, and p99, which is nearly the longest.
async fn times(client: &Client, names: impl Fn(usize) -> Vec<String>) -> Result<[f64; 2], AnyError> {
    let mut times: Vec<Duration> = Vec::new();
    for i in 0..SAMPLES {
        let locks: Vec<LockName> =
            names(i).iter().map(|name| LockName::try_from(name.as_str())).collect::<Result<_, _>>()?;
        let mut locks = locks.into_iter();
        let first = AcquireRequest::exclusive(locks.next().ok_or("at least one lock")?);
        let request = locks.fold(first, |request, lock| request.and(lock, Mode::Exclusive));
        let start = Instant::now();
        let guard = client.acquire(request).await?;
        times.push(start.elapsed());
        guard.release().await?;
    }
    times.sort_unstable();
    Ok([SAMPLES / 2, SAMPLES * 99 / 100].map(|at| times[at].as_secs_f64() * 1_000.0))
}
