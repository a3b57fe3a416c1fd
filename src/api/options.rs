//! Options of the API, and its fixed bounds.

use std::time::Duration;

/// What a process may choose about its API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiOptions {
    /// Most connections at a time, handshakes among them. Default 4 096; further ones wait in the listen queue.
    pub max_connections: usize,
    /// Most streams of a connection at a time; a unary call is one too. Default 256.
    pub max_streams: u32,
    /// Most sessions (streams and watches) of one client at a time: of one certificate, one token, or one address that shows
    /// neither. Default 8 192, half of what a server has, so that no client takes all of them.
    pub max_sessions_per_client: usize,
    /// Most calls of one client under way at a time, streams among them. Default 16 384. Each takes some 10 KiB,
    /// and its request and its answer, which `max_bytes_per_client` bounds.
    pub max_calls_per_client: usize,
    /// Most bytes of one client's answers that it has not taken, besides the first 64 KiB of each of its sessions, and as many
    /// of its large requests that are not all here or not answered. Default 256 MiB: sixteen watches that catch up at a time.
    pub max_bytes_per_client: usize,
    /// How long a TLS handshake may take. Default 10 s.
    pub handshake_timeout: Duration,
    /// A connection that is silent for that long is asked whether it is there, and closed when it does not
    /// answer within the same time. Default 10 s. Leases live on regardless, up to their own time.
    pub keep_alive: Duration,
    /// How long connections may take to end after the lock server has stopped. Default 2 s.
    pub goodbye: Duration,
}

impl Default for ApiOptions {
    fn default() -> ApiOptions {
        ApiOptions {
            max_connections: 4_096,
            max_streams: 256,
            max_sessions_per_client: 8_192,
            max_calls_per_client: 16_384,
            max_bytes_per_client: 256 << 20,
            handshake_timeout: Duration::from_secs(10),
            keep_alive: Duration::from_secs(10),
            goodbye: Duration::from_secs(2),
        }
    }
}

/// Largest message from a client: a request has at most 1 MiB of names, and 10 000 times the wrapping of a name.
pub(super) const MAX_MESSAGE: usize = 2 << 20;
/// The same of the health service.
pub(super) const MAX_HEALTH_MESSAGE: usize = 1 << 10;
/// Most bytes of lock descriptions in an answer on a stream.
pub(super) const MAX_EXPLANATION: usize = 1 << 20;
/// The same in trailers: clients take 8 KiB of them by default, and base64 needs a third more.
pub(super) const MAX_EXPLANATION_IN_TRAILERS: usize = 3 << 10;
/// Locks on a page of a listing: unless told, and at most.
pub(super) const PAGE: u32 = 100;
pub(super) const MAX_PAGE: u32 = 1_000;
/// Locks of which a client is shown that they are hot, unless told.
pub(super) const TOP: u32 = 20;
/// Time to live of a lease unless told.
pub(super) const DEFAULT_TTL: Duration = Duration::from_secs(10);
/// Bytes of reclaims in several messages that a stream may gather.
pub(super) const MAX_GATHERED: usize = 64 << 20;
/// The same of all streams together: about what a server can hold at all, after whose restart all come at once.
pub(super) const MAX_GATHERED_BY_ALL: usize = 1 << 30;
/// The newest revision of the API.
pub(super) const REVISION: u32 = 1;
