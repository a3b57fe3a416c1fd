//! The server's configuration: a TOML file, over it the environment, over it flags; every value checked.
//!
//! One definition serves all three (`options.rs`): the key `journal.segment_bytes` of the file is the flag
//! `--journal-segment-bytes` and the variable `GEOLOCK_JOURNAL_SEGMENT_BYTES`. `sources.rs` knows which of
//! them a value came from, so that an error can name the place; `assemble.rs` checks the values and makes the
//! rooms' own configurations of them. What an option means, its default and its bounds stand at the option,
//! which is also its `--help`; `examples/geolock.toml` is the same for the file.

mod assemble;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod hold;
mod options;
mod sources;
mod units;

#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use crate::access::AccessFiles;
use crate::api::ApiOptions;
use crate::journal::{JournalOptions, MemberNames};
use crate::lock_server::LockServerOptions;
use crate::names::{ClusterId, DcId};
use crate::replica::{AgreedConfig, LocalConfig, ReplicaConfig};
use crate::telemetry::LogOptions;

pub use error::ConfigError;
pub use hold::HoldEntry;
pub use options::Options;
pub use units::{parse_duration, units_of_durations};

/// The flags of `geolock server`.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ServerArgs {
    /// The configuration file (TOML). Every option in it, except parts of `[[hold]]`, can also be given as a flag or in the
    /// environment, which count more.
    #[arg(long, env = "GEOLOCK_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Check the configuration and the certificate files, say what is wrong, start nothing.
    #[arg(long)]
    pub check_config: bool,
    /// For tests: do what this script says, see `src/faults`. Read again on SIGUSR2.
    #[cfg(feature = "faults")]
    #[arg(long, value_name = "FILE")]
    pub faults: Option<PathBuf>,
    #[command(flatten)]
    pub options: Options,
}

/// All options of one server, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The cluster's name; its hash is the cluster id.
    pub cluster_name: String,
    pub replica: ReplicaConfig,
    /// All datacenters, this one among them, by id.
    pub members: Vec<Member>,
    pub listen: Listen,
    pub tls: Tls,
    pub journal: JournalOptions,
    pub server: LockServerOptions,
    pub api: ApiOptions,
    /// Who may do what.
    pub access: AccessFiles,
    pub log: LogOptions,
}

/// A datacenter of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub dc: DcId,
    /// For people.
    pub name: String,
    /// `host:port` where the others reach its QUIC listener. Looked up again at every dial.
    pub address: String,
}

/// Where this server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The client API. Default 127.0.0.1:7400.
    pub grpc: SocketAddr,
    /// The other datacenters (UDP). Default 0.0.0.0:7401.
    pub quic: SocketAddr,
    /// Metrics and probes. Default 127.0.0.1:7402.
    pub http: SocketAddr,
}

impl Default for Listen {
    fn default() -> Listen {
        Listen {
            grpc: SocketAddr::from((Ipv4Addr::LOCALHOST, 7400)),
            quic: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 7401)),
            http: SocketAddr::from((Ipv4Addr::LOCALHOST, 7402)),
        }
    }
}

impl Listen {
    /// Three ports of loopback that are free: for servers within one process.
    pub fn anywhere() -> Listen {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Listen { grpc: any, quic: any, http: any }
    }
}

/// Folders with `ca.pem`, `cert.pem` and `key.pem`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Who this datacenter is to the others.
    pub dc: PathBuf,
    /// What clients of the API see.
    pub api: PathBuf,
    /// How often to look whether the files have changed. Default 1 min: a new certificate should be there long before
    /// the old one expires, so raising it saves three small reads, and lowering it is for tests.
    pub check_interval: Duration,
}

impl Tls {
    /// One folder for both, and the defaults.
    pub fn of(folder: &Path) -> Tls {
        Tls { dc: folder.into(), api: folder.into(), check_interval: Duration::from_secs(60) }
    }
}

impl ServerArgs {
    /// The checked configuration. The file is read here; nothing else is touched.
    pub fn load(&self) -> Result<Config, ConfigError> {
        let file = match &self.config {
            None => Options::default(),
            Some(path) => read(path)?,
        };
        assemble::assemble(&sources::Sources::new(&self.options, &file, self.config.as_deref()))
    }
}

impl Config {
    /// The member `dc` of the cluster, with its certificates in the folder `tls`; all else by default. Nothing is checked:
    /// who reads it from text does that before.
    pub fn new(cluster_name: &str, dc: DcId, members: Vec<Member>, tls: &Path, data_dir: PathBuf) -> Config {
        let cluster = ClusterId::of(cluster_name);
        let agreed = AgreedConfig::new(cluster, members.iter().map(|member| member.dc).collect());
        // Random, so that no client can choose names of locks that collide.
        let hash_seed = RandomState::new().build_hasher().finish();
        Config {
            cluster_name: cluster_name.into(),
            replica: ReplicaConfig::new(dc, agreed, LocalConfig { hash_seed, ..LocalConfig::default() }),
            members,
            listen: Listen::default(),
            tls: Tls::of(tls),
            journal: JournalOptions::new(data_dir, cluster, dc),
            server: LockServerOptions::default(),
            api: ApiOptions::default(),
            access: AccessFiles::default(),
            log: LogOptions::default(),
        }
    }

    /// A cluster of one datacenter, `dc`, on loopback, whose certificates and data are in the folder `home`, as
    /// [`crate::pki::playground`] fills it. For benchmarks and tests.
    pub fn alone(cluster_name: &str, dc: DcId, home: &Path) -> Config {
        let member = Member { dc, name: "here".into(), address: "127.0.0.1:1".into() };
        let tls = home.join("tls").join(dc.to_string());
        let config = Config::new(cluster_name, dc, vec![member], &tls, home.join("data"));
        Config { listen: Listen::anywhere(), ..config }
    }

    /// All members, by id.
    pub fn member_names(&self) -> MemberNames {
        self.members.iter().map(|member| (member.dc, member.name.clone())).collect()
    }

    /// The member that this server is.
    pub fn this_member(&self) -> &Member {
        let this = self.members.iter().find(|member| member.dc == self.replica.dc);
        this.expect("a checked configuration has this datacenter among the members")
    }
}

/// Above this a file is no configuration; it is not read.
const MAX_CONFIG: u64 = 1 << 20;

fn read(path: &Path) -> Result<Options, ConfigError> {
    let failed = |source| ConfigError::Read { path: path.to_owned(), source };
    if fs::metadata(path).map_err(failed)?.len() > MAX_CONFIG {
        return Err(failed(io::Error::other("larger than 1 MiB: no configuration file")));
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    toml::from_str(&text)
        .map_err(|source| ConfigError::Parse { path: path.to_owned(), source: source.into() })
}
