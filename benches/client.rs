//! The cost of a lock for a program: acquire + release pairs through one `Client`, over loopback with TLS,
//! from 1, 16 and 64 tasks; beside unary calls that only read the server's status, on one connection in the
//! same run: the cost of any answer at all.
//!
//! `cargo bench --bench client`. Client and server share the machine and the process. Rounds alternate, so
//! that a busy machine affects both alike; medians count.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a bench reads clocks")]

#[path = "../tests/fixture/mod.rs"]
mod fixture;
mod rounds;

use std::time::{Duration, Instant};

use fixture::in_process::{AnyError, Datacenter};
use geolock::client::{AcquireRequest, Client};
use geolock_api::names::LockName;
use rounds::{median_of, round};

const ROUND: Duration = Duration::from_millis(500);
const ROUNDS: usize = 7;
const TASKS: [usize; 3] = [1, 16, 64];

fn main() -> Result<(), AnyError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(run())
}

async fn run() -> Result<(), AnyError> {
    let (datacenter, client) = Datacenter::with_client().await?;
    println!("pairs of acquire and release, medians of {ROUNDS} rounds of {ROUND:?}");
    println!(
        "{:>6} {:>12} {:>10} {:>10} {:>14} {:>10}",
        "tasks", "pairs/s", "p50 us", "p99 us", "status calls/s", "p50 us"
    );
    let work = |work| {
        let client = client.clone();
        move |task| once(client.clone(), work, task)
    };
    for tasks in TASKS {
        let (mut pairs, mut calls) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            pairs.push(round(tasks, ROUND, work(Work::Pairs)).await?);
            calls.push(round(tasks, ROUND, work(Work::StatusCalls)).await?);
        }
        println!(
            "{tasks:>6} {:>12.0} {:>10.1} {:>10.1} {:>14.0} {:>10.1}",
            median_of(&pairs, |r| r.per_second),
            median_of(&pairs, |r| r.p50),
            median_of(&pairs, |r| r.p99),
            median_of(&calls, |r| r.per_second),
            median_of(&calls, |r| r.p50),
        );
    }
    client.close().await?;
    datacenter.stop().await?;
    Ok(())
}

#[derive(Clone, Copy)]
enum Work {
    Pairs,
    StatusCalls,
}

/// Does the work once, on a lock that only this task uses. Measures an acquire, or a call.
async fn once(client: Client, work: Work, task: usize) -> Result<Duration, AnyError> {
    let name = LockName::try_from(format!("accounts/{task}").as_str())?;
    let asked = Instant::now();
    match work {
        Work::Pairs => {
            let guard = client.acquire(AcquireRequest::exclusive(name)).await?;
            let took = asked.elapsed();
            guard.release().await?;
            Ok(took)
        }
        Work::StatusCalls => {
            client.status().await?;
            Ok(asked.elapsed())
        }
    }
}
