//! Edge. A load test: many clients in every datacenter; what they want and when; whether what they get is right; how long it
//! took, and what went between the datacenters for it.
//!
//! It sees the servers as any program does, through [`client`](crate::client). Every acquisition is checked against all
//! others: a figure of a lock service that is wrong is worth nothing.
//!
//! | file | job |
//! |---|---|
//! | `options.rs` | what to run |
//! | `workload.rs`, `keys.rs` | pure: what a client wants next |
//! | `pace.rs` | when it asks |
//! | `target.rs`, `geolock.rs` | whom it asks |
//! | `phase.rs` | all clients at work |
//! | `checker.rs` | whether what they got may be |
//! | `recorder.rs`, `servers.rs` | what is written down: by clients, by servers |
//! | `summary.rs`, `report/` | what it came to: figures, table, JSON, page |

mod checker;
mod geolock;
mod keys;
mod options;
mod pace;
mod phase;
mod recorder;
pub mod report;
mod servers;
mod summary;
mod target;
mod workload;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::task::JoinSet;

use checker::Checker;
use geolock::Geolock;
use keys::Choice;
pub use options::{OptionError, Options, UnknownWorkload, Workload};
use phase::{Counts, Stage};
pub use phase::{Progress, Stuck};
use recorder::Recorder;
use report::{DcReport, Made, Report, SystemReport, Test};
use servers::{Figures, figures};
use target::{Failure, Target as _};
use workload::{Ask, Locks};

use crate::client::{Client, ClientError};
use crate::names::Mode;
use crate::node::joined;

/// Locks that are brought home by one request.
const BROUGHT_AT_ONCE: u64 = 500;
/// Throughput over time has so many points.
const SLICES: u32 = 100;
/// A point of it stands for no less than this.
const LEAST_SLICE: Duration = Duration::from_millis(10);

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum LoadTestError {
    #[error(transparent)]
    Options(#[from] OptionError),
    #[error("there is no datacenter to test: name at least one")]
    NoDatacenter,
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("datacenter {dc} could not bring its locks home: {why}")]
    NotHome { dc: usize, why: String },
    #[error("what the transactions counted cannot be read: {0}")]
    NotCounted(String),
    #[error(transparent)]
    Stuck(#[from] Stuck),
}

/// What goes on, for whoever watches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Happening {
    BringsHome { locks: usize },
    WarmsUp,
    Measures,
    Goes(Progress),
}

/// Runs a load test with one connected client for each datacenter, in the order of the datacenters. `wan` says in words how
/// far apart they are; `seconds since the epoch` make the locks of this run its own.
pub async fn run(
    options: Options,
    clients: Vec<Client>,
    wan: &str,
    mut tell: impl FnMut(Happening),
) -> Result<Report, LoadTestError> {
    options.check()?;
    if clients.is_empty() {
        return Err(LoadTestError::NoDatacenter);
    }
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let options = Arc::new(options);
    let stage = Stage {
        locks: Arc::new(Locks::new(&options, clients.len(), &format!("load-test/{}", at.as_micros()))),
        choice: Arc::new(Choice::new(options.keys, options.zipf)),
        checker: Arc::new(Checker::new()),
        targets: clients.into_iter().map(|client| Arc::new(Geolock { client })).collect(),
        counts: Arc::new(Counts::default()),
        options,
    };
    bring_home(&stage, &mut tell).await?;
    tell(Happening::WarmsUp);
    let recorders = new_recorders(&stage);
    stage.run(stage.options.warm_up, &recorders, |progress| tell(Happening::Goes(*progress))).await?;
    tell(Happening::Measures);
    let (recorders, before) = (new_recorders(&stage), look(&stage).await?);
    let measured = stage.options.duration;
    let missed = stage.run(measured, &recorders, |progress| tell(Happening::Goes(*progress))).await?;
    let after = look(&stage).await?;
    check_counts(&stage).await?;
    let system = system(&stage, &recorders, &missed, (&before, &after));
    Ok(Report { made: made(at), test: test(&stage.options, wan), systems: vec![system] })
}

fn slice(options: &Options) -> Duration {
    (options.duration / SLICES).max(LEAST_SLICE)
}

fn new_recorders(stage: &Stage<Geolock>) -> Vec<Arc<Recorder>> {
    stage.targets.iter().map(|_| Arc::new(Recorder::new(slice(&stage.options)))).collect()
}

/// Every datacenter takes all its locks once, so that what is measured finds them at home.
async fn bring_home(stage: &Stage<Geolock>, tell: &mut impl FnMut(Happening)) -> Result<(), LoadTestError> {
    let mut tasks: JoinSet<Result<(), LoadTestError>> = JoinSet::new();
    let mut count = 0;
    for (dc, target) in stage.targets.iter().enumerate() {
        let home = stage.locks.of_home(&stage.options, dc);
        count += home.end - home.start;
        let (target, locks) = (Arc::clone(target), Arc::clone(&stage.locks));
        tasks.spawn(async move {
            let mut from = home.start;
            while from < home.end {
                let until = home.end.min(from + BROUGHT_AT_ONCE);
                let ask =
                    Ask { locks: (from..until).map(|key| (key, Mode::Exclusive)).collect(), is_txn: false };
                let taken = async { target.release(target.acquire(&ask, &locks).await?).await };
                taken.await.map_err(|why: Failure| LoadTestError::NotHome { dc, why: why.to_string() })?;
                from = until;
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

async fn look(stage: &Stage<Geolock>) -> Result<Vec<Figures>, LoadTestError> {
    let mut all = Vec::new();
    for target in &stage.targets {
        all.push(figures(&target.client).await?);
    }
    Ok(all)
}

/// The numbers that transactions wrote add up to the transactions: none was lost, none done twice.
async fn check_counts(stage: &Stage<Geolock>) -> Result<(), LoadTestError> {
    if stage.options.workload != Workload::Txn {
        return Ok(());
    }
    let not_counted = |why: Failure| LoadTestError::NotCounted(why.to_string());
    let mut counted = 0;
    for (dc, target) in stage.targets.iter().enumerate() {
        let home = stage.locks.of_home(&stage.options, dc);
        let names = &stage.locks.names()[home.start as usize..home.end as usize];
        counted += target.counted(names).await.map_err(not_counted)?;
    }
    let committed = stage.counts.committed.load(Ordering::Relaxed);
    let unknown = stage.counts.unknown.load(Ordering::Relaxed);
    if !(committed..=committed + unknown).contains(&counted) {
        let what =
            format!("{committed} transactions committed, {unknown} perhaps; the store counted {counted}");
        stage.checker.blame(what);
    }
    Ok(())
}

fn system(
    stage: &Stage<Geolock>,
    recorders: &[Arc<Recorder>],
    missed: &[u64],
    (before, after): (&[Figures], &[Figures]),
) -> SystemReport {
    let (options, recorded) =
        (&stage.options, recorders.iter().map(|one| one.recorded()).collect::<Vec<_>>());
    let slice = slice(options);
    let dcs = recorded.iter().enumerate().map(|(dc, one)| {
        let mut tally = summary::tally(std::slice::from_ref(one), missed[dc], options.duration);
        tally.local_percent = summary::local_percent(std::iter::once((&before[dc], &after[dc])));
        let slices = (options.duration.as_nanos() / slice.as_nanos()) as usize;
        let throughput = one.slices.iter().map(|count| *count as f64 / slice.as_secs_f64());
        DcReport {
            name: after[dc].name.clone(),
            tally,
            // The last one may be a torn one.
            throughput: throughput.chain(std::iter::repeat(0.0)).take(slices).collect(),
            resident_bytes: after[dc].resident_bytes,
        }
    });
    let dcs = dcs.collect();
    let mut total = summary::tally(&recorded, missed.iter().sum(), options.duration);
    total.local_percent = summary::local_percent(before.iter().zip(after));
    let spans: Vec<_> = recorded.iter().map(|one| one.spans.clone()).collect();
    let verdict = stage.checker.verdict();
    SystemReport {
        name: "geolock".into(),
        version: after[0].version.clone(),
        dcs,
        wan: (after.len() > 1).then(|| summary::wan(before, after, total.acquisitions, options.duration)),
        hot: (options.workload == Workload::Hot).then(|| summary::hot(&spans, options.duration)),
        total,
        violations: verdict.count,
        described: verdict.described,
    }
}

fn test(options: &Options, wan: &str) -> Test {
    Test {
        workload: options.workload.name().into(),
        about: options.workload.about().into(),
        clients_per_dc: options.clients,
        seconds: options.duration.as_secs_f64(),
        warm_up_seconds: options.warm_up.as_secs_f64(),
        keys: options.keys,
        zipf: options.zipf,
        batch: options.batch,
        hold_ms: options.hold.as_secs_f64() * 1_000.0,
        rate: options.rate,
        seed: options.seed,
        wan: wan.into(),
    }
}

fn made(at: Duration) -> Made {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let processor = model.map(|(_, name)| name.trim().to_owned()).unwrap_or_default();
    Made { version: env!("GEOLOCK_VERSION").into(), at: at.as_secs(), cores, processor }
}
