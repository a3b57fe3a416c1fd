//! The QUIC settings.

use std::sync::Arc;
use std::time::Duration;

use quinn::congestion::BbrConfig;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, EndpointConfig, IdleTimeout, ServerConfig, TransportConfig, VarInt};

use super::accept::MAX_PENDING;
use super::error::InterdcError;
use super::event::Lane;
use crate::pki::Credentials;
use geolock_api::names::DcId;

/// The keep-alive interval of a quiet link; shorter when `peer_timeout` is short.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// With this window a lane carries about 8 MB/s over round trips of 220 ms. A larger window would carry more
/// on long paths. But quinn (0.11) keeps at most 1024 out-of-order pieces of a stream and ends the connection
/// beyond that; with a window of at most twice as many packets, no pattern of losses can produce so many.
pub(super) const STREAM_WINDOW: u32 = 2 << 20;
/// Each lane has its own window even if the others are blocked: heartbeats arrive while nothing else is
/// received.
const CONNECTION_WINDOW: u32 = Lane::COUNT as u32 * STREAM_WINDOW;
/// Most bytes that all connections not yet accepted may have sent beyond their first packets.
const INCOMING_BUFFER: u64 = 1 << 20;

/// The name in the TLS handshake. It decides nothing: a peer is identified by its certificate.
pub(super) const SERVER_NAME: &str = "geolock";

/// Returns the settings that both sides share.
pub(super) fn transport(peer_timeout: Duration) -> Result<Arc<TransportConfig>, InterdcError> {
    let out_of_range = || InterdcError::BadPeerTimeout(peer_timeout);
    if !(Duration::from_millis(10)..=Duration::from_secs(86_400)).contains(&peer_timeout) {
        return Err(out_of_range());
    }
    let idle = IdleTimeout::try_from(peer_timeout).map_err(|_| out_of_range())?;
    let mut config = TransportConfig::default();
    config
        .max_idle_timeout(Some(idle))
        .keep_alive_interval(Some(KEEP_ALIVE.min(peer_timeout / 3)))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(VarInt::from_u32(CONNECTION_WINDOW))
        .send_window(u64::from(CONNECTION_WINDOW))
        // One stream for the hello, or for a request to join; one for each lane.
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .max_concurrent_uni_streams(VarInt::from_u32(Lane::COUNT as u32))
        .datagram_receive_buffer_size(None)
        // Measured (docs/performance.md): BBR carries many times the throughput of Cubic when one datagram in
        // a thousand is lost, and no less when none is.
        .congestion_controller_factory(Arc::new(BbrConfig::default()));
    Ok(Arc::new(config))
}

pub(super) fn endpoint() -> EndpointConfig {
    EndpointConfig::default()
}

pub(super) fn server(
    tls: &Credentials,
    transport: &Arc<TransportConfig>,
) -> Result<ServerConfig, InterdcError> {
    let crypto = QuicServerConfig::try_from(tls.accept_dcs()?)?;
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    config
        .transport_config(transport.clone())
        .max_incoming(MAX_PENDING)
        .incoming_buffer_size_total(INCOMING_BUFFER)
        // The addresses of datacenters do not change during a connection, and neither may the path of a link.
        .migration(false);
    Ok(config)
}

pub(super) fn client(
    tls: &Credentials,
    peer: DcId,
    transport: &Arc<TransportConfig>,
) -> Result<ClientConfig, InterdcError> {
    let crypto = QuicClientConfig::try_from(tls.dial_dc(peer)?)?;
    let mut config = ClientConfig::new(Arc::new(crypto));
    config.transport_config(transport.clone());
    Ok(config)
}

/// As [`client`], for any other datacenter of the cluster.
pub(super) fn client_of_any(
    tls: &Credentials,
    transport: &Arc<TransportConfig>,
) -> Result<ClientConfig, InterdcError> {
    let crypto = QuicClientConfig::try_from(tls.dial_other_dc()?)?;
    let mut config = ClientConfig::new(Arc::new(crypto));
    config.transport_config(transport.clone());
    Ok(config)
}
