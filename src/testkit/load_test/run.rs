//! One system under test, from the first lock to the last figure.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::checker::Checker;
use super::keys::Choice;
use super::options::{Options, Workload};
use super::pace::Missed;
use super::phase::{Counts, Stage, Stuck};
use super::recorder::{Recorded, Recorder};
use super::report::{DcReport, SystemReport};
use super::target::{Failure, Target};
use super::workload::{Ask, Locks};
use super::{Happening, LoadTestError, summary};
use crate::runtime::tasks::joined;
use geolock_api::names::Mode;

/// Locks per request when datacenters take their own locks before the test.
const BROUGHT_AT_ONCE: u64 = 500;
/// Longest time that a server may be behind meanwhile.
const BEHIND: Duration = Duration::from_secs(60);
/// Points of throughput over time.
const SLICES: u32 = 100;
/// Shortest time that a point stands for.
const LEAST_SLICE: Duration = Duration::from_millis(10);

/// The measurements, by datacenter.
pub(super) struct Measured {
    recorded: Vec<Recorded>,
    missed: Vec<Missed>,
}

impl<T: Target> Stage<T> {
    /// `targets` by datacenter and client; `prefix` is that of the names of all locks.
    pub(super) fn new(options: &Arc<Options>, targets: Vec<Vec<Arc<T>>>, prefix: &str) -> Stage<T> {
        Stage {
            options: Arc::clone(options),
            locks: Arc::new(Locks::new(options, targets.len(), prefix)),
            choice: Arc::new(Choice::new(options.keys, options.zipf)),
            checker: Arc::new(Checker::new()),
            counts: Arc::new(Counts::default()),
            targets,
        }
    }

    /// Lets every datacenter acquire all its locks once, so that the measurement finds their parts there.
    pub(super) async fn bring_home(&self, tell: &mut impl FnMut(Happening)) -> Result<(), LoadTestError> {
        let mut tasks: JoinSet<Result<(), LoadTestError>> = JoinSet::new();
        let mut count = 0;
        for (dc, clients) in self.targets.iter().enumerate() {
            let mut home = self.locks.of_home(&self.options, dc);
            count += home.end - home.start;
            let (target, locks) = (Arc::clone(&clients[0]), Arc::clone(&self.locks));
            tasks.spawn(async move {
                let begun = Instant::now();
                while !home.is_empty() {
                    let until = home.end.min(home.start + BROUGHT_AT_ONCE);
                    let taken = (home.start..until).map(|key| (key, Mode::Exclusive)).collect();
                    let ask = Ask { locks: taken, is_txn: false };
                    let taken = async { target.release(target.acquire(&ask, &locks).await?).await };
                    match taken.await {
                        Ok(()) => home.start = until,
                        // A server that has just started may be behind, and says when to ask again.
                        Err(Failure::Refused(again)) if begun.elapsed() < BEHIND => sleep(again).await,
                        Err(why) => return Err(LoadTestError::NotHome { dc, why: why.to_string() }),
                    }
                }
                Ok(())
            });
        }
        if count > 0 {
            tell(Happening::BringsHome { locks: count as usize });
        }
        while let Some(done) = tasks.join_next().await {
            joined(done)?;
        }
        Ok(())
    }

    /// Runs the load of the measurement without recording it.
    pub(super) async fn warm_up(&self, tell: &mut impl FnMut(Happening)) -> Result<(), Stuck> {
        tell(Happening::WarmsUp);
        let recorders = self.recorders();
        self.run(1, self.options.warm_up, &recorders, |progress| tell(Happening::Goes(*progress))).await?;
        Ok(())
    }

    pub(super) async fn measure(&self, tell: &mut impl FnMut(Happening)) -> Result<Measured, Stuck> {
        tell(Happening::Measures);
        let recorders = self.recorders();
        let lasts = self.options.duration;
        let missed = self.run(0, lasts, &recorders, |progress| tell(Happening::Goes(*progress))).await?;
        Ok(Measured { recorded: recorders.iter().map(|one| one.recorded()).collect(), missed })
    }

    fn recorders(&self) -> Vec<Arc<Recorder>> {
        let slice = slice(&self.options);
        self.targets.iter().map(|_| Arc::new(Recorder::new(slice))).collect()
    }

    /// Returns the results, as clients saw them.
    pub(super) fn report(
        &self,
        (system, version): (&str, String),
        names: &[String],
        measured: &Measured,
    ) -> SystemReport {
        let (options, slice) = (&self.options, slice(&self.options));
        let slices = (options.duration.as_nanos() / slice.as_nanos()) as usize;
        let dcs = measured.recorded.iter().zip(&measured.missed).zip(names).map(|((one, missed), name)| {
            let throughput = one.slices.iter().map(|count| *count as f64 / slice.as_secs_f64());
            DcReport {
                name: name.clone(),
                tally: summary::tally(std::slice::from_ref(one), &[*missed], options),
                // The last slice may be incomplete.
                throughput: throughput.chain(std::iter::repeat(0.0)).take(slices).collect(),
                resident_bytes: 0,
            }
        });
        let spans: Vec<_> = measured.recorded.iter().map(|one| one.spans.clone()).collect();
        // The time up to which all spans were kept.
        let known = measured.recorded.iter().map(|one| one.spans_until).min().unwrap_or(options.duration);
        let known = known.min(options.duration);
        let verdict = self.checker.verdict();
        SystemReport {
            name: system.into(),
            version,
            dcs: dcs.collect(),
            total: summary::tally(&measured.recorded, &measured.missed, options),
            wan: None,
            round_trip_ms: None,
            hot: (options.workload == Workload::Hot).then(|| summary::hot(&spans, known)),
            violations: verdict.count,
            described: verdict.described,
        }
    }
}

fn slice(options: &Options) -> Duration {
    (options.duration / SLICES).max(LEAST_SLICE)
}
