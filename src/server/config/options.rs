//! Every option of the server, as unchecked text or number: one definition for the file, the flags and the
//! environment.
//!
//! The id of an argument is its key in the file; flag and variable derive from it (a test checks that).
//! `None` and an empty list mean that the source does not have the option.

mod limits;

use std::path::PathBuf;
use std::str::FromStr;

use serde::Deserialize;

pub use self::limits::LimitsSection;
use super::hold::HoldEntry;

/// The heading of options for a server that joins.
const JOINING: &str = "Join a running cluster";

/// The top level of the file.
#[derive(clap::Args, Deserialize, Clone, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// The id of the member that this server is
    #[arg(id = "dc", long = "dc", env = "GEOLOCK_DC", value_name = "ID")]
    pub dc: Option<u64>,
    /// Folder of the journal; created if need be, used by one server only
    #[arg(id = "data_dir", long = "data-dir", env = "GEOLOCK_DATA_DIR", value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Join a running cluster, instead of founding one with `member`: HOST:PORT of the QUIC port of any
    /// member. The cluster and the id are those of the certificate. Once the server is a member this has no
    /// effect, and may stay
    #[arg(id = "join", long = "join", env = "GEOLOCK_JOIN", value_name = "HOST:PORT", help_heading = JOINING)]
    pub join: Option<String>,
    /// With `join`: join also if the members have access rules (api.acl) and this server has none. Then
    /// every client may do everything in this datacenter [default: false]
    #[arg(
        id = "join_without_rules",
        long = "join-without-rules",
        env = "GEOLOCK_JOIN_WITHOUT_RULES",
        value_name = "BOOL",
        help_heading = JOINING
    )]
    pub join_without_rules: Option<bool>,
    /// With `join`: name of this server for people: 1 to 64 of a-z, 0-9 and -
    #[arg(id = "name", long = "name", env = "GEOLOCK_NAME", value_name = "NAME", help_heading = JOINING)]
    pub name: Option<String>,
    /// With `join`: address at which the others reach the QUIC port of this server [default: that of
    /// listen.quic, unless it is 0.0.0.0 or ::]
    #[arg(
        id = "address",
        long = "address",
        env = "GEOLOCK_ADDRESS",
        value_name = "HOST:PORT",
        help_heading = JOINING
    )]
    pub address: Option<String>,
    /// After SIGTERM: how long clients may still release and renew [default: 10 s; 0 s to 10 min]
    #[arg(id = "drain_timeout", long = "drain-timeout", env = "GEOLOCK_DRAIN_TIMEOUT", value_name = "TIME")]
    pub drain_timeout: Option<String>,
    /// How often to compare the state with that of another datacenter [default: 5 s; 100 ms to 1 h]
    #[arg(
        id = "anti_entropy_interval",
        long = "anti-entropy-interval",
        env = "GEOLOCK_ANTI_ENTROPY_INTERVAL",
        value_name = "TIME"
    )]
    pub anti_entropy_interval: Option<String>,
    /// A datacenter of the cluster, including this one; repeat for each (separated by commas in the
    /// environment): ID=NAME@HOST:PORT, the address at which the others reach its QUIC port
    #[arg(
        id = "member",
        long = "member",
        env = "GEOLOCK_MEMBER",
        value_delimiter = ',',
        value_name = "MEMBER"
    )]
    pub member: Vec<MemberEntry>,
    /// How long locks stay where they are used, by prefix of their names; the longest matching prefix
    /// applies; repeat for each (separated by ; in the environment): PREFIX:POLICY, where the policy is fair,
    /// throughput, latency or fixed; PREFIX:adaptive:TURN:MAX_KEEP; or, fixed,
    /// PREFIX:MIN_KEEP:MAX_KEEP:REQUEST_DELAY [default: :fair; 0 to 1000 hand-overs, 0 s to 1 h, MIN_KEEP to
    /// 1 h, 0 s to 500 ms]
    #[arg(id = "hold", long = "hold", env = "GEOLOCK_HOLD", value_delimiter = ';', value_name = "RULE")]
    pub hold: Vec<HoldEntry>,
    #[command(flatten, next_help_heading = "Addresses")]
    pub listen: ListenSection,
    #[command(flatten, next_help_heading = "Certificates")]
    pub tls: TlsSection,
    #[command(flatten, next_help_heading = "Access of clients")]
    pub api: ApiSection,
    #[command(flatten, next_help_heading = "Cluster")]
    pub cluster: ClusterSection,
    #[command(flatten, next_help_heading = "Limits")]
    pub limits: LimitsSection,
    #[command(flatten, next_help_heading = "Log on disk")]
    pub journal: JournalSection,
    #[command(flatten, next_help_heading = "Data")]
    pub store: StoreSection,
    #[command(flatten, next_help_heading = "Messages")]
    pub log: LogSection,
}

/// `[listen]`
#[derive(clap::Args, Deserialize, Clone, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub struct ListenSection {
    /// Address of the client API [default: 127.0.0.1:7400]
    #[arg(
        id = "listen.client",
        long = "listen-client",
        env = "GEOLOCK_LISTEN_CLIENT",
        value_name = "IP:PORT"
    )]
    pub client: Option<String>,
    /// Address for the other datacenters (UDP) [default: 0.0.0.0:7401]
    #[arg(id = "listen.quic", long = "listen-quic", env = "GEOLOCK_LISTEN_QUIC", value_name = "IP:PORT")]
    pub quic: Option<String>,
    /// Address of /metrics, /livez and /readyz, without TLS [default: 127.0.0.1:7402]
    #[arg(id = "listen.http", long = "listen-http", env = "GEOLOCK_LISTEN_HTTP", value_name = "IP:PORT")]
    pub http: Option<String>,
}

/// `[tls]`
#[derive(clap::Args, Deserialize, Clone, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub struct TlsSection {
    /// Folder with ca.pem, cert.pem and key.pem of this datacenter
    #[arg(id = "tls.dc", long = "tls-dc", env = "GEOLOCK_TLS_DC", value_name = "DIR")]
    pub dc: Option<PathBuf>,
    /// Folder with ca.pem, cert.pem and key.pem of the client API's server side [default: that of tls.dc]
    #[arg(id = "tls.api", long = "tls-api", env = "GEOLOCK_TLS_API", value_name = "DIR")]
    pub api: Option<PathBuf>,
    /// How often to check the certificate files for changes; SIGHUP checks at once [default: 1 min; 100 ms to
    /// 1 h]
    #[arg(
        id = "tls.check_interval",
        long = "tls-check-interval",
        env = "GEOLOCK_TLS_CHECK_INTERVAL",
        value_name = "TIME"
    )]
    pub check_interval: Option<String>,
}

/// `[api]`
#[derive(clap::Args, Deserialize, Clone, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub struct ApiSection {
    /// File of access rules; read again on SIGHUP [default: none, clients may do everything]
    #[arg(id = "api.acl", long = "api-acl", env = "GEOLOCK_API_ACL", value_name = "FILE")]
    pub acl: Option<PathBuf>,
    /// File of tokens that identify clients without a certificate; read again on SIGHUP [default: none]
    #[arg(id = "api.tokens", long = "api-tokens", env = "GEOLOCK_API_TOKENS", value_name = "FILE")]
    pub tokens: Option<PathBuf>,
    /// Admit clients with neither certificate nor token, as `anonymous` [default: false]
    #[arg(id = "api.anonymous", long = "api-anonymous", env = "GEOLOCK_API_ANONYMOUS", value_name = "BOOL")]
    pub anonymous: Option<bool>,
}

/// `[cluster]`: the same in all datacenters.
#[derive(clap::Args, Deserialize, Clone, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterSection {
    /// Name of the cluster: 1 to 64 of a-z, 0-9 and -
    #[arg(id = "cluster.name", long = "cluster-name", env = "GEOLOCK_CLUSTER_NAME", value_name = "NAME")]
    pub name: Option<String>,
    /// Servers that may join the cluster later: those that an operator has invited, or all with a certificate
    /// of the cluster. Used only when the cluster is founded [default: operator; operator or auto]
    #[arg(
        id = "cluster.join_policy",
        long = "cluster-join-policy",
        env = "GEOLOCK_CLUSTER_JOIN_POLICY",
        value_name = "POLICY"
    )]
    pub join_policy: Option<String>,
    /// How often datacenters announce their state to each other [default: 500 ms; 10 ms to 10 s]
    #[arg(
        id = "cluster.heartbeat_interval",
        long = "cluster-heartbeat-interval",
        env = "GEOLOCK_CLUSTER_HEARTBEAT_INTERVAL",
        value_name = "TIME"
    )]
    pub heartbeat_interval: Option<String>,
    /// A datacenter not heard from for this long is unreachable [default: 3 s; 3 heartbeats to 1 h]
    #[arg(
        id = "cluster.peer_timeout",
        long = "cluster-peer-timeout",
        env = "GEOLOCK_CLUSTER_PEER_TIMEOUT",
        value_name = "TIME"
    )]
    pub peer_timeout: Option<String>,
    /// Log entries stamped further ahead of the clock than this wait [default: 5 s; 100 ms to 1 h]
    #[arg(
        id = "cluster.max_clock_skew",
        long = "cluster-max-clock-skew",
        env = "GEOLOCK_CLUSTER_MAX_CLOCK_SKEW",
        value_name = "TIME"
    )]
    pub max_clock_skew: Option<String>,
}

/// `[journal]`
#[derive(clap::Args, Deserialize, Clone, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub struct JournalSection {
    /// Size of a file of the log; disk space is released in whole files [default: 64 MiB; 1 MiB to 1 GiB]
    #[arg(
        id = "journal.segment_bytes",
        long = "journal-segment-bytes",
        env = "GEOLOCK_JOURNAL_SEGMENT_BYTES",
        value_name = "SIZE"
    )]
    pub segment_bytes: Option<String>,
    /// A checkpoint is made when the log has grown by this much: more makes a restart slower and the disk
    /// less busy [default: 128 MiB; 1 MiB to 64 GiB]
    #[arg(
        id = "journal.checkpoint_bytes",
        long = "journal-checkpoint-bytes",
        env = "GEOLOCK_JOURNAL_CHECKPOINT_BYTES",
        value_name = "SIZE"
    )]
    pub checkpoint_bytes: Option<String>,
    /// While more than this waits for the disk, nothing that would be written is accepted from clients or
    /// other datacenters [default: 64 MiB; 1 MiB to 4 GiB]
    #[arg(
        id = "journal.max_backlog_bytes",
        long = "journal-max-backlog-bytes",
        env = "GEOLOCK_JOURNAL_MAX_BACKLOG_BYTES",
        value_name = "SIZE"
    )]
    pub max_backlog_bytes: Option<String>,
    /// With less than this free on the disk of the log, the server accepts no commits, so that records
    /// accepted before still find room [default: journal.max_backlog_bytes; 0 B to 64 GiB]
    #[arg(
        id = "journal.min_free_bytes",
        long = "journal-min-free-bytes",
        env = "GEOLOCK_JOURNAL_MIN_FREE_BYTES",
        value_name = "SIZE"
    )]
    pub min_free_bytes: Option<String>,
}

/// `[store]`
#[derive(clap::Args, Deserialize, Clone, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub struct StoreSection {
    /// Buckets whose commits are answered when a majority of the datacenters has them on disk, also if the
    /// client did not ask for it; a name that ends with * stands for all with this prefix; repeat for each
    /// (separated by commas in the environment) [default: none]
    #[arg(
        id = "store.majority_buckets",
        long = "store-majority-buckets",
        env = "GEOLOCK_STORE_MAJORITY_BUCKETS",
        value_delimiter = ',',
        value_name = "BUCKET"
    )]
    pub majority_buckets: Vec<String>,
}

/// `[log]`
#[derive(clap::Args, Deserialize, Clone, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub struct LogSection {
    /// Format of the server's own log: text or json [default: text]
    #[arg(id = "log.format", long = "log-format", env = "GEOLOCK_LOG_FORMAT", value_name = "FORMAT", value_parser = ["text", "json"], hide_possible_values = true)]
    pub format: Option<String>,
    /// Filter of the log: a level, or levels by module as in info,geolock::interdc=debug [default: info]
    #[arg(id = "log.filter", long = "log-filter", env = "GEOLOCK_LOG_FILTER", value_name = "FILTER")]
    pub filter: Option<String>,
}

/// `[[member]]`
#[derive(Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct MemberEntry {
    pub id: u64,
    pub name: String,
    pub address: String,
}

impl FromStr for MemberEntry {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<MemberEntry, &'static str> {
        let parts = text.split_once('=').and_then(|(id, rest)| Some((id, rest.split_once('@')?)));
        let (id, (name, address)) = parts.ok_or("a member is ID=NAME@HOST:PORT")?;
        let id = id.parse().map_err(|_| "the id of a member is a number")?;
        Ok(MemberEntry { id, name: name.into(), address: address.into() })
    }
}
