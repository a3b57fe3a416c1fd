//! `geolock witness`: runs a server that only votes.

use std::pin::pin;

use anyhow::anyhow;

use super::failure::{Code, Failure};
use super::print::print;
use super::server::{failed, misconfigured};
use super::stopping::StopSignals;
use crate::server::config::ServerArgs;
use crate::server::node::{WitnessNode, check_witness};
use crate::server::reload::Loaded;
use crate::telemetry::flush_log;

/// Runs the witness until a signal stops it, or it is removed.
pub async fn run(args: ServerArgs) -> Result<(), Failure> {
    if args.check_alive {
        return Err(Failure::new(Code::Usage, anyhow!("a witness serves no /livez, so it cannot be asked")));
    }
    let config = args.load().inspect_err(|_| super::variables::tell_misspelt()).map_err(misconfigured)?;
    check_witness(&config).map_err(failed)?;
    if args.check_config {
        super::variables::tell_misspelt();
        Loaded::load(&config).map_err(|error| failed(error.into()))?;
        let member = config.this_member();
        return print(format_args!(
            "The configuration is good: witness {} ({}) of cluster {}.",
            member.dc.get(),
            member.name,
            config.cluster_name
        ));
    }
    config.log.install()?;
    super::variables::warn_of_unknown();
    let mut signals = StopSignals::listen()?;
    let (listen, name) = (config.listen.quic, config.this_member().name.clone());
    let (dc, cluster) = (config.this_member().dc, config.cluster_name.clone());
    let starting = WitnessNode::start(WitnessNode::bind(listen).map_err(failed)?, config);
    let node = tokio::select! {
        node = starting => node.map_err(failed)?,
        _ = signals.next() => return Ok(()),
    };
    tracing::info!(%dc, name, cluster, quic = %listen, "listening, as a witness");
    let (handle, members) = (node.handle(), node.members());
    let mut ended = pin!(node.ended());
    tokio::select! {
        ended = &mut ended => {
            ended.map_err(failed)?;
        }
        _ = signals.next() => {
            let stopped = async {
                members.hand_over().await;
                handle.drain();
                ended.await
            };
            tokio::select! {
                ended = stopped => drop(ended.map_err(failed)?),
                code = signals.next() => {
                    tracing::warn!("asked again to stop: exiting at once");
                    flush_log();
                    std::process::exit(code.into());
                }
            }
        }
    }
    tracing::info!("stopped");
    Ok(())
}
