//! The cost of data for a program through a real server: TLS on loopback, a journal with fsync, one `Client`;
//! from 1, 16, 64 and 256 tasks, each on its own key and lock, which this datacenter owns.
//!
//! | work | calls |
//! |---|---|
//! | pair | acquire and release a lock: the baseline, needs no disk |
//! | update | one-shot update without a lock: answered when it is on disk |
//! | locked | lock, read, add, commit: one call |
//! | interactive | the same step by step: begin with the lock, read, update, commit |
//!
//! `cargo bench --bench commits`. Beside it the disk alone, in the same run: one write of 200 bytes and one
//! `fdatasync`. Rounds alternate, so that a busy machine affects all alike; medians count.
//!
//! `cargo bench --bench commits -- in-flight` shows updates with 50 and with 5 000 in flight, and their
//! ratio: the client reports with each one through which key it knows all outcomes, and must not walk those
//! that it does not know.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a bench reads clocks")]

#[path = "../tests/fixture/mod.rs"]
mod fixture;
mod rounds;

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use fixture::in_process::{AnyError, Datacenter};
use geolock::client::{AcquireRequest, Batch, Client, TxnRequest, Update};
use geolock_api::keys::Key;
use geolock_api::names::LockName;
use rounds::{Round, median, median_of, round};

const ROUND: Duration = Duration::from_millis(500);
const ROUNDS: usize = 7;
const TASKS: [usize; 4] = [1, 16, 64, 256];
/// Updates in flight at once: few, and half of what the outcomes of a lease may be.
const IN_FLIGHT: [usize; 2] = [50, 5_000];
const WORKS: [(Work, &str); 4] = [
    (Work::Pair, "pair"),
    (Work::Update, "update"),
    (Work::Locked, "locked"),
    (Work::Interactive, "interactive"),
];

#[derive(Clone, Copy)]
enum Work {
    Pair,
    Update,
    Locked,
    Interactive,
}

fn main() -> Result<(), AnyError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(run())
}

async fn run() -> Result<(), AnyError> {
    let (datacenter, client) = Datacenter::with_client().await?;
    if std::env::args().any(|argument| argument == "in-flight") {
        in_flight(&client).await?;
        client.close().await?;
        datacenter.stop().await?;
        return Ok(());
    }
    let sync = median((0..ROUNDS).map(|_| bare_sync(datacenter.dir())).collect::<Result<_, _>>()?);
    println!("the disk by itself: {sync:.1} us a write and fdatasync");
    println!("medians of {ROUNDS} rounds of {ROUND:?}; ratio: how many times a pair's time");
    println!(
        "{:>6} {:>12} {:>10} {:>10} {:>10} {:>7}",
        "tasks", "work", "per second", "p50 us", "p99 us", "ratio"
    );
    for tasks in TASKS {
        let mut rounds: [Vec<Round>; WORKS.len()] = Default::default();
        for _ in 0..ROUNDS {
            for (rounds, (work, _)) in rounds.iter_mut().zip(WORKS) {
                let client = client.clone();
                rounds.push(round(tasks, ROUND, move |task| once(client.clone(), work, task)).await?);
            }
        }
        let of = |work: usize, figure| median_of(&rounds[work], figure);
        for (work, (_, name)) in WORKS.iter().enumerate() {
            println!(
                "{tasks:>6} {name:>12} {:>10.0} {:>10.1} {:>10.1} {:>7.2}",
                of(work, |r| r.per_second),
                of(work, |r| r.p50),
                of(work, |r| r.p99),
                of(0, |r| r.per_second) / of(work, |r| r.per_second),
            );
        }
    }
    client.close().await?;
    datacenter.stop().await?;
    Ok(())
}

/// Shows updates per second with few and with many in flight.
async fn in_flight(client: &Client) -> Result<(), AnyError> {
    println!("updates, medians of {ROUNDS} rounds of {ROUND:?}");
    println!("{:>9} {:>10} {:>10} {:>10}", "in flight", "per second", "p50 us", "p99 us");
    let mut rounds: [Vec<Round>; IN_FLIGHT.len()] = Default::default();
    for _ in 0..ROUNDS {
        for (rounds, tasks) in rounds.iter_mut().zip(IN_FLIGHT) {
            let client = client.clone();
            rounds.push(round(tasks, ROUND, move |task| once(client.clone(), Work::Update, task)).await?);
        }
    }
    for (rounds, tasks) in rounds.iter().zip(IN_FLIGHT) {
        let of = |figure| median_of(rounds, figure);
        let figures = (of(|r| r.per_second), of(|r| r.p50), of(|r| r.p99));
        println!("{tasks:>9} {:>10.0} {:>10.1} {:>10.1}", figures.0, figures.1, figures.2);
    }
    let [few, many] = rounds.map(|rounds| median_of(&rounds, |r| r.per_second));
    println!("ratio {:.2}", many / few);
    Ok(())
}

/// Does the work once, on a key and a lock that only this task uses.
async fn once(client: Client, work: Work, task: usize) -> Result<Duration, AnyError> {
    let lock = LockName::try_from(format!("accounts/{task}").as_str())?;
    let key = Key::new(b"accounts", task.to_string().as_bytes())?;
    let begun = Instant::now();
    match work {
        Work::Pair => client.acquire(AcquireRequest::exclusive(lock)).await?.release().await?,
        Work::Update => drop(client.update(&key, Update::counter(1)).await?),
        Work::Locked => {
            let batch = Batch::new().update(&key, Update::counter(1)).read(&key);
            client.transact(TxnRequest::exclusive(lock), batch).await?;
        }
        Work::Interactive => {
            let mut txn = client.begin(TxnRequest::exclusive(lock)).await?;
            txn.read(&key).await?.counter()?;
            txn.update(&key, Update::counter(1)).await?;
            txn.commit().await?;
        }
    }
    Ok(begun.elapsed())
}

/// Returns microseconds of a write and its sync, the median of a hundred.
fn bare_sync(dir: &std::path::Path) -> Result<f64, AnyError> {
    let path = dir.join("bare");
    let mut file = File::create(&path)?;
    let mut times = Vec::new();
    for _ in 0..100 {
        let start = Instant::now();
        file.write_all(&[7; 200])?;
        file.sync_data()?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    std::fs::remove_file(path)?;
    Ok(median(times))
}
