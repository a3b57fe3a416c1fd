//! `geolock server`: runs one datacenter.

use std::pin::pin;
use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::spawn;

use super::check_alive::check_alive;
use super::failure::{Code, Failure};
use super::print::{print, tell};
use super::service_manager::ServiceManager;
use super::stopping::StopSignals;
use crate::runtime::memory::use_small_pages;
use crate::runtime::open_files::{connections_that_fit, raise_limit};
use crate::server::config::{Config, ConfigError, ServerArgs};
use crate::server::node::{Departure, Node, NodeError, Remedy, Sockets, Wan, check_directory};
use crate::server::reload::{Loaded, Reloader, open_keys};
use crate::telemetry::flush_log;

/// Runs the server until a signal stops it. Starts an evicted server again, if it may join again.
pub async fn run(args: ServerArgs) -> Result<(), Failure> {
    // Before the log there is standard error.
    let mut config = args.load().inspect_err(|_| super::variables::tell_misspelt()).map_err(misconfigured)?;
    if args.check_config {
        super::variables::tell_misspelt();
        return check(&config);
    }
    if args.check_alive {
        return check_alive(config.listen.http).await;
    }
    config.log.install()?;
    super::variables::warn_of_unknown();
    use_small_pages();
    fit_connections(&mut config);
    let mut signals = Signals { stop: StopSignals::listen()?, hang_up: signal(SignalKind::hangup())? };
    #[cfg(feature = "faults")]
    let wan = super::server_faults::begin(args.faults, &mut config).await?;
    #[cfg(not(feature = "faults"))]
    let wan = None;
    while let Some(Departure::Returns) = run_once(&config, wan.clone(), &mut signals).await? {
        tracing::info!("starting again, to join the cluster");
    }
    tracing::info!("stopped");
    Ok(())
}

/// Returns the failure of a server whose configuration is refused.
pub(super) fn misconfigured(error: ConfigError) -> Failure {
    Failure::new(code(error.remedy()), error)
}

/// Returns the failure of a server that did not start, or ended by itself.
pub(super) fn failed(error: NodeError) -> Failure {
    Failure::new(code(error.remedy()), error)
}

/// Returns the exit code that says what helps.
fn code(remedy: Remedy) -> Code {
    match remedy {
        Remedy::Wait => Code::StartAgain,
        Remedy::Change => Code::Configuration,
        Remedy::Room => Code::DiskFull,
        Remedy::Retry => Code::Failed,
    }
}

/// The signals that a server listens to.
struct Signals {
    stop: StopSignals,
    hang_up: Signal,
}

/// Runs the server until it ends, or a signal stops it. Returns the reason if its datacenter is no member any
/// more.
async fn run_once(
    config: &Config,
    wan: Option<Wan>,
    signals: &mut Signals,
) -> Result<Option<Departure>, Failure> {
    let starting = Node::start(Sockets::bind(&config.listen).map_err(failed)?, config.clone(), wan);
    let node = tokio::select! {
        node = starting => node.map_err(failed)?,
        _ = signals.stop.next() => {
            // Recovery may be stopped at any point, as by a crash; the next start begins again.
            tracing::info!("asked to stop while it started: exiting at once");
            return Ok(None);
        }
    };
    let (name, cluster, listen) = (&config.this_member().name, &config.cluster_name, &config.listen);
    tracing::info!(
        dc = %node.dc(), name, cluster, client = %listen.client, quic = %listen.quic, http = %listen.http, "listening"
    );
    let manager = Arc::new(ServiceManager::of_environment());
    manager.ready();
    let (handle, reloader, members) = (node.handle(), node.reloader(), node.members());
    spawn(Arc::clone(&manager).say_alive(handle.clone()));
    let mut ended = pin!(node.ended());
    loop {
        tokio::select! {
            // Without a signal: the journal failed, or the API, or the datacenter is no member any more.
            ended = &mut ended => return ended.map_err(failed),
            _ = signals.stop.next() => break,
            // In a task of its own, because a file may be on a disk that does not answer.
            Some(()) = signals.hang_up.recv() => drop(spawn(reload(reloader.clone()))),
        }
    }
    manager.stopping();
    let stopped = async {
        members.hand_over().await;
        handle.drain();
        ended.await
    };
    tokio::select! {
        ended = stopped => drop(ended.map_err(failed)?),
        code = signals.stop.next() => {
            tracing::warn!("asked again to stop: exiting at once");
            flush_log();
            std::process::exit(code.into());
        }
    };
    Ok(None)
}

/// Lowers the limit of connections to the number of available files.
fn fit_connections(config: &mut Config) {
    let open_files = raise_limit();
    let (wanted, fits) =
        (config.api.max_connections, connections_that_fit(config.api.max_connections, open_files));
    if fits < wanted {
        tracing::warn!(
            open_files,
            wanted,
            connections = fits,
            "limits.max_connections does not fit the limit of open files and is lowered: raise that (ulimit -n, LimitNOFILE)"
        );
        config.api.max_connections = fits;
    }
}

/// Errors are in the log already.
async fn reload(reloader: Reloader) {
    let failures = reloader.reload().await;
    tracing::info!(failures = failures.len(), "reloaded");
}

fn check(config: &Config) -> Result<(), Failure> {
    Loaded::load(config).map_err(|error| failed(error.into()))?;
    check_directory(config).map_err(failed)?;
    for (key, mode) in open_keys(&config.tls) {
        let key = key.display();
        tell(format_args!(
            "geolock: warning: every user may read {key} (mode {mode:04o}): chmod 0600 (or 0640)"
        ));
    }
    let member = config.this_member();
    if let Some(join) = &config.join {
        return print(format_args!(
            "The configuration is good: datacenter {} ({}) joins cluster {} at {join}, unless it is a member already.",
            member.dc.get(),
            member.name,
            config.cluster_name
        ));
    }
    print(format_args!(
        "The configuration is good: datacenter {} ({}) of cluster {}, {} datacenters.",
        member.dc.get(),
        member.name,
        config.cluster_name,
        config.members.len()
    ))
}
