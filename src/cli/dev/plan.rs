//! What a playground amounts to: checked first, then the ports and the folder taken.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow};

use super::DevArgs;
use super::data::{DataDir, Earlier};
use crate::cli::failure::{Code, Failure, OrFail as _};
use crate::cli::state_dir::{BASE_PORT, default_playground};
use crate::config::{Config, Listen, Options, ServerArgs};
use crate::interdc::{Wan, WanProfile};
use crate::names::DcId;
use crate::node::Sockets;
use crate::pki;

const CLUSTER: &str = "playground";
/// Ports of one datacenter lie within so many.
const STRIDE: u16 = 10;
/// Whoever stops a playground does not want to wait for clients to finish.
const DRAIN: &str = "1 s";

/// A playground that could be.
pub(super) struct Plan {
    pub dcs: Vec<DcId>,
    pub data: PathBuf,
    pub is_default: bool,
    base_port: u16,
    earlier: Earlier,
    wan: WanProfile,
}

/// A playground whose ports and folder are ours.
pub(super) struct Playground {
    pub servers: Vec<Server>,
    pub data: DataDir,
}

pub(super) struct Server {
    pub sockets: Sockets,
    pub config: Config,
    pub wan: Wan,
}

impl Plan {
    pub(super) fn new(args: &DevArgs) -> Result<Plan, Failure> {
        let last_port = u32::from(args.base_port) + u32::from(STRIDE) * (u32::from(args.dcs) - 1) + 2;
        if last_port > u16::MAX.into() {
            let text = format!(
                "{} datacenters from port {} on need ports up to {last_port}",
                args.dcs, args.base_port
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
        let dcs: Vec<DcId> = (0..args.dcs).filter_map(DcId::new).collect();
        let wan = WanProfile::load(&args.wan).or_fail(Code::Usage)?;
        for (a, b) in pairs(&dcs) {
            wan.one_way(a, b).or_fail(Code::Usage)?;
        }
        let earlier = if args.fresh { Earlier::Forget } else { Earlier::GoOn };
        Ok(Plan { dcs, data, is_default, base_port: args.base_port, earlier, wan })
    }

    /// Takes the ports, then the folder, and fills it with certificates.
    pub(super) fn take(&self) -> anyhow::Result<Playground> {
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

    /// Where clients of that datacenter connect to.
    pub(super) fn listen(&self, dc: DcId) -> Listen {
        let port = self.base_port + STRIDE * u16::from(dc.get());
        let at = |offset| SocketAddr::from((Ipv4Addr::LOCALHOST, port + offset));
        Listen { grpc: at(0), quic: at(1), http: at(2) }
    }

    /// What clients take as `--tls`.
    pub(super) fn client_tls(&self) -> PathBuf {
        self.data.join("client")
    }

    /// Every pair of datacenters with its round-trip time.
    pub(super) fn round_trips(&self) -> impl Iterator<Item = (DcId, DcId, Duration)> {
        let rtt = |(a, b)| Some((a, b, 2 * self.wan.one_way(a, b).ok()?));
        pairs(&self.dcs).filter_map(rtt).filter(|(.., rtt)| !rtt.is_zero())
    }

    /// Made the way a configuration file is read, so that it is checked like one.
    fn config(&self, dc: DcId, tls: &Path) -> anyhow::Result<Config> {
        let listen = self.listen(dc);
        let mut options = Options {
            cluster: Some(CLUSTER.into()),
            dc: Some(dc.get().into()),
            data_dir: Some(self.data.join(dc.to_string())),
            drain_timeout: Some(DRAIN.into()),
            ..Options::default()
        };
        options.tls.dc = Some(tls.to_owned());
        options.listen.grpc = Some(listen.grpc.to_string());
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
            wan.set_delay(self.listen(*other).quic, self.wan.one_way(dc, *other)?);
        }
        Ok(wan)
    }
}

fn pairs(dcs: &[DcId]) -> impl Iterator<Item = (DcId, DcId)> {
    dcs.iter().flat_map(move |a| dcs.iter().filter(move |b| a < *b).map(move |b| (*a, *b)))
}
