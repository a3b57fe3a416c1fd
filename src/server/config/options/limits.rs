//! The options of `[limits]`.

use serde::Deserialize;

/// `[limits]`: chosen by each server.
#[derive(clap::Args, Deserialize, Clone, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsSection {
    /// Longest time to live of a lease; bounds the grace after a restart. Do not lower it in the start that
    /// finds a lost or restored disk [default: 60 s; 1 s to 1 h]
    #[arg(
        id = "limits.max_lease_ttl",
        long = "limits-max-lease-ttl",
        env = "GEOLOCK_LIMITS_MAX_LEASE_TTL",
        value_name = "TIME"
    )]
    pub max_lease_ttl: Option<String>,
    /// Most waiting requests of a lease [default: 10000; 1 to limits.max_waiting]
    #[arg(
        id = "limits.max_waiting_per_lease",
        long = "limits-max-waiting-per-lease",
        env = "GEOLOCK_LIMITS_MAX_WAITING_PER_LEASE",
        value_name = "N"
    )]
    pub max_waiting_per_lease: Option<u64>,
    /// Memory for the lock names of one lease's requests, held and waiting [default: 64 MiB; 2 MiB to 64 GiB]
    #[arg(
        id = "limits.max_name_bytes_per_lease",
        long = "limits-max-name-bytes-per-lease",
        env = "GEOLOCK_LIMITS_MAX_NAME_BYTES_PER_LEASE",
        value_name = "SIZE"
    )]
    pub max_name_bytes_per_lease: Option<String>,
    /// The same for all leases of one client [default: 256 MiB; limits.max_name_bytes_per_lease to 64 GiB]
    #[arg(
        id = "limits.max_name_bytes_per_client",
        long = "limits-max-name-bytes-per-client",
        env = "GEOLOCK_LIMITS_MAX_NAME_BYTES_PER_CLIENT",
        value_name = "SIZE"
    )]
    pub max_name_bytes_per_client: Option<String>,
    /// Most streams of one client: one certificate, one token, or one address with neither; half of
    /// limits.max_sessions if not given [default: 8192; 1 to 1000000]
    #[arg(
        id = "limits.max_sessions_per_client",
        long = "limits-max-sessions-per-client",
        env = "GEOLOCK_LIMITS_MAX_SESSIONS_PER_CLIENT",
        value_name = "N"
    )]
    pub max_sessions_per_client: Option<u64>,
    /// Most gRPC calls of one client in progress [default: 16384; 1 to 1000000]
    #[arg(
        id = "limits.max_calls_per_client",
        long = "limits-max-calls-per-client",
        env = "GEOLOCK_LIMITS_MAX_CALLS_PER_CLIENT",
        value_name = "N"
    )]
    pub max_calls_per_client: Option<u64>,
    /// Answers that one client has not read, besides the first 64 KiB of each stream; also the limit of its
    /// large requests that are incomplete or not answered [default: 256 MiB; 16 MiB to 64 GiB]
    #[arg(
        id = "limits.max_buffered_bytes_per_client",
        long = "limits-max-buffered-bytes-per-client",
        env = "GEOLOCK_LIMITS_MAX_BUFFERED_BYTES_PER_CLIENT",
        value_name = "SIZE"
    )]
    pub max_buffered_bytes_per_client: Option<String>,
    /// Most waiting requests: about 400 bytes for one lock with a short name, more with names, label and
    /// further locks [default: 1000000; 1 to 100000000]
    #[arg(
        id = "limits.max_waiting",
        long = "limits-max-waiting",
        env = "GEOLOCK_LIMITS_MAX_WAITING",
        value_name = "N"
    )]
    pub max_waiting: Option<u64>,
    /// Most held requests, and locks beyond the first of any request: about 600 bytes for one lock [default:
    /// 4000000; 1 to 100000000]
    #[arg(
        id = "limits.max_held",
        long = "limits-max-held",
        env = "GEOLOCK_LIMITS_MAX_HELD",
        value_name = "N"
    )]
    pub max_held: Option<u64>,
    /// Most locks with parts here whose homes are other datacenters; beyond it, those unused for longest
    /// return them. It takes about 200 bytes in every member, and one with a longer name counts once for
    /// each 256 bytes of it [default: 1000000; 1 to 100000000]
    #[arg(
        id = "limits.max_away_locks",
        long = "limits-max-away-locks",
        env = "GEOLOCK_LIMITS_MAX_AWAY_LOCKS",
        value_name = "N"
    )]
    pub max_away_locks: Option<u64>,
    /// Most leases [default: 1000000; 1 to 100000000]
    #[arg(
        id = "limits.max_leases",
        long = "limits-max-leases",
        env = "GEOLOCK_LIMITS_MAX_LEASES",
        value_name = "N"
    )]
    pub max_leases: Option<u64>,
    /// Longest time that a transaction is open; bounds how long a client that hangs keeps locks and old
    /// versions [default: 20 s; 1 s to 1 h]
    #[arg(
        id = "limits.max_transaction_time",
        long = "limits-max-transaction-time",
        env = "GEOLOCK_LIMITS_MAX_TRANSACTION_TIME",
        value_name = "TIME"
    )]
    pub max_transaction_time: Option<String>,
    /// Most transactions that are open or wait [default: 100000; 1 to 100000000]
    #[arg(
        id = "limits.max_transactions",
        long = "limits-max-transactions",
        env = "GEOLOCK_LIMITS_MAX_TRANSACTIONS",
        value_name = "N"
    )]
    pub max_transactions: Option<u64>,
    /// Memory for the changes of all transactions that are not committed yet, and for the keys of waiting
    /// reads [default: 256 MiB; 8 MiB to 1024 GiB]
    #[arg(
        id = "limits.max_transaction_bytes",
        long = "limits-max-transaction-bytes",
        env = "GEOLOCK_LIMITS_MAX_TRANSACTION_BYTES",
        value_name = "SIZE"
    )]
    pub max_transaction_bytes: Option<String>,
    /// Log entries kept for members that lack them; beyond it, such a member gets a copy of the state when it
    /// is back [default: 256 MiB; 1 MiB to 16 GiB]
    #[arg(
        id = "limits.max_log_bytes",
        long = "limits-max-log-bytes",
        env = "GEOLOCK_LIMITS_MAX_LOG_BYTES",
        value_name = "SIZE"
    )]
    pub max_log_bytes: Option<String>,
    /// Memory for the names that all watches follow [default: 64 MiB; 1 MiB to 1024 GiB]
    #[arg(
        id = "limits.max_watch_bytes",
        long = "limits-max-watch-bytes",
        env = "GEOLOCK_LIMITS_MAX_WATCH_BYTES",
        value_name = "SIZE"
    )]
    pub max_watch_bytes: Option<String>,
    /// How long a description waits for other datacenters; also, how long before an acquire times out other
    /// datacenters are asked for the holders of its locks [default: 1 s; 10 ms to 5 s]
    #[arg(
        id = "limits.describe_timeout",
        long = "limits-describe-timeout",
        env = "GEOLOCK_LIMITS_DESCRIBE_TIMEOUT",
        value_name = "TIME"
    )]
    pub describe_timeout: Option<String>,
    /// Most connections of clients; more wait in the listen queue [default: 4096; 1 to 1000000]
    #[arg(
        id = "limits.max_connections",
        long = "limits-max-connections",
        env = "GEOLOCK_LIMITS_MAX_CONNECTIONS",
        value_name = "N"
    )]
    pub max_connections: Option<u64>,
    /// Most streams of a connection; a unary call is one, too [default: 256; 1 to 65536]
    #[arg(
        id = "limits.max_streams_per_connection",
        long = "limits-max-streams-per-connection",
        env = "GEOLOCK_LIMITS_MAX_STREAMS_PER_CONNECTION",
        value_name = "N"
    )]
    pub max_streams_per_connection: Option<u64>,
    /// Most client streams in all; more are refused [default: 16384; 1 to 1000000]
    #[arg(
        id = "limits.max_sessions",
        long = "limits-max-sessions",
        env = "GEOLOCK_LIMITS_MAX_SESSIONS",
        value_name = "N"
    )]
    pub max_sessions: Option<u64>,
    /// Memory for waiting calls of all clients, besides the first 32 KiB of each stream; beyond it, of
    /// clients whose calls do not fit only renewals are handled [default: 64 MiB; 8 MiB to 16 GiB]
    #[arg(
        id = "limits.max_mailbox_bytes",
        long = "limits-max-mailbox-bytes",
        env = "GEOLOCK_LIMITS_MAX_MAILBOX_BYTES",
        value_name = "SIZE"
    )]
    pub max_mailbox_bytes: Option<String>,
    /// The same for one stream [default: 4 MiB; 64 KiB to 1 GiB]
    #[arg(
        id = "limits.max_mailbox_bytes_per_session",
        long = "limits-max-mailbox-bytes-per-session",
        env = "GEOLOCK_LIMITS_MAX_MAILBOX_BYTES_PER_SESSION",
        value_name = "SIZE"
    )]
    pub max_mailbox_bytes_per_session: Option<String>,
    /// The same for one client, over all its streams and calls; half of limits.max_mailbox_bytes if not given
    /// [default: 32 MiB; 4 MiB to 16 GiB]
    #[arg(
        id = "limits.max_mailbox_bytes_per_client",
        long = "limits-max-mailbox-bytes-per-client",
        env = "GEOLOCK_LIMITS_MAX_MAILBOX_BYTES_PER_CLIENT",
        value_name = "SIZE"
    )]
    pub max_mailbox_bytes_per_client: Option<String>,
    /// Answers that wait for a client that does not read; beyond it, its stream is closed [default: 16 MiB;
    /// 8 MiB to 1 GiB]
    #[arg(
        id = "limits.max_unread_bytes_per_session",
        long = "limits-max-unread-bytes-per-session",
        env = "GEOLOCK_LIMITS_MAX_UNREAD_BYTES_PER_SESSION",
        value_name = "SIZE"
    )]
    pub max_unread_bytes_per_session: Option<String>,
    /// When calls wait inside the server for longer than this, new work of clients is refused until calls
    /// wait less [default: 250 ms; 10 ms to 1 min]
    #[arg(
        id = "limits.max_queue_delay",
        long = "limits-max-queue-delay",
        env = "GEOLOCK_LIMITS_MAX_QUEUE_DELAY",
        value_name = "TIME"
    )]
    pub max_queue_delay: Option<String>,
    /// Most messages queued on a link to a datacenter [default: 64; 1 to 4096]
    #[arg(
        id = "limits.link_window",
        long = "limits-link-window",
        env = "GEOLOCK_LIMITS_LINK_WINDOW",
        value_name = "N"
    )]
    pub link_window: Option<u64>,
}
