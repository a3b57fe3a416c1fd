//! `geolock bench`: a load test against a playground of its own, or against running servers.

mod playground;
mod policies;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::connect::Places;
use super::dev::{Shape, StartArgs};
use super::failure::{Code, Failure, OrFail as _};
use super::print::{print, tell};
use super::stopping::StopSignals;
use crate::base::time::brief;
use crate::testkit::load_test::report::{self, Report};
use crate::testkit::load_test::{self, Happening, LoadTestError, Options, Workload};
use geolock_client::{Client, Transport};
use playground::Playground;

/// Headings of options.
const ONE_WORKLOAD: &str = "One workload";
const REPORT: &str = "Report";
const PLAYGROUND: &str = "Playground of its own";

/// Measure the throughput and latency of locks, here or on your own servers; every acquisition is checked.
///
/// Without --connect it starts a playground of its own as `geolock dev` does, in a folder of its own, and
/// removes it afterwards. Workloads: home (own locks in every datacenter), hot (one lock wanted in all),
/// mixed (some acquisitions want a lock of another datacenter), batch (many locks in a request), readers
/// (all share all locks, one datacenter also writes), follow-the-sun (the same locks for all, one datacenter
/// after the other), txn (read, change and commit under a lock), first (locks that were never used before).
#[derive(clap::Args, Clone, Debug)]
pub struct BenchArgs {
    /// The workload: which clients want which locks
    #[arg(long, value_name = "NAME", default_value = "home", value_parser = workload())]
    workload: Workload,
    /// Clients in each datacenter
    #[arg(long, value_name = "N", default_value_t = 16)]
    clients: usize,
    /// Connections that the clients of a datacenter share
    #[arg(long, value_name = "N", default_value_t = 1)]
    connections: usize,
    /// Duration of the measurement
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    seconds: f64,
    /// Duration of the warm-up before it
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    warm_up: f64,
    /// Locks of each datacenter, or of all together where they share them
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    keys: usize,
    /// Skew of the choice of locks (Zipf exponent): 0 for a uniform one, 0.99 as in YCSB
    #[arg(long, value_name = "S", default_value_t = 0.0)]
    zipf: f64,
    /// Locks in one request [default: 1; of the workload batch: 10]
    #[arg(long, value_name = "N")]
    batch: Option<usize>,
    /// For the workload mixed: percentage of acquisitions that want a lock of another datacenter
    #[arg(long, value_name = "PERCENT", default_value_t = 5, help_heading = ONE_WORKLOAD)]
    foreign: u8,
    /// For the workload readers: percentage of acquisitions of the first datacenter that are exclusive
    #[arg(long, value_name = "PERCENT", default_value_t = 1, help_heading = ONE_WORKLOAD)]
    writes: u8,
    /// Time for which locks are held, in milliseconds; with more than 256 clients in all, up to 2 ms longer
    #[arg(long, value_name = "MS", default_value_t = 0)]
    held: u64,
    /// Protocol of the calls
    #[arg(long, value_enum, default_value_t = Over::Native)]
    transport: Over,
    /// Acquisitions a second in each datacenter, due even if earlier ones are not done: latencies count from
    /// the due time
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// For the workload follow-the-sun: time for which each datacenter is active
    #[arg(long, value_name = "S", default_value_t = 2.0, help_heading = ONE_WORKLOAD)]
    active: f64,
    /// The same seed wants the same locks in the same order
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Also write the report as JSON
    #[arg(long, value_name = "FILE", help_heading = REPORT)]
    json: Option<PathBuf>,
    /// Also write the report as a page for browsers
    #[arg(long, value_name = "FILE", help_heading = REPORT)]
    html: Option<PathBuf>,
    /// Hold policies to compare, each in a playground of its own: fair, throughput, latency, fixed,
    /// adaptive:TURN:MAX_KEEP or MIN_KEEP:MAX_KEEP:REQUEST_DELAY; with the workload hot between two runs of a
    /// single datacenter alone
    #[arg(long, value_name = "POLICY,..", value_delimiter = ',', value_parser = policies::parser(), hide_possible_values = true, conflicts_with_all = ["connect", "hold"], help_heading = PLAYGROUND)]
    policies: Vec<policies::Policy>,
    /// Another running system to compare with, under the same load: a server for each datacenter
    #[cfg(feature = "peers")]
    #[arg(long, value_name = "etcd=HOST:PORT,..", conflicts_with_all = ["connections", "policies"])]
    peer: Option<crate::testkit::load_test::peers::Peer>,
    #[command(flatten)]
    places: Places,
    #[command(flatten, next_help_heading = PLAYGROUND)]
    shape: Shape,
    /// Parent of the playground's own folder: on the disk to be measured [default: beside that of `geolock
    /// dev`]
    #[arg(long, value_name = "DIR", conflicts_with = "connect", help_heading = PLAYGROUND)]
    data: Option<PathBuf>,
}

/// [`Transport`] as an option.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Over {
    /// The native protocol of the Rust client
    Native,
    /// gRPC, as programs in other languages use it
    Grpc,
}

impl From<Over> for Transport {
    fn from(over: Over) -> Transport {
        match over {
            Over::Native => Transport::Native,
            Over::Grpc => Transport::Grpc,
        }
    }
}

/// Runs the load test and reports. A violation of a guarantee of locks is a failure.
pub async fn run(args: BenchArgs) -> Result<(), Failure> {
    let options = args.options().or_fail(Code::Usage)?;
    options.check().or_fail(Code::Usage)?;
    [&args.json, &args.html]
        .into_iter()
        .flatten()
        .try_for_each(|file| writable(file))
        .or_fail(Code::Usage)?;
    let mut signals = StopSignals::listen()?;
    let mut report = tokio::select! {
        report = measured(&args, &options) => report?,
        code = signals.next() => {
            // Its playground ends with this process.
            tell("stopped before its time: there is no report");
            return Err(Failure::silent(code));
        }
    };
    report.test.command = command(std::env::args());
    print(report::table(&report).trim_end())?;
    write(args.json.as_deref(), || report.json())?;
    write(args.html.as_deref(), || report::page(&report))?;
    match report.is_right() {
        true => Ok(()),
        false => Err(Failure::new(
            Code::Failed,
            anyhow!("no lock was acquired, or a guarantee was violated: see above"),
        )),
    }
}

/// Runs the load test at the place that the arguments select.
async fn measured(args: &BenchArgs, options: &Options) -> Result<Report, Failure> {
    if !args.policies.is_empty() {
        policies::compare(args, options).await
    } else if args.places.is_empty() {
        #[cfg(feature = "peers")]
        if args.peer.is_some() && !args.shape.is_near() {
            let why = "the WAN of a playground delays geolock alone: compare without --wan, --jitter and --loss, or with servers that run";
            return Err(Failure::new(Code::Usage, anyhow!(why)));
        }
        let playground = Playground::start(StartArgs::fresh(args.shape.clone(), args.data.clone())).await?;
        let connections = connect(args, async || playground.connect(args.transport.into()).await).await?;
        let report = test(args, options, connections, &playground.distances()).await;
        playground.stop().await?;
        report
    } else {
        let connections = connect(args, async || Ok(args.places.connect_all(args.transport.into()).await?));
        test(args, options, connections.await?, "servers that run").await
    }
}

/// Returns the command line, to repeat the run.
fn command(args: impl Iterator<Item = String>) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=%+@".contains(c);
    let quoted = |arg: String| match !arg.is_empty() && arg.chars().all(is_plain) {
        true => arg,
        false => format!("'{}'", arg.replace('\'', "'\\''")),
    };
    ["geolock".to_owned()].into_iter().chain(args.skip(1)).map(quoted).collect::<Vec<_>>().join(" ")
}

impl BenchArgs {
    fn options(&self) -> anyhow::Result<Options> {
        let seconds = |name, value: f64| {
            Duration::try_from_secs_f64(value)
                .with_context(|| format!("{name} {value} is no number of seconds"))
        };
        Ok(Options {
            workload: self.workload,
            clients: self.clients,
            connections: self.connections,
            duration: seconds("--seconds", self.seconds)?,
            warm_up: seconds("--warm-up", self.warm_up)?,
            keys: self.keys,
            zipf: self.zipf,
            batch: self.batch.unwrap_or(if self.workload == Workload::Batch { 10 } else { 1 }),
            foreign_percent: self.foreign,
            writes_percent: self.writes,
            hold: Duration::from_millis(self.held),
            rate: self.rate,
            active_for: seconds("--active", self.active)?,
            seed: self.seed,
        })
    }
}

/// Makes the wanted number of connections of each datacenter; `one` makes one of each.
async fn connect(
    args: &BenchArgs,
    one: impl AsyncFn() -> Result<Vec<Client>, Failure>,
) -> Result<Vec<Vec<Client>>, Failure> {
    let mut all: Vec<Vec<Client>> = Vec::new();
    for _ in 0..args.connections {
        let of_each = one().await?;
        all.resize_with(of_each.len(), Vec::new);
        all.iter_mut().zip(of_each).for_each(|(all, client)| all.push(client));
    }
    Ok(all)
}

async fn test(
    args: &BenchArgs,
    options: &Options,
    connections: Vec<Vec<Client>>,
    wan: &str,
) -> Result<Report, Failure> {
    let report = measure(args, options, &connections, wan).await;
    for client in connections.into_iter().flatten() {
        // The measurement is complete; a lease that is not closed expires.
        let _ = client.close().await;
    }
    report.map_err(failed)
}

#[cfg(not(feature = "peers"))]
async fn measure(
    _: &BenchArgs,
    options: &Options,
    connections: &[Vec<Client>],
    wan: &str,
) -> Result<Report, LoadTestError> {
    load_test::run(options, connections, wan, |happening| tell(said(&happening))).await
}

#[cfg(feature = "peers")]
async fn measure(
    args: &BenchArgs,
    options: &Options,
    connections: &[Vec<Client>],
    wan: &str,
) -> Result<Report, LoadTestError> {
    let said = |happening| tell(said(&happening));
    let Some(peer) = &args.peer else { return load_test::run(options, connections, wan, said).await };
    let clients: Vec<Client> = connections.iter().map(|all| all[0].clone()).collect();
    let ready = load_test::peers::Ready::new(options, peer, &clients, args.places.is_empty()).await?;
    let mut report = load_test::run(options, connections, wan, said).await?;
    tell("now etcd");
    ready.run(options, &mut report, said).await?;
    Ok(report)
}

fn failed(error: LoadTestError) -> Failure {
    let code = if matches!(error, LoadTestError::Options(_)) { Code::Usage } else { Code::Failed };
    Failure::new(code, error)
}

fn said(happening: &Happening) -> String {
    match happening {
        Happening::BringsHome { locks } => format!("bringing {locks} locks home"),
        Happening::WarmsUp => "warming up".into(),
        Happening::Measures => "measuring".into(),
        Happening::Goes(progress) => format!(
            "{:>4.0} s of {:.0}  {:>8.0} a second  p50 {}  p99 {}{}",
            progress.elapsed.as_secs_f64(),
            progress.of.as_secs_f64(),
            progress.per_second,
            brief(progress.p50),
            brief(progress.p99),
            if progress.violations > 0 {
                format!("  {} VIOLATIONS", progress.violations)
            } else {
                String::new()
            }
        ),
    }
}

/// Lists the names, so that a shell can complete them.
fn workload() -> impl TypedValueParser<Value = Workload> {
    PossibleValuesParser::new(Workload::ALL.map(Workload::name)).try_map(|name| name.parse())
}

/// Returns an error if no report can be written there, before minutes are spent on the run. An existing file
/// stays as it is until there is a report.
fn writable(file: &Path) -> anyhow::Result<()> {
    let is_new = !file.exists();
    let opened = std::fs::OpenOptions::new().create(true).append(true).open(file);
    opened.with_context(|| cannot_write(file))?;
    if is_new {
        std::fs::remove_file(file).with_context(|| cannot_write(file))?;
    }
    Ok(())
}

fn write(file: Option<&Path>, text: impl FnOnce() -> String) -> Result<(), Failure> {
    let Some(file) = file else { return Ok(()) };
    std::fs::write(file, text()).with_context(|| cannot_write(file)).or_fail(Code::Failed)?;
    tell(format_args!("wrote {}", file.display()));
    Ok(())
}

fn cannot_write(file: &Path) -> String {
    format!("the report cannot be written to {}", file.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_there_when_there_is_a_report() {
        let dir = tempfile::tempdir().expect("a folder for the test");
        let (new, old) = (dir.path().join("new.json"), dir.path().join("old.json"));
        std::fs::write(&old, "of before").expect("the folder is ours");
        writable(&new).expect("it could be written");
        writable(&old).expect("it could be written, too");
        assert!(!new.exists());
        assert_eq!(std::fs::read_to_string(&old).expect("it is there"), "of before");
        assert!(writable(&dir.path().join("none/new.json")).is_err());
    }

    #[test]
    fn the_command_can_be_pasted() {
        let args = [
            "/usr/bin/geolock",
            "bench",
            "--hold",
            ":0s:0s:0s",
            "--policies",
            "0 s:0 s:0 s",
            "--html",
            "it's;rm",
            "",
        ];
        let shown = command(args.map(String::from).into_iter());
        assert_eq!(shown, r"geolock bench --hold :0s:0s:0s --policies '0 s:0 s:0 s' --html 'it'\''s;rm' ''");
    }
}
