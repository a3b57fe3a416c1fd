//! The server's configuration: a TOML file, overridden by the environment, overridden by flags; every value
//! checked.
//!
//! One definition serves all three (`options.rs`): the key `journal.segment_bytes` of the file is the flag
//! `--journal-segment-bytes` and the variable `GEOLOCK_JOURNAL_SEGMENT_BYTES`. `sources.rs` knows the source
//! of each value, so that an error can name it; `assemble.rs` checks the values and builds the configurations
//! of the modules. The meaning, default and bounds of an option are documented at the option, which is also
//! its `--help`; `examples/geolock.toml` documents the same for the file.

mod assemble;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod hold;
mod join;
mod options;
mod renamed;
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
use crate::journal::{JournalOptions, MemberNames};
use crate::lock_server::LockServerOptions;
use crate::membership::JoinPolicy;
use crate::replica::{AgreedConfig, LocalConfig, ReplicaConfig};
use crate::server::api::ApiOptions;
use crate::telemetry::LogOptions;
use geolock_api::names::{ClusterId, DcId};

pub use crate::replica::MAX_LEASE_TTL;
pub use error::ConfigError;
pub use hold::HoldEntry;
pub use options::Options;
pub use units::{parse_duration, units_of_durations};

/// The flags of `geolock server`.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ServerArgs {
    /// The configuration file (TOML). Every option in it, except parts of `[[hold]]`, can also be given as a
    /// flag or in the environment; those override the file.
    #[arg(long, env = "GEOLOCK_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Check the configuration and the certificate files, report errors, and start nothing.
    #[arg(long)]
    pub check_config: bool,
    /// Ask the server that runs here with this configuration if it is alive (/livez), and start nothing: a
    /// health check for containers. Exit code 0 if it is, 1 if it is not, 69 if it does not answer.
    #[arg(long, conflicts_with = "check_config")]
    pub check_alive: bool,
    /// For tests: run this fault script, see `src/testkit/faults`. Read again on SIGUSR2.
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
    /// All datacenters that found the cluster, including this one, ordered by id; this one alone if it joins.
    pub members: Vec<Member>,
    /// The member to ask, if this server joins a running cluster: `host:port` of its QUIC listener.
    pub join: Option<String>,
    /// It may join members that have access rules without having some.
    pub join_without_rules: bool,
    /// The policy for servers that join later, if this server founds the cluster.
    pub join_policy: JoinPolicy,
    pub listen: Listen,
    pub tls: Tls,
    pub journal: JournalOptions,
    pub server: LockServerOptions,
    pub api: ApiOptions,
    /// The files of access rules and tokens.
    pub access: AccessFiles,
    pub log: LogOptions,
}

/// A datacenter of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub dc: DcId,
    /// A name for people.
    pub name: String,
    /// `host:port` at which other datacenters reach its QUIC listener. Resolved again at every dial.
    pub address: String,
}

/// The addresses on which this server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The client API. Default 127.0.0.1:7400.
    pub client: SocketAddr,
    /// The other datacenters (UDP). Default 0.0.0.0:7401.
    pub quic: SocketAddr,
    /// Metrics and probes. Default 127.0.0.1:7402.
    pub http: SocketAddr,
}

impl Default for Listen {
    fn default() -> Listen {
        Listen {
            client: SocketAddr::from((Ipv4Addr::LOCALHOST, 7400)),
            quic: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 7401)),
            http: SocketAddr::from((Ipv4Addr::LOCALHOST, 7402)),
        }
    }
}

impl Listen {
    /// Returns three free ports on loopback: for servers within one process.
    pub fn anywhere() -> Listen {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Listen { client: any, quic: any, http: any }
    }
}

/// Folders with `ca.pem`, `cert.pem` and `key.pem`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The identity of this datacenter on links to the others.
    pub dc: PathBuf,
    /// The certificate shown to clients of the API.
    pub api: PathBuf,
    /// How often to check the files for changes. Default 1 min. A new certificate should be loaded long
    /// before the old one expires; raising it saves three small reads, and lowering it is for tests.
    pub check_interval: Duration,
}

impl Tls {
    /// Uses one folder for both, and the defaults.
    pub fn of(folder: &Path) -> Tls {
        Tls { dc: folder.into(), api: folder.into(), check_interval: Duration::from_secs(60) }
    }
}

impl ServerArgs {
    /// Returns the checked configuration. Reads the configuration file and, if the server joins, the
    /// certificate.
    pub fn load(&self) -> Result<Config, ConfigError> {
        if let Some(names) = renamed::in_environment(|name| std::env::var_os(name).is_some()) {
            return Err(ConfigError::RenamedVariables(names));
        }
        let file = match &self.config {
            None => Options::default(),
            Some(path) => read(path)?,
        };
        assemble::assemble(&sources::Sources::new(&self.options, &file, self.config.as_deref()))
    }
}

impl Config {
    /// Returns the configuration of member `dc` of the cluster, with its certificates in the folder `tls` and
    /// defaults for the rest. Checks nothing: the parser of the text does that before.
    pub fn new(cluster_name: &str, dc: DcId, members: Vec<Member>, tls: &Path, data_dir: PathBuf) -> Config {
        let cluster = ClusterId::of(cluster_name);
        let agreed = AgreedConfig::new(cluster, members.iter().map(|member| member.dc).collect());
        // Random, so that no client can choose lock names that collide.
        let hash_seed = RandomState::new().build_hasher().finish();
        Config {
            cluster_name: cluster_name.into(),
            replica: ReplicaConfig::new(dc, agreed, LocalConfig { hash_seed, ..LocalConfig::default() }),
            members,
            join: None,
            join_without_rules: false,
            join_policy: JoinPolicy::default(),
            listen: Listen::default(),
            tls: Tls::of(tls),
            journal: JournalOptions::new(data_dir, cluster, dc),
            server: LockServerOptions::default(),
            api: ApiOptions::default(),
            access: AccessFiles::default(),
            log: LogOptions::default(),
        }
    }

    /// Returns the configuration of a cluster of one datacenter, `dc`, on loopback, with certificates and
    /// data in the folder `home`, as [`crate::pki::playground`] creates it. For benchmarks and tests.
    pub fn alone(cluster_name: &str, dc: DcId, home: &Path) -> Config {
        let member = Member { dc, name: "here".into(), address: "127.0.0.1:1".into() };
        let tls = home.join("tls").join(dc.to_string());
        let config = Config::new(cluster_name, dc, vec![member], &tls, home.join("data"));
        Config { listen: Listen::anywhere(), ..config }
    }

    /// Returns all members with their names, ordered by id.
    pub fn member_names(&self) -> MemberNames {
        self.members.iter().map(|member| (member.dc, member.name.clone())).collect()
    }

    /// Returns the member that this server is.
    pub fn this_member(&self) -> &Member {
        let this = self.members.iter().find(|member| member.dc == self.replica.dc);
        this.expect("a checked configuration has this datacenter among the members")
    }
}

/// A larger file is not a configuration; it is not read.
const MAX_CONFIG: u64 = 1 << 20;

fn read(path: &Path) -> Result<Options, ConfigError> {
    let failed = |source| ConfigError::Read { path: path.to_owned(), source };
    if fs::metadata(path).map_err(failed)?.len() > MAX_CONFIG {
        return Err(failed(io::Error::other("larger than 1 MiB: no configuration file")));
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    toml::from_str(&text).map_err(|source| match renamed::in_file(&text) {
        Some(names) => ConfigError::Renamed { path: path.to_owned(), names },
        None => ConfigError::Parse { path: path.to_owned(), source: source.into() },
    })
}
