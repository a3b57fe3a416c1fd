//! The cost of members: the state machine with 1, 3, 7 and 16 of them; its memory; a datacenter that joins
//! when 1 000 000 locks have moved and there are 100 000 keys.
//!
//! | section | baseline in the same run |
//! |---|---|
//! | `pairs` | one member alone, in alternating rounds |
//! | `memory` | one member alone |
//! | `join` | the same use of locks before anybody joins |
//!
//! `cargo bench --bench members [-- pairs memory join]` measures those sections only.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a bench reads clocks")]

mod replicas;
mod rounds;

#[path = "../tests/fixture/mod.rs"]
mod fixture;

use std::alloc::System;
use std::env;
use std::time::{Duration, Instant};

use fixture::history::serving_at;
use fixture::said::run;
use fixture::{Cluster, Output, Running, key, lock, until};
use geolock::client::{AcquireRequest, Batch, Client, TxnRequest, Update};
use geolock::replica::LocalConfig;
use geolock_api::names::{LockName, Mode};
use replicas::Replicas;
use rounds::AnyError;
use serde_json::Value;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const MEMBERS: [u8; 4] = [1, 3, 7, 16];
const WORKING_SET: usize = 1_000;
const PAIRS: usize = 100_000;
const ROUNDS: usize = 7;
const MOVED: usize = 1_000_000;
/// Locks of one request: the most that are allowed.
const PER_REQUEST: usize = 10_000;
const KEYS: usize = 100_000;
/// Changes of one transaction.
const PER_TXN: usize = 5_000;
const AGREED: &str = "[cluster]\njoin_policy = \"auto\"\n";

fn main() -> Result<(), AnyError> {
    let asked: Vec<String> = env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let is_asked = |section: &str| asked.is_empty() || asked.iter().any(|name| name == section);
    if is_asked("pairs") {
        pairs();
    }
    if is_asked("memory") {
        memory();
    }
    let runtime = tokio::runtime::Runtime::new()?;
    if is_asked("join") {
        runtime.block_on(join())?;
    }
    Ok(())
}

/// Linked datacenters; the first one has all parts of the working set.
fn gathered(members: u8) -> Replicas {
    let mut all = Replicas::new(members, &LocalConfig::default());
    for (a, b) in (0..usize::from(members)).flat_map(|a| (0..a).map(move |b| (b, a))) {
        all.link(a, b);
    }
    all.open_lease();
    for number in 0..WORKING_SET {
        all.pair(&name(number));
    }
    all
}

fn name(number: usize) -> LockName {
    LockName::try_from(format!("tenant/{number}/order").as_str()).expect("a valid name")
}

fn pairs() {
    let mut beds: Vec<(u8, Replicas, Vec<f64>)> =
        MEMBERS.into_iter().map(|members| (members, gathered(members), Vec::new())).collect();
    let names: Vec<LockName> = (0..WORKING_SET).map(name).collect();
    for _ in 0..ROUNDS {
        for (_, all, figures) in &mut beds {
            let start = Instant::now();
            for name in names.iter().cycle().take(PAIRS) {
                all.pair(name);
            }
            figures.push(PAIRS as f64 / start.elapsed().as_secs_f64());
        }
    }
    println!("pairs of acquire and release of locks that are here; fastest of {ROUNDS} rounds");
    println!("{:>8} {:>12} {:>10}", "members", "pairs/s", "to alone");
    let best = |figures: &[f64]| figures.iter().copied().fold(0.0, f64::max);
    let alone = best(&beds[0].2);
    for (members, _, figures) in &beds {
        println!("{members:>8} {:>12.0} {:>10.3}", best(figures), best(figures) / alone);
    }
}

fn allocated() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

fn memory() {
    println!("bytes of one datacenter's core, idle, beside others");
    println!("{:>8} {:>12} {:>16}", "members", "bytes", "for each further");
    let mut alone = 0.0;
    for members in MEMBERS {
        let before = allocated();
        let mut all = Replicas::new(members, &LocalConfig::default());
        for (a, b) in (0..usize::from(members)).flat_map(|a| (0..a).map(move |b| (b, a))) {
            all.link(a, b);
        }
        let each = (allocated() - before) as f64 / f64::from(members);
        if members == 1 {
            alone = each;
        }
        let further = if members > 1 { (each - alone) / f64::from(members - 1) } else { 0.0 };
        println!("{members:>8} {each:>12.0} {further:>16.0}");
    }
}

/// The times of grants of locks that are there, in microseconds, while `until` runs.
async fn grants_while(client: &Client, until: impl Future<Output = ()>) -> Vec<u64> {
    let mut times = Vec::new();
    let mut until = std::pin::pin!(until);
    for number in (0..500).cycle() {
        let start = Instant::now();
        let guard = client.acquire(AcquireRequest::exclusive(lock(&format!("here {number}")))).await;
        times.push(start.elapsed().as_micros() as u64);
        guard.expect("it serves").release().await.expect("it was held");
        tokio::select! {
            () = &mut until => break,
            () = tokio::time::sleep(Duration::from_millis(1)) => {}
        }
    }
    times.sort_unstable();
    times
}

fn show(what: &str, times: &[u64]) {
    let at = |part: f64| times[((times.len() as f64 * part) as usize).min(times.len() - 1)] as f64 / 1_000.0;
    println!(
        "{what:<34} {:>7} grants, p50 {:.2} ms, p99 {:.2} ms, longest {:.2} ms",
        times.len(),
        at(0.5),
        at(0.99),
        at(1.0)
    );
}

fn start(cluster: &mut Cluster, dc: u8) {
    let running = Running::start(&mut cluster.server_command(dc), Output::Stderr);
    cluster.servers[usize::from(dc)] = Some(running);
    cluster.server(dc).line("listening");
}

fn settled(cluster: &Cluster, members: usize) -> bool {
    let said = run(&mut cluster.command(0, ["member", "list", "--json"]));
    let list: Value = serde_json::from_str(&said.stdout).unwrap_or_default();
    let is_settled = |row: &Value| row["phase"] == "member" && row["entered_epoch"] == list["epoch"];
    list["members"].as_array().is_some_and(|rows| rows.len() == members && rows.iter().all(is_settled))
}

async fn two(cluster: &mut Cluster) -> (Client, Client) {
    cluster.write_founders(0, 1, AGREED);
    cluster.write_joiner(1, cluster.quic_address(0), "city1", "");
    start(cluster, 0);
    let first = serving_at(cluster, 0).await;
    start(cluster, 1);
    until("both are settled", || settled(cluster, 2).then_some(()));
    (first, serving_at(cluster, 1).await)
}

async fn join() -> Result<(), AnyError> {
    let mut cluster = Cluster::prepare(3);
    let (first, second) = two(&mut cluster).await;
    cluster.write_joiner(2, cluster.quic_address(0), "city2", "");
    for from in (0..MOVED).step_by(PER_REQUEST) {
        let mut request = AcquireRequest::exclusive(lock(&format!("moved {from}")));
        for number in from + 1..from + PER_REQUEST {
            request = request.and(lock(&format!("moved {number}")), Mode::Exclusive);
        }
        second.acquire(request).await?.release().await?;
    }
    for from in (0..KEYS).step_by(PER_TXN) {
        let mut batch = Batch::new();
        for number in from..from + PER_TXN {
            batch = batch.update(&key(&format!("key {number}")), Update::register("a value of some bytes"));
        }
        first.transact(TxnRequest::new(), batch).await?;
    }
    show(
        "two members, nothing happens",
        &grants_while(&first, tokio::time::sleep(Duration::from_secs(5))).await,
    );
    let began = Instant::now();
    let joins = tokio::task::spawn_blocking(move || {
        start(&mut cluster, 2);
        until("three are settled", || settled(&cluster, 3).then_some(()));
        (cluster, began.elapsed())
    });
    let mut joins = joins;
    let mut joined = None;
    let times = grants_while(&first, async { joined = Some((&mut joins).await) }).await;
    show("while the third one joins", &times);
    let (_cluster, took) = joined.expect("it has joined")?;
    println!(
        "{MOVED} moved locks and {KEYS} keys: settled {:.1} s after its server was started",
        took.as_secs_f64()
    );
    Ok(())
}
