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
//!
//! Then locks with a home. Baselines in the same run: the second use of the same locks at home, and the round
//! trip to the home. The first use at home should cost at most twice the second one, also while another
//! datacenter is down; the first use elsewhere one round trip to the home, however far the third one is.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a bench reads clocks")]

#[path = "../tests/fixture/mod.rs"]
mod fixture;
mod rounds;

use std::path::Path;
use std::time::{Duration, Instant};

use fixture::{Output, Running, free_ports, servers};
use geolock::client::{
    AcquireError, AcquireRequest, Batch, Client, ClientConfig, ClientTls, CommitError, Durability, Key, Mode,
    Reason, TxnRequest, Update, Wait,
};
use geolock_api::names::{DcId, LockName};
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
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(data.path(), base))?;
    runtime.block_on(run_homed(data.path(), base))?;
    drop(playground);
    runtime.block_on(run_with_one_down())
}

fn homed(home: u8, name: String) -> Result<Vec<LockName>, AnyError> {
    let home = DcId::new(home).ok_or("few datacenters")?;
    Ok(vec![LockName::homed(home, name.as_bytes())?])
}

/// Waits until homed locks are not refused any more.
async fn until_understood(client: &Client, own: u8) -> Result<(), AnyError> {
    loop {
        let name = homed(own, "understood".into())?.remove(0);
        match client.acquire(AcquireRequest::exclusive(name).wait(Wait::Try)).await {
            Ok(guard) => return Ok(guard.release().await?),
            Err(AcquireError::Refused(Reason::NotYet, _)) => tokio::task::yield_now().await,
            Err(other) => return Err(other.into()),
        }
    }
}

/// Returns the first and the second use of locks at home.
async fn at_home(client: &Client, own: u8) -> Result<[[f64; 2]; 2], AnyError> {
    until_understood(client, own).await?;
    let names = |i| homed(own, format!("home/{i}"));
    Ok([times_of(client, names).await?, times_of(client, names).await?])
}

fn shown([first, again]: [[f64; 2]; 2]) -> String {
    let [one, other] = [first, again].map(|[p50, p99]| format!("{p50:.3}, {p99:.3} ms"));
    format!("{one:>18} {other:>18} {:>7.2}x", first[0] / again[0])
}

async fn run_homed(data: &Path, base: u16) -> Result<(), AnyError> {
    println!(
        "\n{:>4} {:>18} {:>18} {:>8} {:>6} {:>14} {:>26}",
        "from", "first use at home", "second use", "", "home", "link to it", "first use from here"
    );
    for dc in 0..3_u8 {
        let tls = ClientTls::from_dir(data.join("client"))?;
        let endpoint = format!("127.0.0.1:{}", base + 10 * u16::from(dc));
        let client = Client::connect(ClientConfig::new([endpoint], tls)).await?;
        let here = shown(at_home(&client, dc).await?);
        let home = (dc + 1) % 3;
        let link = client
            .status()
            .await?
            .peers
            .iter()
            .find(|peer| peer.dc == u32::from(home))
            .map(|peer| peer.rtt_us);
        let link = link.ok_or("it is a member")? as f64 / 1_000.0;
        let [p50, p99] = times_of(&client, |i| homed(home, format!("away/{dc}/{i}"))).await?;
        println!(
            "{:>4} {here} {:>6} {link:>11.2} ms {:>26}",
            format!("dc{dc}"),
            format!("dc{home}"),
            format!("{p50:.2} ms {:.3}x, {:.3}x", p50 / link, p99 / link)
        );
        client.close().await?;
    }
    Ok(())
}

/// The same at home while another datacenter is down, without a WAN: none is used.
async fn run_with_one_down() -> Result<(), AnyError> {
    let (mut cluster, clients) = servers(3).quick().serving().await;
    until_understood(&clients[0], 0).await?;
    cluster.kill(2);
    println!("\ndc2 is down\n{:>4} {}", "dc0", shown(at_home(&clients[0], 0).await?));
    Ok(())
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

/// Returns milliseconds of exclusive acquires of plain locks: p50, and p99, which is nearly the longest.
async fn times(client: &Client, names: impl Fn(usize) -> Vec<String>) -> Result<[f64; 2], AnyError> {
    let locks = |i| Ok(names(i).iter().map(|name| LockName::try_from(&**name)).collect::<Result<_, _>>()?);
    times_of(client, locks).await
}

/// The same of any locks.
async fn times_of(
    client: &Client,
    locks: impl Fn(usize) -> Result<Vec<LockName>, AnyError>,
) -> Result<[f64; 2], AnyError> {
    let mut times: Vec<Duration> = Vec::new();
    for i in 0..SAMPLES {
        let locks = locks(i)?;
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
