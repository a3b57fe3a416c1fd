//! The plan of a playground: checked first; then the ports and the folder are taken.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow};

use super::DevArgs;
use super::data::{DataDir, Earlier};
use crate::base::time::brief;
use crate::cli::failure::{Code, Failure, OrFail as _};
use crate::cli::state_dir::{BASE_PORT, default_playground};
use crate::interdc::{Wan, WanPath, WanProfile};
use crate::pki;
use crate::server::config::{Config, HoldEntry, Listen, Options, ServerArgs};
use crate::server::node::Sockets;
use geolock_api::names::DcId;

const CLUSTER: &str = "playground";
/// Distance between the first ports of two datacenters.
const STRIDE: u16 = 10;
/// Short: a user who stops a playground does not want to wait for clients.
const DRAIN: &str = "1 s";

/// A playground that was checked and not started.
pub(in crate::cli) struct Plan {
    pub dcs: Vec<DcId>,
    pub data: PathBuf,
    pub is_default: bool,
    base_port: u16,
    earlier: Earlier,
    wan: WanProfile,
    jitter: Duration,
    /// Probability of the loss of a datagram, 0 to 1.
    loss: f64,
    hold: Vec<HoldEntry>,
}

/// A playground that owns its ports and its folder.
pub(in crate::cli) struct Playground {
    pub servers: Vec<Server>,
    pub data: DataDir,
}

pub(in crate::cli) struct Server {
    pub sockets: Sockets,
    pub config: Config,
    pub wan: Wan,
}

impl Plan {
    pub(in crate::cli) fn new(args: &DevArgs) -> Result<Plan, Failure> {
        let last_port = u32::from(args.base_port) + u32::from(STRIDE) * (u32::from(args.shape.dcs) - 1) + 2;
        if last_port > u16::MAX.into() {
            let text = format!(
                "{} datacenters from port {} on need ports up to {last_port}",
                args.shape.dcs, args.base_port
            );
            return Err(Failure::new(
                Code::Usage,
                anyhow!("{text}; the last one is 65535: lower --base-port"),
            ));
        }
        let default = default_playground();
        let is_default = args.base_port == BASE_PORT && (args.data.is_none() || args.data == default);
        let data = args.data.clone().or(default).context(
            "no folder for the playground: there is neither $XDG_STATE_HOME nor $HOME, so name one (--data DIR)",
        );
        let data = std::path::absolute(data.or_fail(Code::Usage)?)?;
        let dcs: Vec<DcId> = (0..args.shape.dcs).filter_map(DcId::new).collect();
        let wan = WanProfile::load(&args.shape.wan).or_fail(Code::Usage)?;
        for (a, b) in pairs(&dcs) {
            wan.one_way(a, b).or_fail(Code::Usage)?;
        }
        if !(0.0..100.0).contains(&args.shape.loss) {
            let error =
                anyhow!("--loss is a percentage from 0 to less than 100; {} is none", args.shape.loss);
            return Err(Failure::new(Code::Usage, error));
        }
        let earlier = if args.fresh { Earlier::Forget } else { Earlier::Continue };
        Ok(Plan {
            dcs,
            data,
            is_default,
            base_port: args.base_port,
            earlier,
            wan,
            jitter: Duration::from_millis(args.shape.jitter),
            loss: args.shape.loss / 100.0,
            hold: args.shape.hold.clone(),
        })
    }

    /// Takes the ports, then the folder, and fills it with certificates.
    pub(in crate::cli) fn take(&self) -> anyhow::Result<Playground> {
        let sockets =
            self.dcs.iter().map(|dc| Sockets::bind(&self.listen(*dc))).collect::<Result<Vec<_>, _>>();
        let sockets = sockets.context(
            "a port of the playground is taken; if that is another `geolock dev`, stop it, or choose other ports \
             with --base-port PORT",
        )?;
        let data = DataDir::open(&self.data, self.dcs.len() as u8, self.earlier)?;
        let certificates = pki::playground(&self.data, CLUSTER, self.dcs.iter().copied())?;
        let servers = self.dcs.iter().zip(sockets).zip(&certificates.dcs).map(|((dc, sockets), tls)| {
            Ok(Server { sockets, config: self.config(*dc, tls)?, wan: self.wan_of(*dc)? })
        });
        Ok(Playground { servers: servers.collect::<anyhow::Result<_>>()?, data })
    }

    /// Returns the addresses of that datacenter.
    pub(in crate::cli) fn listen(&self, dc: DcId) -> Listen {
        let port = self.base_port + STRIDE * u16::from(dc.get());
        let at = |offset| SocketAddr::from((Ipv4Addr::LOCALHOST, port + offset));
        Listen { client: at(0), quic: at(1), http: at(2) }
    }

    /// Returns the folder for the `--tls` option of clients.
    pub(in crate::cli) fn client_tls(&self) -> PathBuf {
        self.data.join("client")
    }

    /// Returns every pair of datacenters with a distance, and its round-trip time.
    pub(super) fn round_trips(&self) -> Vec<String> {
        let rtt = |(a, b)| Some((a, b, 2 * self.wan.one_way(a, b).ok()?));
        let apart = pairs(&self.dcs).filter_map(rtt).filter(|(.., rtt)| !rtt.is_zero());
        apart.map(|(a, b, rtt)| format!("{a}-{b} {}", brief(rtt))).collect()
    }

    /// Returns the distances as text.
    pub(in crate::cli) fn distances(&self) -> String {
        let trips = self.round_trips();
        let trips =
            if trips.is_empty() { "no delay".into() } else { format!("round trips {}", trips.join(", ")) };
        let jitter =
            if self.jitter.is_zero() { String::new() } else { format!(", jitter {}", brief(self.jitter)) };
        let loss = if self.loss == 0.0 { String::new() } else { format!(", {} % lost", 100.0 * self.loss) };
        format!("{trips}{jitter}{loss}")
    }

    /// Parses it like a configuration file, so that the same checks apply.
    fn config(&self, dc: DcId, tls: &Path) -> anyhow::Result<Config> {
        let listen = self.listen(dc);
        let mut options = Options {
            dc: Some(dc.get().into()),
            data_dir: Some(self.data.join(dc.to_string())),
            drain_timeout: Some(DRAIN.into()),
            hold: self.hold.clone(),
            ..Options::default()
        };
        options.cluster.name = Some(CLUSTER.into());
        options.cluster.join_policy = Some("auto".into());
        options.tls.dc = Some(tls.to_owned());
        options.listen.client = Some(listen.client.to_string());
        options.listen.quic = Some(listen.quic.to_string());
        options.listen.http = Some(listen.http.to_string());
        for member in &self.dcs {
            let entry = format!("{}={member}@{}", member.get(), self.listen(*member).quic).parse();
            options.member.push(entry.map_err(|error: &str| anyhow!(error))?);
        }
        Ok(ServerArgs { options, ..ServerArgs::default() }.load()?)
    }

    fn wan_of(&self, dc: DcId) -> anyhow::Result<Wan> {
        let wan = Wan::new(dc.get().into());
        for other in self.dcs.iter().filter(|other| **other != dc) {
            let one_way = self.wan.one_way(dc, *other)?;
            let path = WanPath { one_way, jitter: self.jitter, loss: self.loss, ..WanPath::default() };
            wan.set(self.listen(*other).quic, path);
        }
        Ok(wan)
    }
}

fn pairs(dcs: &[DcId]) -> impl Iterator<Item = (DcId, DcId)> {
    dcs.iter().flat_map(move |a| dcs.iter().filter(move |b| a < *b).map(move |b| (*a, *b)))
}
