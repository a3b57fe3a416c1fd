//! `geolock server`: runs one datacenter.

use std::pin::pin;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::spawn;

use super::failure::Failure;
use super::print::print;
use super::service_manager::ServiceManager;
use super::stopping::StopSignals;
use crate::runtime::open_files::{connections_that_fit, raise_limit};
use crate::server::config::{Config, ServerArgs};
use crate::server::node::{Node, Sockets, check_directory};
use crate::server::reload::{Loaded, Reloader};
use crate::telemetry::flush_log;

/// Runs the server until a signal stops it.
pub async fn run(args: ServerArgs) -> Result<(), Failure> {
    let mut config = args.load()?;
    if args.check_config {
        return check(&config);
    }
    config.log.install()?;
    fit_connections(&mut config);
    let mut signals = StopSignals::listen()?;
    let mut hang_ups = signal(SignalKind::hangup())?;
    let (cluster, listen) = (config.cluster_name.clone(), config.listen.clone());
    let name = config.this_member().name.clone();
    #[cfg(feature = "faults")]
    let wan = super::server_faults::begin(args.faults, &config).await?;
    #[cfg(not(feature = "faults"))]
    let wan = None;
    let starting = Node::start(Sockets::bind(&config.listen)?, config, wan);
    let node = tokio::select! {
        node = starting => node?,
        _ = signals.next() => {
            // Recovery may be stopped at any point, as by a crash; the next start begins again.
            tracing::info!("told to stop while it started: leaving at once");
            return Ok(());
        }
    };
    tracing::info!(
        dc = %node.dc(), name, cluster, client = %listen.client, quic = %listen.quic, http = %listen.http, "listening"
    );
    let manager = Arc::new(ServiceManager::of_environment());
    manager.ready();
    let (handle, reloader) = (node.handle(), node.reloader());
    spawn(Arc::clone(&manager).say_alive(handle.clone()));
    let mut ended = pin!(node.ended());
    loop {
        tokio::select! {
            // Without a signal: the journal failed, or the API.
            ended = &mut ended => return Ok(ended.map(drop)?),
            _ = signals.next() => break,
            // In a task of its own, because a file may be on a disk that does not answer.
            Some(()) = hang_ups.recv() => drop(spawn(reload(reloader.clone()))),
        }
    }
    manager.stopping();
    handle.drain();
    tokio::select! {
        ended = ended => drop(ended?),
        code = signals.next() => {
            tracing::warn!("told again to stop: leaving at once");
            flush_log();
            std::process::exit(code.into());
        }
    }
    tracing::info!("stopped");
    Ok(())
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
    Loaded::load(config)?;
    check_directory(config)?;
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
