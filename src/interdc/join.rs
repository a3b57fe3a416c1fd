//! The request of a server that is no member, on the first bidirectional stream of a connection of its own:
//!
//! ```text
//!   server                             member
//!      ── format, length, request ──────>
//!          <──── format, length, answer ──     the connection ends
//! ```
//!
//! The format byte differs from that of a hello, so a member of an earlier release refuses the request in
//! words. Both sides have certificates of the cluster, and that of the caller names its datacenter; the bytes
//! are opaque here. A caller is answered at once and asks again for what takes time, so a connection occupies
//! one of the few places for peers that are not identified only for a moment.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use quinn::{Connection, Endpoint, RecvStream, SendStream};
use tokio::net::lookup_host;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::config::JoinCall;
use super::error::{AttemptError, CloseCode, InterdcError, Refusal};
use super::transport;
use crate::pki::Credentials;
use geolock_api::names::DcId;

/// The first byte of a request to join, and of its answer.
pub(super) const JOIN_FORMAT: u8 = 2;
/// Maximum size of a request to join, in bytes.
pub const MAX_JOIN_REQUEST: usize = 4 << 10;
/// Maximum size of an answer, in bytes: the members of the largest cluster, with their addresses.
pub const MAX_JOIN_ANSWER: usize = 64 << 10;

/// No answer came from the member that was asked to let this server join. Nothing was changed, unless a
/// request before this one was answered.
#[derive(Debug, thiserror::Error)]
pub enum JoinCallError {
    #[error("cannot reach {address}: {reason}")]
    Unreachable { address: String, reason: String },
    #[error("{address} refuses: {reason}")]
    Refused { address: String, reason: String },
    #[error("{address} gave no answer within {}", crate::base::time::brief(*.limit))]
    TimedOut { address: String, limit: Duration },
    #[error(transparent)]
    Setup(#[from] InterdcError),
}

/// Sends a request to the member at `address`, `host:port` of its QUIC listener, and returns the answer.
pub async fn ask_to_join(
    tls: &Credentials,
    address: &str,
    request: &[u8],
    limit: Duration,
) -> Result<Bytes, JoinCallError> {
    let failed = |reason: String| JoinCallError::Unreachable { address: address.into(), reason };
    let found = timeout(limit, lookup_host(address)).await;
    let found = found.map_err(|_| failed("its name is not resolved in time".into()))?;
    let found: Vec<_> = found.map_err(|error| failed(error.to_string()))?.collect();
    let mut last = failed("the name has no address".into());
    for to in found {
        match timeout(limit, ask_at(tls, to, request, limit)).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(AskError::Setup(error))) => return Err(error.into()),
            Ok(Err(AskError::Attempt(
                AttemptError::RefusedByPeer(reason) | AttemptError::NotMember(reason),
            ))) => {
                return Err(JoinCallError::Refused { address: address.into(), reason });
            }
            Ok(Err(AskError::Attempt(error))) => last = failed(error.to_string()),
            Err(_) => last = JoinCallError::TimedOut { address: address.into(), limit },
        }
    }
    Err(last)
}

#[derive(Debug, thiserror::Error)]
enum AskError {
    #[error(transparent)]
    Setup(#[from] InterdcError),
    #[error(transparent)]
    Attempt(#[from] AttemptError),
}

async fn ask_at(
    tls: &Credentials,
    to: SocketAddr,
    request: &[u8],
    limit: Duration,
) -> Result<Bytes, AskError> {
    let from = match to {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let endpoint = Endpoint::client(from).map_err(InterdcError::Setup)?;
    let config = transport::client_of_any(tls, &transport::transport(limit)?)?;
    let connecting = endpoint.connect_with(config, to, transport::SERVER_NAME);
    let connecting = connecting.map_err(|error| AttemptError::Connect(error.to_string()))?;
    let connection = connecting.await.map_err(AttemptError::from)?;
    let answer = exchange(&connection, request).await;
    connection.close(CloseCode::ShuttingDown.value(), b"answered");
    endpoint.wait_idle().await;
    Ok(answer?)
}

async fn exchange(connection: &Connection, request: &[u8]) -> Result<Bytes, AttemptError> {
    let (mut send, mut receive) = connection.open_bi().await?;
    write(&mut send, request).await?;
    let mut format = [0];
    receive.read_exact(&mut format).await?;
    if format != [JOIN_FORMAT] {
        return Err(Refusal::NotHello(format!("format {}, known here is {JOIN_FORMAT}", format[0])).into());
    }
    read(&mut receive, MAX_JOIN_ANSWER).await
}

/// Answers a request whose format byte was read.
pub(super) async fn answer(
    (send, receive): (&mut SendStream, &mut RecvStream),
    from: DcId,
    joins: Option<&mpsc::Sender<JoinCall>>,
) -> Result<(), AttemptError> {
    let request = read(receive, MAX_JOIN_REQUEST).await?;
    let (answer, answered) = oneshot::channel();
    let call = JoinCall { from, request, answer };
    let Some(Ok(())) = joins.map(|joins| joins.try_send(call)) else {
        return Err(Refusal::NoJoins.into());
    };
    let answer = answered.await.map_err(|_| Refusal::NoJoins)?;
    write(send, &answer).await?;
    // The caller closes the connection when it has the answer.
    let _ = send.finish();
    let _ = send.stopped().await;
    Ok(())
}

async fn write(stream: &mut SendStream, body: &[u8]) -> Result<(), AttemptError> {
    let len = u32::try_from(body.len()).expect("requests and answers are limited far below");
    let mut bytes = vec![JOIN_FORMAT];
    bytes.extend_from_slice(&len.to_be_bytes());
    bytes.extend_from_slice(body);
    Ok(stream.write_all(&bytes).await?)
}

async fn read(stream: &mut RecvStream, limit: usize) -> Result<Bytes, AttemptError> {
    let mut len = [0; 4];
    stream.read_exact(&mut len).await?;
    let len = u32::from_be_bytes(len) as usize;
    if len > limit {
        return Err(Refusal::NotHello(format!("{len} bytes, the limit is {limit}")).into());
    }
    let mut body = vec![0; len];
    stream.read_exact(&mut body).await?;
    Ok(body.into())
}
