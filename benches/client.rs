//! What a lock costs a program: acquire + release pairs through one `Client`, over loopback gRPC with TLS, from 1,
//! 16 and 64 tasks; beside unary calls that only ask for the server's status, on one connection in the same run:
//! what a program would pay for any answer at all.
//!
//! `cargo bench --bench client`. Client and server share the machine and the process. Rounds alternate, so that a
//! busy machine hits both alike; medians count.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a bench reads clocks")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use geolock::client::{AcquireRequest, Client};
use geolock::names::LockName;
use hdrhistogram::Histogram;
use support::AnyError;
use tokio::task::JoinSet;

const ROUND: Duration = Duration::from_millis(500);
const ROUNDS: usize = 7;
const TASKS: [usize; 3] = [1, 16, 64];

fn main() -> Result<(), AnyError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(run())
}

async fn run() -> Result<(), AnyError> {
    let (_dir, datacenter) = support::start().await?;
    let client = support::connect(&datacenter).await?;
    println!("pairs of acquire and release, medians of {ROUNDS} rounds of {ROUND:?}");
    println!(
        "{:>6} {:>12} {:>10} {:>10} {:>14} {:>10}",
        "tasks", "pairs/s", "p50 us", "p99 us", "status calls/s", "p50 us"
    );
    for tasks in TASKS {
        let (mut pairs, mut calls) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            pairs.push(round(&client, tasks, Work::Pairs).await?);
            calls.push(round(&client, tasks, Work::StatusCalls).await?);
        }
        let of = |rounds: &[Round], figure: fn(&Round) -> f64| median(rounds.iter().map(figure).collect());
        println!(
            "{tasks:>6} {:>12.0} {:>10.1} {:>10.1} {:>14.0} {:>10.1}",
            of(&pairs, |r| r.per_second),
            of(&pairs, |r| r.p50),
            of(&pairs, |r| r.p99),
            of(&calls, |r| r.per_second),
            of(&calls, |r| r.p50),
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

/// Figures of a round: how many in a second, and microseconds of an acquire, or a call.
struct Round {
    per_second: f64,
    p50: f64,
    p99: f64,
}

/// Keeps `tasks` tasks at work, each on a lock of its own.
async fn round(client: &Client, tasks: usize, work: Work) -> Result<Round, AnyError> {
    let start = Instant::now();
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let client = client.clone();
        let name = LockName::try_from(format!("accounts/{task}").as_str())?;
        running.spawn(async move {
            let mut latencies = Histogram::<u64>::new(3)?;
            while start.elapsed() < ROUND {
                let asked = Instant::now();
                match work {
                    Work::Pairs => {
                        let guard = client.acquire(AcquireRequest::exclusive(name.clone())).await?;
                        latencies.record(asked.elapsed().as_nanos() as u64)?;
                        guard.release().await?;
                    }
                    Work::StatusCalls => {
                        client.status().await?;
                        latencies.record(asked.elapsed().as_nanos() as u64)?;
                    }
                }
            }
            Ok::<_, AnyError>(latencies)
        });
    }
    let mut latencies = Histogram::<u64>::new(3)?;
    while let Some(done) = running.join_next().await {
        latencies.add(done??)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let micros = |quantile| latencies.value_at_quantile(quantile) as f64 / 1000.0;
    Ok(Round { per_second: latencies.len() as f64 / seconds, p50: micros(0.5), p99: micros(0.99) })
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
