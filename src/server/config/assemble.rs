//! From options to the configurations of the modules: checks every value, and the relations between values.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use crate::access::AccessFiles;
use crate::journal::{JournalOptions, MAX_SEGMENT_BYTES, MIN_SEGMENT_BYTES};
use crate::lock_server::LockServerOptions;
use crate::replica::{AgreedConfig, BucketPattern, LocalConfig, MAX_LEASE_TTL, MIN_LEASE_TTL};
use crate::server::api::ApiOptions;
use crate::telemetry::{LogFormat, LogOptions};
use geolock_api::keys::MAX_BUCKET;
use geolock_api::names::{DcId, MAX_DCS, PLAIN, is_plain};

use super::error::ConfigError;
use super::hold::hold;
use super::join;
use super::options::{MemberEntry, Options};
use super::sources::{Given, Quoted, Sources};
use super::{Config, Listen, Member, Tls};

pub(super) const HOUR: Duration = Duration::from_secs(3600);
/// Bounds of counts per server.
const COUNTS: RangeInclusive<usize> = 1..=100_000_000;
/// Bounds of counts of items that cost a file descriptor or more each.
const STREAMS: RangeInclusive<usize> = 1..=1_000_000;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) fn assemble(from: &Sources<'_>) -> Result<Config, ConfigError> {
    let Place { cluster, dc, members, join } = match join::join(from)? {
        Some(place) => place,
        None => founder(from)?,
    };
    let data_dir = from.folder("data_dir", "the folder of the journal", |o| &o.data_dir)?;
    let tls = tls(from)?;
    let default = Config::new(&cluster, dc, members, &tls.dc, data_dir);
    let mut replica = default.replica;
    replica.agreed = agreed(from, replica.agreed)?;
    replica.local = local(from, replica.local)?;
    let server = server(from)?;
    Ok(Config {
        join,
        join_without_rules: from
            .optional("join_without_rules", |o| &o.join_without_rules)
            .is_some_and(|given| *given.value),
        join_policy: join::policy(from)?,
        replica,
        listen: listen(from)?,
        tls,
        journal: journal(from, default.journal, server.max_journal_backlog)?,
        server,
        api: api(from)?,
        access: access(from),
        log: log(from)?,
        ..default
    })
}

/// The place of a server in its cluster.
pub(super) struct Place {
    pub cluster: String,
    pub dc: DcId,
    pub members: Vec<Member>,
    pub join: Option<String>,
}

fn founder(from: &Sources<'_>) -> Result<Place, ConfigError> {
    let cluster = from.required("cluster.name", "the name of the cluster", |o| &o.cluster.name)?;
    check_name(&cluster, cluster.value)?;
    let members = members(from)?;
    let dc = this_dc(from, &members)?;
    for (key, given) in
        [("name", from.optional("name", |o| &o.name)), ("address", from.optional("address", |o| &o.address))]
    {
        if let Some(given) = given.filter(|given| !given.value.is_empty()) {
            return Err(
                given.refuse(Quoted(given.value), format!("{key} is for a server that joins (--join)"))
            );
        }
    }
    Ok(Place { cluster: cluster.value.clone(), dc, members, join: None })
}

fn journal(
    from: &Sources<'_>,
    default: JournalOptions,
    max_backlog: u64,
) -> Result<JournalOptions, ConfigError> {
    let segments = MIN_SEGMENT_BYTES..=MAX_SEGMENT_BYTES;
    let segment_bytes =
        from.size("journal.segment_bytes", segments, default.segment_bytes, |o| &o.journal.segment_bytes)?;
    // There must be room for all records that may wait for the disk.
    let min_free_bytes =
        from.size("journal.min_free_bytes", 0..=64 * GIB, max_backlog, |o| &o.journal.min_free_bytes)?;
    Ok(JournalOptions { segment_bytes, min_free_bytes, ..default })
}

pub(super) fn check_name<T>(given: &Given<T>, name: &str) -> Result<(), ConfigError> {
    if is_plain(name) { Ok(()) } else { Err(given.refuse(Quoted(name), PLAIN)) }
}

fn members(from: &Sources<'_>) -> Result<Vec<Member>, ConfigError> {
    let given = from.list("member", |o| &o.member);
    if given.value.is_empty() {
        return Err(from.missing("member", "one [[member]] with id, name and address per datacenter"));
    }
    let (mut ids, mut names, mut addresses) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut members = Vec::new();
    for option in given.value {
        let member = member(&given, option)?;
        if !ids.insert(member.dc) {
            return Err(given.refuse(format!("id {}", option.id), "two members have this id"));
        }
        if !names.insert(&option.name) {
            return Err(given.refuse(Quoted(&option.name), "two members have this name"));
        }
        if !addresses.insert(&option.address) {
            return Err(given.refuse(Quoted(&option.address), "two members have this address"));
        }
        members.push(member);
    }
    members.sort_by_key(|member| member.dc);
    Ok(members)
}

fn member(given: &Given<&[MemberEntry]>, option: &MemberEntry) -> Result<Member, ConfigError> {
    let dc = u8::try_from(option.id).ok().and_then(DcId::new);
    let dc = dc
        .ok_or_else(|| given.refuse(format!("id {}", option.id), format!("an id is 0 to {}", MAX_DCS - 1)))?;
    check_name(given, &option.name)?;
    check_address(given, &option.address)?;
    Ok(Member { dc, name: option.name.clone(), address: option.address.clone() })
}

pub(super) fn check_address<T>(given: &Given<T>, address: &str) -> Result<(), ConfigError> {
    let Some((host, port)) = address.rsplit_once(':') else {
        return Err(given.refuse(Quoted(address), "an address is host:port, port 1 to 65535"));
    };
    let why = match host.strip_prefix('[').map(|host| host.strip_suffix(']').unwrap_or("")) {
        _ if port.starts_with('+') || !port.parse::<u16>().is_ok_and(|port| port != 0) => {
            "an address is host:port, port 1 to 65535"
        }
        _ if host.contains('%') => "an address of one interface (%) has no meaning on other machines",
        Some(host) if host.parse::<Ipv6Addr>().is_err() => "between [ and ] there is an IPv6 address",
        Some(_) => return Ok(()),
        None if host.contains(':') && !host.contains('/') => {
            "an IPv6 address stands in [ ] before its port: [fd77::10]:7401"
        }
        None if !is_host(host) => "an address is host:port: a name, or an IP address",
        None => return Ok(()),
    };
    Err(given.refuse(Quoted(address), why))
}

/// Returns true for a name or an IPv4 address.
fn is_host(host: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let mut labels = host.strip_suffix('.').unwrap_or(host).split('.');
    let is_label = |label: &str| !label.is_empty() && label.len() <= 63 && label.bytes().all(is_plain);
    let is_number = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
    // Names do not end with a number (RFC 1123), so something like 10.0.0 or 10.0.0.256 is a slip.
    let ends_with_number = host.rsplit('.').next().is_some_and(|last| !last.is_empty() && is_number(last));
    if ends_with_number { host.parse::<Ipv4Addr>().is_ok() } else { labels.all(is_label) }
}

fn this_dc(from: &Sources<'_>, members: &[Member]) -> Result<DcId, ConfigError> {
    let given = from.required("dc", "the id of the member that this server is", |o| &o.dc)?;
    let dc = members.iter().map(|member| member.dc).find(|dc| u64::from(dc.get()) == *given.value);
    dc.ok_or_else(|| {
        let ids: Vec<_> = members.iter().map(|member| member.dc.get().to_string()).collect();
        given.refuse(given.value, format!("the id of a member, which are {}", ids.join(", ")))
    })
}

fn agreed(from: &Sources<'_>, default: AgreedConfig) -> Result<AgreedConfig, ConfigError> {
    let heartbeat =
        from.duration("cluster.heartbeat_interval", ms(10)..=ms(10_000), default.heartbeat, |o| {
            &o.cluster.heartbeat_interval
        })?;
    // With a long heartbeat the default would be out of bounds; then it grows with the heartbeat.
    let lowest = 3 * heartbeat;
    let peer_timeout = default.peer_timeout.max(lowest);
    let peer_timeout =
        from.duration("cluster.peer_timeout", lowest..=HOUR, peer_timeout, |o| &o.cluster.peer_timeout)?;
    let max_clock_skew =
        from.duration("cluster.max_clock_skew", ms(100)..=HOUR, default.max_clock_skew, |o| {
            &o.cluster.max_clock_skew
        })?;
    Ok(AgreedConfig { heartbeat, peer_timeout, max_clock_skew, ..default })
}

fn local(from: &Sources<'_>, default: LocalConfig) -> Result<LocalConfig, ConfigError> {
    let max_waiting =
        from.number("limits.max_waiting", COUNTS, default.max_waiting, |o| &o.limits.max_waiting)?;
    let (max_names_per_lease, max_names_per_client) = names(from, &default)?;
    Ok(LocalConfig {
        hold: hold(from)?,
        max_lease_ttl: from.duration(
            "limits.max_lease_ttl",
            MIN_LEASE_TTL..=MAX_LEASE_TTL,
            default.max_lease_ttl,
            |o| &o.limits.max_lease_ttl,
        )?,
        max_waiting_per_lease: from.number(
            "limits.max_waiting_per_lease",
            1..=max_waiting,
            default.max_waiting_per_lease.min(max_waiting),
            |o| &o.limits.max_waiting_per_lease,
        )?,
        max_waiting,
        max_names_per_lease,
        max_names_per_client,
        max_held: from.number("limits.max_held", COUNTS, default.max_held, |o| &o.limits.max_held)?,
        max_away_locks: from
            .number("limits.max_away_locks", COUNTS, default.max_away_locks, |o| &o.limits.max_away_locks)?,
        max_leases: from.number("limits.max_leases", COUNTS, default.max_leases, |o| &o.limits.max_leases)?,
        anti_entropy_interval: from.duration(
            "anti_entropy_interval",
            ms(100)..=HOUR,
            default.anti_entropy_interval,
            |o| &o.anti_entropy_interval,
        )?,
        max_transaction: from.duration(
            "limits.max_transaction_time",
            ms(1_000)..=HOUR,
            default.max_transaction,
            |o| &o.limits.max_transaction_time,
        )?,
        max_transactions: from.number("limits.max_transactions", COUNTS, default.max_transactions, |o| {
            &o.limits.max_transactions
        })?,
        max_transaction_bytes: from.size(
            "limits.max_transaction_bytes",
            8 << 20..=1 << 40,
            default.max_transaction_bytes as u64,
            |o| &o.limits.max_transaction_bytes,
        )? as usize,
        max_log: from.size("limits.max_log_bytes", MIB..=16 * GIB, default.max_log as u64, |o| {
            &o.limits.max_log_bytes
        })? as usize,
        max_watch_bytes: from.size(
            "limits.max_watch_bytes",
            1 << 20..=1 << 40,
            default.max_watch_bytes as u64,
            |o| &o.limits.max_watch_bytes,
        )? as usize,
        describe_timeout: from.duration(
            "limits.describe_timeout",
            ms(10)..=ms(5_000),
            default.describe_timeout,
            |o| &o.limits.describe_timeout,
        )?,
        majority_buckets: majority_buckets(from)?,
        kept_decisions: default.kept_decisions,
        link_window: from
            .number("limits.link_window", 1..=4096, default.link_window, |o| &o.limits.link_window)?,
        checkpoint_rows: default.checkpoint_rows,
        hash_seed: default.hash_seed,
    })
}

/// Returns the most bytes of names of a lease, and of all leases of a client.
fn names(from: &Sources<'_>, default: &LocalConfig) -> Result<(usize, usize), ConfigError> {
    let per_lease = default.max_names_per_lease as u64;
    let per_lease = from.size("limits.max_name_bytes_per_lease", 2 * MIB..=64 * GIB, per_lease, |o| {
        &o.limits.max_name_bytes_per_lease
    })?;
    // A limit of a lease above the default of a client raises that.
    let per_client = per_lease.max(default.max_names_per_client as u64);
    let per_client =
        from.size("limits.max_name_bytes_per_client", per_lease..=64 * GIB, per_client, |o| {
            &o.limits.max_name_bytes_per_client
        })?;
    Ok((per_lease as usize, per_client as usize))
}

fn majority_buckets(from: &Sources<'_>) -> Result<Vec<BucketPattern>, ConfigError> {
    let given = from.list("store.majority_buckets", |o| &o.store.majority_buckets);
    let pattern = |text: &String| {
        let (name, is_prefix) = text.strip_suffix('*').map_or((text.as_str(), false), |name| (name, true));
        if (name.is_empty() && !is_prefix) || name.len() > MAX_BUCKET {
            let allowed =
                format!("a bucket of 1 to {MAX_BUCKET} bytes, or the beginning of one with * behind");
            return Err(given.refuse(Quoted(text), allowed));
        }
        let name = name.as_bytes().to_vec();
        Ok(if is_prefix { BucketPattern::Prefix(name) } else { BucketPattern::Named(name) })
    };
    given.value.iter().map(pattern).collect()
}

fn server(from: &Sources<'_>) -> Result<LockServerOptions, ConfigError> {
    let default = LockServerOptions::default();
    let session_backlog = from.size(
        "limits.max_unread_bytes_per_session",
        8 * MIB..=GIB,
        default.session_backlog as u64,
        |o| &o.limits.max_unread_bytes_per_session,
    )?;
    let mailbox = default.mailbox_bytes as u64;
    let mailbox =
        from.size("limits.max_mailbox_bytes", 8 * MIB..=16 * GIB, mailbox, |o| &o.limits.max_mailbox_bytes)?;
    Ok(LockServerOptions {
        max_sessions: from
            .number("limits.max_sessions", STREAMS, default.max_sessions, |o| &o.limits.max_sessions)?,
        session_backlog: usize::try_from(session_backlog).expect("at most a GiB"),
        checkpoint_after: from.size(
            "journal.checkpoint_bytes",
            MIB..=64 * GIB,
            default.checkpoint_after,
            |o| &o.journal.checkpoint_bytes,
        )?,
        max_journal_backlog: from.size(
            "journal.max_backlog_bytes",
            MIB..=4 * GIB,
            default.max_journal_backlog,
            |o| &o.journal.max_backlog_bytes,
        )?,
        mailbox_bytes: mailbox as usize,
        client_mailbox: from.size(
            "limits.max_mailbox_bytes_per_client",
            4 * MIB..=16 * GIB,
            mailbox / 2,
            |o| &o.limits.max_mailbox_bytes_per_client,
        )? as usize,
        session_mailbox: from.size(
            "limits.max_mailbox_bytes_per_session",
            64 << 10..=GIB,
            default.session_mailbox as u64,
            |o| &o.limits.max_mailbox_bytes_per_session,
        )? as usize,
        max_queue_delay: from.duration(
            "limits.max_queue_delay",
            ms(10)..=ms(60_000),
            default.max_queue_delay,
            |o| &o.limits.max_queue_delay,
        )?,
        drain_timeout: from.duration(
            "drain_timeout",
            Duration::ZERO..=ms(600_000),
            default.drain_timeout,
            |o| &o.drain_timeout,
        )?,
        ..default
    })
}

fn api(from: &Sources<'_>) -> Result<ApiOptions, ConfigError> {
    let default = ApiOptions::default();
    let connections = from
        .number("limits.max_connections", STREAMS, default.max_connections, |o| &o.limits.max_connections)?;
    let streams = default.max_streams as usize;
    let streams = from.number("limits.max_streams_per_connection", 1..=65_536, streams, |o| {
        &o.limits.max_streams_per_connection
    })?;
    let max_streams = u32::try_from(streams).expect("at most 65536");
    let sessions =
        from.number("limits.max_sessions", STREAMS, LockServerOptions::default().max_sessions, |o| {
            &o.limits.max_sessions
        })?;
    Ok(ApiOptions {
        max_connections: connections,
        max_streams,
        max_sessions_per_client: from.number(
            "limits.max_sessions_per_client",
            STREAMS,
            sessions.div_ceil(2),
            |o| &o.limits.max_sessions_per_client,
        )?,
        max_calls_per_client: from.number(
            "limits.max_calls_per_client",
            STREAMS,
            default.max_calls_per_client,
            |o| &o.limits.max_calls_per_client,
        )?,
        max_bytes_per_client: from.size(
            "limits.max_buffered_bytes_per_client",
            16 * MIB..=64 * GIB,
            default.max_bytes_per_client as u64,
            |o| &o.limits.max_buffered_bytes_per_client,
        )? as usize,
        ..default
    })
}

pub(super) fn listen(from: &Sources<'_>) -> Result<Listen, ConfigError> {
    let default = Listen::default();
    let client = address(from, "listen.client", default.client, |o| &o.listen.client)?;
    let quic = address(from, "listen.quic", default.quic, |o| &o.listen.quic)?;
    let http = address(from, "listen.http", default.http, |o| &o.listen.http)?;
    // Both are TCP. Port 0 means any free port.
    if client == http && client.port() != 0 {
        let given = from.optional("listen.http", |o| &o.listen.http);
        let given = given.or_else(|| from.optional("listen.client", |o| &o.listen.client));
        let given = given.expect("the defaults differ");
        return Err(given.refuse(Quoted(given.value), "listen.client and listen.http are the same"));
    }
    Ok(Listen { client, quic, http })
}

fn address<'a>(
    from: &Sources<'a>,
    key: &'static str,
    default: SocketAddr,
    field: impl Fn(&'a Options) -> &'a Option<String>,
) -> Result<SocketAddr, ConfigError> {
    match from.optional(key, field) {
        None => Ok(default),
        Some(given) => given.value.parse().map_err(|_| {
            given.refuse(
                Quoted(given.value),
                "IP:port, as 127.0.0.1:7400 or [::1]:7400; 0.0.0.0 or [::] for all",
            )
        }),
    }
}

pub(super) fn tls(from: &Sources<'_>) -> Result<Tls, ConfigError> {
    let what = "a folder with ca.pem, cert.pem and key.pem (see `geolock ca`)";
    let dc = from.folder("tls.dc", what, |o| &o.tls.dc)?;
    let api = match from.optional("tls.api", |o| &o.tls.api) {
        None => dc.clone(),
        Some(_) => from.folder("tls.api", what, |o| &o.tls.api)?,
    };
    let default = Tls::of(&dc);
    let check_interval =
        from.duration("tls.check_interval", ms(100)..=HOUR, default.check_interval, |o| {
            &o.tls.check_interval
        })?;
    Ok(Tls { api, check_interval, ..default })
}

/// An empty path means no file, so that a flag or the file can cancel a value of lower precedence.
fn access(from: &Sources<'_>) -> AccessFiles {
    let file = |given: Option<Given<&PathBuf>>| {
        given.map(|given| given.value.clone()).filter(|path| !path.as_os_str().is_empty())
    };
    AccessFiles {
        acl: file(from.optional("api.acl", |o| &o.api.acl)),
        tokens: file(from.optional("api.tokens", |o| &o.api.tokens)),
        anonymous: from.optional("api.anonymous", |o| &o.api.anonymous).is_some_and(|given| *given.value),
    }
}

fn log(from: &Sources<'_>) -> Result<LogOptions, ConfigError> {
    let mut log = LogOptions::default();
    if let Some(given) = from.optional("log.format", |o| &o.log.format) {
        log.format = match given.value.as_str() {
            "text" => LogFormat::Text,
            "json" => LogFormat::Json,
            other => return Err(given.refuse(Quoted(other), "text or json")),
        };
    }
    if let Some(given) = from.optional("log.filter", |o| &o.log.filter) {
        log.filter = given.value.clone();
        log.check().map_err(|error| {
            given.refuse(Quoted(given.value), format!("a level or levels by module ({error})"))
        })?;
    }
    Ok(log)
}
