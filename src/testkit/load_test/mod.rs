//! Edge. A load test: many clients in every datacenter. It controls their requests, checks their grants, and
//! measures latencies and the traffic between datacenters.
//!
//! It uses the servers as any program does, through [`client`](geolock_client). Every acquisition is checked
//! against all others, because a figure of a lock service that violates exclusion is worthless.
//!
//! | file | job |
//! |---|---|
//! | `options.rs` | the test to run |
//! | `workload.rs`, `keys.rs` | pure: the next request of a client |
//! | `pace.rs` | the times of requests, the length of holds |
//! | `target.rs`, `geolock.rs`, `peers/` | the systems under test |
//! | `run.rs`, `phase.rs` | a system from the first lock to the last figure; one phase of all clients |
//! | `checker.rs` | checks of grants |
//! | `recorder.rs`, `servers.rs` | measurements: by clients, by servers |
//! | `summary.rs`, `report/` | results: figures, table, JSON, page |

mod checker;
mod geolock;
mod keys;
mod options;
mod pace;
#[cfg(feature = "peers")]
pub mod peers;
mod phase;
mod recorder;
pub mod report;
mod run;
mod servers;
mod summary;
mod target;
mod workload;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use geolock::Geolock;
pub use options::{OptionError, Options, UnknownWorkload, Workload};
use phase::Stage;
pub use phase::{Progress, Stuck};
use report::{Made, Report, SystemReport, Test, WanReport};
use servers::{Figures, figures};
use target::Failure;

use geolock_client::{Client, ClientError};

/// The reason why there is no report.
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
    #[cfg(feature = "peers")]
    #[error(transparent)]
    Peer(#[from] peers::PeerError),
}

/// The progress of a test, for an observer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Happening {
    BringsHome { locks: usize },
    WarmsUp,
    Measures,
    Goes(Progress),
}

/// Runs a load test over these connections of each datacenter, in the order of the datacenters; their number
/// is that of `options`. `wan` describes the distances.
pub async fn run(
    options: &Options,
    connections: &[Vec<Client>],
    wan: &str,
    mut tell: impl FnMut(Happening),
) -> Result<Report, LoadTestError> {
    options.check()?;
    if connections.is_empty() {
        return Err(LoadTestError::NoDatacenter);
    }
    let each = options.connections;
    assert!(connections.iter().all(|all| all.len() == each), "{each} connections of each datacenter");
    let first: Vec<Client> = connections.iter().map(|all| all[0].clone()).collect();
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // The clients of a datacenter share its connections.
    let targets = connections.iter().map(|all| {
        let target = |client: &Client| Arc::new(Geolock { client: client.clone() });
        let targets: Vec<_> = all.iter().map(target).collect();
        (0..options.clients).map(|n| Arc::clone(&targets[n % each])).collect()
    });
    let stage = Stage::new(&Arc::new(options.clone()), targets.collect(), &prefix(at));
    stage.bring_home(&mut tell).await?;
    stage.warm_up(&mut tell).await?;
    let before = look(&first).await?;
    let measured = stage.measure(&mut tell).await?;
    let after = look(&first).await?;
    check_counts(&stage).await?;
    let names: Vec<String> = after.iter().map(|figures| figures.name.clone()).collect();
    let mut system = stage.report(("geolock", after[0].version.clone()), &names, &measured);
    system.add(&before, &after, options.duration);
    Ok(Report { made: made(at), test: test(options, wan), systems: vec![system] })
}

/// Returns a prefix for the locks of this run alone.
fn prefix(at: Duration) -> String {
    format!("load-test/{}", at.as_micros())
}

async fn look(clients: &[Client]) -> Result<Vec<Figures>, LoadTestError> {
    let mut all = Vec::new();
    for client in clients {
        all.push(figures(client).await?);
    }
    Ok(all)
}

/// Checks that the numbers written by transactions add up to the number of transactions: none was lost, none
/// executed twice.
async fn check_counts(stage: &Stage<Geolock>) -> Result<(), LoadTestError> {
    if stage.options.workload != Workload::Txn {
        return Ok(());
    }
    let not_counted = |why: Failure| LoadTestError::NotCounted(why.to_string());
    let mut counted = 0;
    for (dc, clients) in stage.targets.iter().enumerate() {
        let home = stage.locks.of_home(&stage.options, dc);
        let names = &stage.locks.names()[home.start as usize..home.end as usize];
        counted += clients[0].counted(names).await.map_err(not_counted)?;
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

impl SystemReport {
    /// Adds the figures of the servers before and after.
    fn add(&mut self, before: &[Figures], after: &[Figures], measured: Duration) {
        for ((dc, before), after) in self.dcs.iter_mut().zip(before).zip(after) {
            dc.tally.local_percent = summary::local_percent(std::iter::once((before, after)));
            dc.resident_bytes = after.resident_bytes;
        }
        self.total.local_percent = summary::local_percent(before.iter().zip(after));
        let links = (after.len() > 1).then(|| summary::wan(before, after, self.total.acquisitions, measured));
        self.round_trip_ms = links.as_ref().and_then(WanReport::round_trip_ms);
        self.wan = links;
    }
}

fn test(options: &Options, wan: &str) -> Test {
    Test {
        workload: options.workload.name().into(),
        about: options.workload.about().into(),
        clients_per_dc: options.clients,
        connections_per_dc: options.connections,
        seconds: options.duration.as_secs_f64(),
        warm_up_seconds: options.warm_up.as_secs_f64(),
        keys: options.keys,
        zipf: options.zipf,
        batch: options.batch,
        foreign_percent: options.foreign_percent,
        writes_percent: options.writes_percent,
        active_seconds: options.active_for.as_secs_f64(),
        hold_ms: options.hold.as_secs_f64() * 1_000.0,
        rate: options.rate,
        seed: options.seed,
        wan: wan.into(),
        command: String::new(),
    }
}

fn made(at: Duration) -> Made {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let processor = model.map(|(_, name)| name.trim().to_owned()).unwrap_or_default();
    Made { version: env!("GEOLOCK_VERSION").into(), at: at.as_secs(), cores, processor }
}
