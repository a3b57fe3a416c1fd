//! Rounds of a load, and medians of their figures.
#![allow(dead_code, reason = "each bench uses a part of it")]

use std::error::Error;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::task::JoinSet;

pub type AnyError = Box<dyn Error + Send + Sync>;

/// Figures of a round: operations per second, and microseconds of one.
pub struct Round {
    pub per_second: f64,
    pub p50: f64,
    pub p99: f64,
}

impl Round {
    /// Creates the figures of `done` operations in that time; latencies are in nanoseconds.
    pub fn new(done: u64, time: Duration, latencies: &Histogram<u64>) -> Round {
        let micros = |quantile| latencies.value_at_quantile(quantile) as f64 / 1000.0;
        Round { per_second: done as f64 / time.as_secs_f64(), p50: micros(0.5), p99: micros(0.99) }
    }
}

/// Keeps `tasks` tasks at work for that time. `once` does the work of a task once, and returns its duration.
pub async fn round<F>(
    tasks: usize,
    time: Duration,
    once: impl Fn(usize) -> F + Clone + Send + 'static,
) -> Result<Round, AnyError>
where
    F: Future<Output = Result<Duration, AnyError>> + Send,
{
    let start = Instant::now();
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let once = once.clone();
        running.spawn(async move {
            let mut latencies = Histogram::<u64>::new(3)?;
            while start.elapsed() < time {
                latencies.record(once(task).await?.as_nanos() as u64)?;
            }
            Ok::<_, AnyError>(latencies)
        });
    }
    let mut all = Histogram::<u64>::new(3)?;
    while let Some(latencies) = running.join_next().await {
        all.add(latencies??)?;
    }
    Ok(Round::new(all.len(), start.elapsed(), &all))
}

/// Returns the median of one figure over rounds.
pub fn median_of(rounds: &[Round], figure: fn(&Round) -> f64) -> f64 {
    median(rounds.iter().map(figure).collect())
}

/// Returns the middle one of an odd number of values.
pub fn median<T: PartialOrd + Copy>(mut values: Vec<T>) -> T {
    values.sort_by(|a, b| a.partial_cmp(b).expect("what is measured is a number"));
    values[values.len() / 2]
}
