//! Options of the API, and its fixed bounds.

use std::time::Duration;

/// The options of the API that each process may choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiOptions {
    /// Most connections at a time, including handshakes. Default 4 096; further ones wait in the listen
    /// queue.
    pub max_connections: usize,
    /// Most streams of a connection at a time; a unary call is one too. Default 256.
    pub max_streams: u32,
    /// Most sessions (streams and watches) of one client at a time: of one certificate, one token, or one
    /// address without either. Default 8 192, half of a server's limit, so that no client takes all of them.
    pub max_sessions_per_client: usize,
    /// Most calls of one client in progress at a time, including streams. Default 16 384. Each takes some 10
    /// KiB, beside its request and its answer, which `max_bytes_per_client` bounds.
    pub max_calls_per_client: usize,
    /// Most bytes of answers that one client has not accepted yet, besides the first 64 KiB of each of its
    /// sessions, and as many of its large requests that are incomplete or unanswered. Default 256 MiB:
    /// sixteen watches that catch up at a time.
    pub max_bytes_per_client: usize,
    /// Time limit of a TLS handshake. Default 10 s.
    pub handshake_timeout: Duration,
    /// A connection that is silent for that long is pinged, and closed if it does not answer within the same
    /// time. Default 10 s. Leases live on in either case, until their time to live is over.
    pub keep_alive: Duration,
    /// Time limit for connections to end after the lock server has stopped. Default 2 s.
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

/// Largest message from a client: a request has at most 1 MiB of names, and 10 000 times the encoding around
/// a name.
pub(super) const MAX_MESSAGE: usize = 2 << 20;
/// The same for the health service.
pub(super) const MAX_HEALTH_MESSAGE: usize = 1 << 10;
/// Most bytes of lock descriptions in an answer on a stream.
pub(super) const MAX_EXPLANATION: usize = 1 << 20;
/// The same for trailers: clients accept 8 KiB of them by default, and base64 needs a third more.
pub(super) const MAX_EXPLANATION_IN_TRAILERS: usize = 3 << 10;
/// Locks on a page of a listing: default and maximum.
pub(super) const PAGE: u32 = 100;
pub(super) const MAX_PAGE: u32 = 1_000;
/// Default number of hot locks in an answer.
pub(super) const TOP: u32 = 20;
/// Most bytes of reclaims in several messages that a stream may collect.
pub(super) const MAX_GATHERED: usize = 64 << 20;
/// The same for all streams together: about the total of a server at its limits, since after its restart all
/// come at once.
pub(super) const MAX_GATHERED_BY_ALL: usize = 1 << 30;
/// The newest revision of the API.
pub(super) const REVISION: u32 = 1;
