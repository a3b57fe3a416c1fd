//! The plan of a playground: checked first; then the ports and the folder are taken.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow};

use super::StartArgs;
use super::data::{self, DataDir, Earlier, Place};
use crate::base::time::brief;
use crate::cli::failure::{Code, Failure, OrFail as _};
use crate::cli::state_dir::{self, default_playground};
use crate::interdc::{Wan, WanPath, WanProfile};
use crate::pki;
use crate::server::config::{Config, HoldEntry, Listen, Options, ServerArgs};
use crate::server::node::Sockets;
use geolock_api::names::{DcId, MAX_DCS};

/// The number of datacenters with which a playground begins.
const DEFAULT_DCS: u8 = 3;
const CLUSTER: &str = "playground";
/// Distance between the first ports of two datacenters.
const STRIDE: u16 = 10;
/// Short: a user who stops a playground does not want to wait for clients.
const DRAIN: &str = "1 s";

/// A playground that was checked and not started.
pub(in crate::cli) struct Plan {
    /// The datacenters that are members, except those that end as soon as they learn that they are none.
    pub dcs: Vec<DcId>,
    /// Those that were about to join when the playground was stopped.
    pub(super) joining: Vec<DcId>,
    founders: u8,
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
    /// Plans a playground that its datacenters found, or continues the one of the folder.
    pub(in crate::cli) fn new(args: &StartArgs) -> Result<Plan, Failure> {
        let default = default_playground();
        let is_default = args.data.is_none() || args.data == default;
        let data = folder(args.data.as_deref()).or_fail(Code::Usage)?;
        let earlier = if args.fresh { Earlier::Forget } else { Earlier::Continue };
        let before = if args.fresh { None } else { data::founders(&data) };
        let founders = args.shape.dcs.or(before).unwrap_or(DEFAULT_DCS);
        let places = match before {
            Some(before) => data::places(&data, before),
            None => (0..founders).filter_map(|id| Some((DcId::new(id)?, Place::Founder))).collect(),
        };
        let of = |joins: bool| {
            let wanted = places.iter().filter(move |(_, place)| (*place == Place::Joins) == joins);
            wanted.map(|(dc, _)| *dc).collect::<Vec<_>>()
        };
        let (dcs, joining) = (of(false), of(true));
        let wan = WanProfile::load(&args.shape.wan).or_fail(Code::Usage)?;
        let all: Vec<DcId> = dcs.iter().chain(&joining).copied().collect();
        for (a, b) in pairs(&all) {
            wan.one_way(a, b).or_fail(Code::Usage)?;
        }
        if !(0.0..100.0).contains(&args.shape.loss) {
            let error =
                anyhow!("--loss is a percentage from 0 to less than 100; {} is none", args.shape.loss);
            return Err(Failure::new(Code::Usage, error));
        }
        let plan = Plan {
            dcs,
            joining,
            founders,
            data,
            is_default,
            base_port: args.base_port,
            earlier,
            wan,
            jitter: Duration::from_millis(args.shape.jitter),
            loss: args.shape.loss / 100.0,
            hold: args.shape.hold.clone(),
        };
        all.iter().try_for_each(|dc| plan.has_ports(*dc)).or_fail(Code::Usage)?;
        Ok(plan)
    }

    fn has_ports(&self, dc: DcId) -> anyhow::Result<()> {
        let (dcs, first) = (dc.get() + 1, self.base_port);
        let last = self.first_port(dc) + 2;
        anyhow::ensure!(
            last <= u16::MAX.into(),
            "{dcs} datacenters from port {first} on need ports up to {last}; the last one is 65535: lower --base-port"
        );
        Ok(())
    }

    fn first_port(&self, dc: DcId) -> u32 {
        u32::from(self.base_port) + u32::from(STRIDE) * u32::from(dc.get())
    }

    /// Takes the ports, then the folder, and fills it with certificates.
    pub(in crate::cli) fn take(&self) -> anyhow::Result<Playground> {
        let sockets =
            self.dcs.iter().map(|dc| Sockets::bind(&self.listen(*dc))).collect::<Result<Vec<_>, _>>();
        let sockets = sockets.context(
            "a port of the playground is taken; if that is another `geolock dev`, stop it, or choose other ports \
             with --base-port PORT",
        )?;
        let data = DataDir::open(&self.data, self.founders, self.earlier)?;
        state_dir::write_port(&self.data, self.base_port)?;
        let certificates = pki::playground(&self.data, CLUSTER, self.dcs.iter().copied())?;
        let servers = self.dcs.iter().zip(sockets).zip(&certificates.dcs).map(|((dc, sockets), tls)| {
            // One that has joined asks nobody, but its configuration names a member.
            let join = (!self.is_founder(*dc)).then_some(*dc);
            Ok(Server { sockets, config: self.config(*dc, tls, join)?, wan: self.wan_of(*dc) })
        });
        Ok(Playground { servers: servers.collect::<anyhow::Result<_>>()?, data })
    }

    /// Takes the ports of one more datacenter, or of one that was stopped. `join`: the member to ask, if it
    /// is none of the founders.
    pub(super) fn take_one(&self, dc: DcId, join: Option<DcId>) -> anyhow::Result<Server> {
        self.has_ports(dc)?;
        let sockets = Sockets::bind(&self.listen(dc))?;
        let certificates = pki::playground(&self.data, CLUSTER, [dc])?;
        let tls = certificates.dcs.first().context("a certificate of the datacenter")?;
        Ok(Server { sockets, config: self.config(dc, tls, join)?, wan: self.wan_of(dc) })
    }

    /// Returns true if that datacenter was a founder, and has not ended since.
    pub(super) fn is_founder(&self, dc: DcId) -> bool {
        self.place(dc) == Some(Place::Founder)
    }

    /// Returns the part of a datacenter in the playground, if it has one.
    pub(super) fn place(&self, dc: DcId) -> Option<Place> {
        let mut places = data::places(&self.data, self.founders).into_iter();
        places.find(|(it, _)| *it == dc).map(|(_, place)| place)
    }

    /// Checks that the distance of two datacenters is known.
    pub(super) fn check_distance(&self, a: DcId, b: DcId) -> anyhow::Result<()> {
        Ok(self.wan.one_way(a, b).map(drop)?)
    }

    /// Returns the addresses of that datacenter.
    pub(in crate::cli) fn listen(&self, dc: DcId) -> Listen {
        let port = u16::try_from(self.first_port(dc)).unwrap_or(u16::MAX - STRIDE);
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

    /// Parses it like a configuration file, so that the same checks apply. `join`: the member to ask.
    fn config(&self, dc: DcId, tls: &Path, join: Option<DcId>) -> anyhow::Result<Config> {
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
        if let Some(member) = join {
            options.join = Some(self.listen(member).quic.to_string());
            options.name = Some(dc.to_string());
            return Ok(ServerArgs { options, ..ServerArgs::default() }.load()?);
        }
        for member in (0..self.founders).filter_map(DcId::new) {
            let entry = format!("{}={member}@{}", member.get(), self.listen(member).quic).parse();
            options.member.push(entry.map_err(|error: &str| anyhow!(error))?);
        }
        Ok(ServerArgs { options, ..ServerArgs::default() }.load()?)
    }

    /// Returns the distances from a datacenter to all that there may be later.
    fn wan_of(&self, dc: DcId) -> Wan {
        let wan = Wan::new(dc.get().into());
        let others =
            (0..MAX_DCS).filter_map(|id| DcId::new(u8::try_from(id).ok()?)).filter(|other| *other != dc);
        for other in others.filter(|other| self.has_ports(*other).is_ok()) {
            if let Ok(one_way) = self.wan.one_way(dc, other) {
                let path = WanPath { one_way, jitter: self.jitter, loss: self.loss, ..WanPath::default() };
                wan.set(self.listen(other).quic, path);
            }
        }
        wan
    }
}

/// Returns the folder of the playground: the given one, or the default one.
pub(super) fn folder(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    let data = given.map(Path::to_owned).or_else(default_playground).context(
        "no folder for the playground: there is neither $XDG_STATE_HOME nor $HOME, so name one (--data DIR)",
    )?;
    Ok(std::path::absolute(data)?)
}

fn pairs(dcs: &[DcId]) -> impl Iterator<Item = (DcId, DcId)> {
    dcs.iter().flat_map(move |a| dcs.iter().filter(move |b| a < *b).map(move |b| (*a, *b)))
}
