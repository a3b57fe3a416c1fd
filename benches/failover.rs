//! The time until the next client has a lock after its holder failed: real servers, real signals, on
//! loopback.
//!
//! | failure | measured from | baseline |
//! |---|---|---|
//! | a client process with release on disconnect | it is killed | a hand-over without any failure |
//! | a client falls silent | it is stopped | its time to live |
//! | a server | it is killed; it is restarted at once | - |
//! | the links of a datacenter | they are whole again | - |
#![allow(clippy::disallowed_methods, reason = "benches are edges")]

mod rounds;

#[path = "../tests/fixture/mod.rs"]
mod fixture;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fixture::{Cluster, Output, Running, lock, servers, within};
use geolock::client::{AcquireRequest, Client, ClientConfig, LockGuard, OnDisconnect};
use rounds::{AnyError, median};
use rustix::process::Signal;
use tokio::task::JoinHandle;

const ROUNDS: usize = 9;
/// The TTL of the client that falls silent.
const TTL: Duration = Duration::from_secs(1);
/// The lock leaves as soon as possible: the hold policy is not to be measured.
const HOLD: &str = "[[hold]]\nprefix = \"hot\"\nmin_keep = \"0 s\"\n";
/// Environment variables of a holder: the address of its server; its certificates; the end of its lease.
const HOLDER: [&str; 3] = ["HOLDER_SERVER", "HOLDER_TLS", "HOLDER_KEEPS"];

fn main() -> Result<(), AnyError> {
    let runtime = tokio::runtime::Runtime::new()?;
    if std::env::var_os(HOLDER[0]).is_some() {
        return runtime.block_on(hold());
    }
    println!("until the next one has the lock, in ms: median of {ROUNDS} rounds (least, most)");
    runtime.block_on(async {
        let (cluster, clients) = servers(3).with(HOLD).serving().await;
        for (dc, place) in [(0, "there"), (1, "in another datacenter")] {
            show(&format!("released, the next one {place}"), released(&clients, dc).await);
            show(&format!("client killed, the next one {place}"), killed(&cluster, &clients, dc).await);
            show(&format!("client silent ({TTL:?}), {place}"), silent(&cluster, &clients, dc).await);
        }
        drop(cluster);
        show("server killed and restarted", restarted().await);
        show("datacenter cut off and healed", healed().await);
        Ok(())
    })
}

fn show(what: &str, times: Vec<Duration>) {
    let ms: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1_000.0).collect();
    let (least, most) = (ms.iter().copied().fold(f64::MAX, f64::min), ms.iter().copied().fold(0.0, f64::max));
    println!("{what:<45} {:>9.1}  ({least:.1}, {most:.1})", median(ms));
}

/// The process of a client that holds the lock until it is killed.
async fn hold() -> Result<(), AnyError> {
    let [server, tls, keeps] = HOLDER.map(|name| std::env::var(name).unwrap_or_default());
    let tls = geolock::client::ClientTls::from_dir(tls)?;
    let on_disconnect = if keeps.is_empty() { OnDisconnect::Release } else { OnDisconnect::Keep };
    let config = ClientConfig { ttl: Some(TTL), on_disconnect, ..ClientConfig::new([server], tls) };
    let client = Client::connect(config).await?;
    let guard = client.acquire(AcquireRequest::exclusive(lock("hot"))).await?;
    println!("held");
    guard.lost().await;
    Ok(())
}

fn holder(cluster: &Cluster, keeps: bool) -> Running {
    let mut command = Command::new(std::env::current_exe().expect("this is a program"));
    command.env(HOLDER[0], cluster.endpoint(0)).env(HOLDER[1], cluster.tls()).stdin(Stdio::null());
    if keeps {
        command.env(HOLDER[2], "yes");
    }
    let mut holder = Running::start(&mut command, Output::Stdout);
    holder.line("held");
    holder
}

/// Waits for the lock in a task. The task returns the time of the grant.
async fn next(clients: &[Client], dc: usize) -> JoinHandle<Instant> {
    let client = clients[dc].clone();
    let next = tokio::spawn(async move {
        let guard = acquire(&client).await;
        let at = Instant::now();
        guard.release().await.expect("it was held");
        at
    });
    let waits = async {
        while clients[0].describe_lock(&lock("hot")).await.expect("it serves").waiters.is_empty() {}
    };
    within(waits).await;
    next
}

async fn acquire(client: &Client) -> LockGuard {
    within(client.acquire(AcquireRequest::exclusive(lock("hot")))).await.expect("it is granted")
}

async fn released(clients: &[Client], dc: usize) -> Vec<Duration> {
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let guard = acquire(&clients[0]).await;
        let next = next(clients, dc).await;
        let start = Instant::now();
        guard.release().await.expect("it was held");
        times.push(next.await.expect("it is granted") - start);
    }
    times
}

async fn killed(cluster: &Cluster, clients: &[Client], dc: usize) -> Vec<Duration> {
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let holder = holder(cluster, false);
        let next = next(clients, dc).await;
        let start = Instant::now();
        holder.signal(Signal::KILL);
        times.push(next.await.expect("it is granted") - start);
    }
    times
}

async fn silent(cluster: &Cluster, clients: &[Client], dc: usize) -> Vec<Duration> {
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let holder = holder(cluster, true);
        let next = next(clients, dc).await;
        let start = Instant::now();
        holder.signal(Signal::STOP);
        times.push(next.await.expect("it is granted") - start);
    }
    times
}

/// Another client had the lock and is still connected.
async fn restarted() -> Vec<Duration> {
    let (mut cluster, clients) = servers(3).with(HOLD).serving().await;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        acquire(&clients[0]).await.release().await.expect("it was held");
        let start = Instant::now();
        cluster.kill(0);
        cluster.restart(0);
        let guard = acquire(&clients[0]).await;
        times.push(start.elapsed());
        guard.release().await.expect("it was held");
    }
    times
}

async fn healed() -> Vec<Duration> {
    let (mut wan, clients) = servers(3).with(HOLD).relayed().serving().await;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        wan.await_whole();
        acquire(&clients[2]).await.release().await.expect("it was held");
        wan.cut(2, 0);
        wan.break_link(2, 1);
        wan.await_link(2, 0, false);
        wan.await_link(0, 2, false);
        let client = clients[0].clone();
        let next = tokio::spawn(async move {
            let guard = acquire(&client).await;
            (Instant::now(), guard.release().await.is_ok())
        });
        let parked = async {
            loop {
                let described = clients[0].describe_lock(&lock("hot")).await.expect("it serves");
                if described.waiters.iter().any(|waiter| waiter.parked) {
                    return;
                }
            }
        };
        within(parked).await;
        let start = Instant::now();
        wan.heal_all();
        times.push(next.await.expect("it is granted").0 - start);
    }
    times
}
