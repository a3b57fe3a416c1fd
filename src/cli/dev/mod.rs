//! `geolock dev`: a playground with several datacenters in one process.
//!
//! It uses real certificates, disks and QUIC. Only the distances are simulated, inside the QUIC sockets, and
//! all datacenters share one process. They can join and leave while it runs: `geolock dev add`, `stop` and
//! `start` call the running process, `geolock member` calls the datacenters as in any cluster.

mod calls;
mod data;
mod plan;
mod running;
mod welcome;

use std::convert::Infallible;
use std::fmt::Display;
use std::future::pending;
use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep_until};

use super::dc_names;
use super::failure::Failure;
use super::print::print;
use super::state_dir;
use super::stopping::StopSignals;
use super::suggest::{LEVELS, Suggested};
use crate::lock_server::{LockServerHandle, Stage};
use crate::replica::call::Phase;
use crate::runtime::memory::use_small_pages;
use crate::runtime::open_files::raise_limit;
use crate::runtime::tasks::joined;
use crate::server::config::HoldEntry;
use crate::server::node::{Node, NodeError};
use crate::telemetry::{LogOptions, flush_log};
use calls::{Calls, Request};
pub(super) use data::DataDir;
use geolock_api::names::{DcId, EntryNumber};
use plan::Server;
pub(super) use plan::{Plan, Playground};
use running::Running;
use welcome::welcome;

/// Start datacenters on this machine, to try geolock or to develop against it. Ctrl-C stops them.
///
/// Datacenter I (from 0) listens on 127.0.0.1: clients on port BASE + 10 I, other datacenters on the next
/// one, /metrics, /livez and /readyz on the one after that. Locks and certificates stay in the data folder
/// for the next run; DIR/client is the folder for the --tls option of clients.
///
/// While it runs, `geolock dev add` adds a datacenter, `geolock member remove ID` lets one leave, and
/// `geolock dev stop ID` stops one, as if its machine were switched off: then `geolock dev start ID` starts
/// it again, or `geolock member evict ID --confirm-dead` evicts it. The next run has the same datacenters.
#[derive(clap::Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct DevArgs {
    #[command(subcommand)]
    command: Option<DevCommand>,
    #[command(flatten)]
    start: StartArgs,
}

#[derive(Subcommand, Clone, Debug)]
enum DevCommand {
    /// Add a datacenter to the running playground
    ///
    /// It joins as with `geolock server --join`, and listens on the ports of its id. One that has left or was
    /// evicted returns, with an empty directory; the old one is kept beside it.
    Add {
        /// Its id [default: the lowest free one]
        #[arg(value_name = "ID", value_parser = dc_names::parse)]
        dc: Option<DcId>,
        #[command(flatten)]
        folder: FolderArgs,
    },
    /// Stop the server of one datacenter of the running playground
    ///
    /// It remains a member; the others no longer hear it, as if its machine were switched off.
    Stop {
        /// The id of the datacenter, such as 2
        #[arg(value_name = "ID", value_parser = dc_names::parse)]
        dc: DcId,
        #[command(flatten)]
        folder: FolderArgs,
    },
    /// Start a datacenter that was stopped
    Start {
        /// The id of the datacenter, such as 2
        #[arg(value_name = "ID", value_parser = dc_names::parse)]
        dc: DcId,
        #[command(flatten)]
        folder: FolderArgs,
    },
}

/// The playground that a command is for.
#[derive(clap::Args, Clone, Debug)]
struct FolderArgs {
    /// Folder of the playground [default: geolock/dev in $XDG_STATE_HOME or ~/.local/state]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// The options of a playground that starts.
#[derive(clap::Args, Clone, Debug)]
pub struct StartArgs {
    #[command(flatten)]
    pub(super) shape: Shape,
    /// Folder for locks and certificates [default: geolock/dev in $XDG_STATE_HOME or ~/.local/state]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Discard the locks and certificates of the last run
    #[arg(long)]
    fresh: bool,
    /// Stop after that many seconds
    #[arg(long, value_name = "S")]
    seconds: Option<u64>,
    /// The first port
    #[arg(long, value_name = "PORT", default_value_t = state_dir::BASE_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    base_port: u16,
    /// Log of the servers on standard error: a level, or levels by module
    #[arg(long, value_name = "FILTER", env = "GEOLOCK_LOG_FILTER", default_value = "error,openraft=off", value_parser = LEVELS, hide_possible_values = true)]
    log: String,
}

/// The number of datacenters, and the network between them.
#[derive(clap::Args, Clone, Debug)]
#[group(id = "shape")]
pub struct Shape {
    /// Number of datacenters to begin with [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(super) dcs: Option<u8>,
    /// Distances: zero; eu (round trips of 10, 15, 20 ms); world (80, 150, 220 ms); or a TOML file with a
    /// table `rtt_ms` of lines such as 0-1 = 80
    #[arg(long, value_name = "zero|eu|world|FILE", default_value = "zero", value_parser = Suggested(&["zero", "eu", "world"]), hide_possible_values = true)]
    pub(super) wan: String,
    /// Largest random delay added to each datagram between them, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub(super) jitter: u64,
    /// Percentage of datagrams between them that are lost
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0)]
    pub(super) loss: f64,
    /// Hold policy, as in the configuration of a server: PREFIX:POLICY, PREFIX:adaptive:TURN:MAX_KEEP or
    /// PREFIX:MIN_KEEP:MAX_KEEP:REQUEST_DELAY
    #[arg(long, value_name = "RULE")]
    pub(super) hold: Vec<HoldEntry>,
}

impl Shape {
    /// Returns true if there is no distance between the datacenters.
    #[cfg(feature = "peers")]
    pub(super) fn is_near(&self) -> bool {
        self.wan == "zero" && self.jitter == 0 && self.loss == 0.0
    }
}

impl StartArgs {
    /// Returns the arguments of a new playground in a folder of its own, in `dir` or beside the default one.
    pub(super) fn fresh(shape: Shape, dir: Option<PathBuf>) -> StartArgs {
        let beside = || state_dir::default_playground().and_then(|dev| dev.parent().map(PathBuf::from));
        let dir = dir.or_else(beside).unwrap_or_else(std::env::temp_dir);
        StartArgs {
            shape,
            data: Some(dir.join(format!("bench-{}", std::process::id()))),
            fresh: true,
            seconds: None,
            base_port: state_dir::BASE_PORT,
            log: "error".into(),
        }
    }

    pub(super) fn at_port(&self, base_port: u16) -> StartArgs {
        StartArgs { base_port, ..self.clone() }
    }
}

/// If a server takes longer than this to be ready, the reason is printed.
const SLOW: Duration = Duration::from_secs(3);
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// Runs a playground until a signal stops it, or asks the one that runs.
pub async fn run(args: DevArgs) -> Result<(), Failure> {
    let (folder, request) = match args.command {
        None => return playground(args.start).await,
        Some(DevCommand::Add { dc, folder }) => (folder, Request::Add(dc)),
        Some(DevCommand::Stop { dc, folder }) => (folder, Request::Stop(dc)),
        Some(DevCommand::Start { dc, folder }) => (folder, Request::Start(dc)),
    };
    calls::ask(&plan::folder(folder.data.as_deref())?, request).await
}

async fn playground(args: StartArgs) -> Result<(), Failure> {
    let mut signals = StopSignals::listen()?;
    let plan = Plan::new(&args)?;
    LogOptions { filter: args.log.clone(), ..LogOptions::default() }.install()?;
    raise_limit();
    use_small_pages();
    let Playground { servers, data } = plan.take()?;
    let mut running = Running::new(&plan, start_nodes(servers).await?);
    let stops_at = args.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    say(welcome(&plan));
    let mut calls = match Calls::open(&plan.data) {
        Ok(calls) => Some(calls),
        Err(error) => {
            say(format_args!(
                "`geolock dev add`, `stop` and `start` do not work: no socket in the folder ({error})"
            ));
            None
        }
    };

    let handles = running.handles();
    let ended = tokio::select! {
        // Without a signal, as when a disk fails.
        ended = running.run(&mut calls) => ended,
        _ = signals.next() => Ok(()),
        () = at(stops_at) => Ok(()),
        never = say_when_ready(&handles) => match never {},
    };
    drop(calls);
    running.drain();
    tokio::select! {
        stopped = running.stopped() => ended.and(stopped)?,
        code = signals.next() => {
            flush_log();
            std::process::exit(code.into());
        }
    }
    drop(data);
    say("stopped");
    Ok(())
}

/// A playground continues even if its output is closed.
fn say(text: impl Display) {
    let _ = print(text);
}

pub(super) type Ends = JoinSet<Result<(), NodeError>>;

/// Starts all servers, or none.
pub(super) async fn start(servers: Vec<Server>) -> Result<(Vec<LockServerHandle>, Ends), NodeError> {
    let nodes = start_nodes(servers).await?;
    let handles = nodes.iter().map(Node::handle).collect();
    let mut ends = JoinSet::new();
    for node in nodes {
        ends.spawn(async move { node.ended().await.map(drop) });
    }
    Ok((handles, ends))
}

async fn start_nodes(servers: Vec<Server>) -> Result<Vec<Node>, NodeError> {
    let mut nodes: Vec<Node> = Vec::new();
    for server in servers {
        match Node::start(server.sockets, server.config, Some(server.wan)).await {
            Ok(node) => nodes.push(node),
            Err(error) => {
                nodes.iter().for_each(|node| node.handle().drain());
                for node in nodes {
                    // The error to report is that of the start.
                    let _ = node.ended().await;
                }
                return Err(error);
            }
        }
    }
    Ok(nodes)
}

/// Waits until all have ended, or one has failed. Cancel-safe.
pub(super) async fn all_ended(ends: &mut Ends) -> Result<(), NodeError> {
    while let Some(ended) = ends.join_next().await {
        joined(ended)?;
    }
    Ok(())
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}

/// Prints once that all serve and are linked, but those that have left the cluster. If that takes long,
/// prints the reason.
async fn say_when_ready(handles: &[LockServerHandle]) -> Infallible {
    let slow = Instant::now() + SLOW;
    let mut explained = false;
    let mut look = interval(LOOK);
    loop {
        look.tick().await;
        let runs = |handle: &&LockServerHandle| *handle.stage().borrow() != Stage::Stopped;
        let running: Vec<&LockServerHandle> = handles.iter().filter(runs).collect();
        let obstacles: Vec<String> =
            running.iter().filter_map(|handle| obstacle(handle, running.len())).collect();
        if obstacles.is_empty() {
            say("ready");
            return pending().await;
        }
        if !explained && Instant::now() > slow {
            explained = true;
            say(format_args!("not ready yet: {}", obstacles.join("; ")));
        }
    }
}

/// Returns why this server does not serve yet.
pub(super) fn obstacle(handle: &LockServerHandle, dcs: usize) -> Option<String> {
    let Some(snapshot) = handle.board().latest() else { return Some("a server starts".into()) };
    let (status, dc) = (&snapshot.status, snapshot.status.dc);
    match status.phase {
        Phase::Starting => Some(format!("{dc} starts")),
        Phase::ReadOnly => Some(format!("{dc} waits to hear from the others how much they have of its log")),
        Phase::Forked { dc: of, seq } => {
            let entry = EntryNumber(seq);
            Some(format!("{dc} and another have two histories of {of} from entry {entry} on"))
        }
        Phase::Grace { leases } => Some(format!(
            "{dc} waits up to a lease's time to live for {leases} clients of the last time (--fresh forgets them)"
        )),
        Phase::Serving if status.peers.iter().filter(|peer| peer.connected).count() + 1 < dcs => {
            Some(format!("{dc} is not linked to all others"))
        }
        Phase::Serving => None,
    }
}
