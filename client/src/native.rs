//! Connections over the native protocol: the driver reads and writes the socket itself.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::TLS13;
use rustls::{ClientConfig as TlsConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

use super::address::Address;
use super::clock;
use super::config::{ClientCertificate, ClientTls};
use super::connection::{BATCH, MAX_MESSAGE};
use super::error::{ClientError, LinkError, Shows};
use super::shared::Outgoing;
use super::token::Bearer;
use geolock_api::native::{self, End, FrameError, FrameSocket, Kind, Line, SocketError, Start};
use geolock_api::native::{NATIVE_PROTOCOL, NATIVE_PROTOCOL_1};
use geolock_api::proto::{ERROR_METADATA, ServerMessage};
use geolock_api::time::Instant;

/// The second protocol that the client offers (ALPN), so that a server that speaks only gRPC selects it.
const GRPC_PROTOCOL: &[u8] = b"h2";

/// The address of an endpoint, with the TLS settings for it.
#[derive(Clone)]
pub(super) struct Native {
    tls: TlsConnector,
    address: Address,
    name: ServerName<'static>,
}

/// A connection to a server that speaks the native protocol.
pub(super) struct NativeSocket(Box<FrameSocket<TlsStream<Line<TcpStream>>>>);

impl Native {
    pub(super) fn new(tls: &ClientTls, host: &str, address: Address) -> Result<Native, ClientError> {
        let name = ServerName::try_from(host.to_owned()).map_err(|error| {
            ClientError::Config(format!("`endpoints`: `{host}` names no server: {error}"))
        })?;
        let tls = TlsConnector::from(Arc::new(tls_config(tls).map_err(ClientError::Tls)?));
        Ok(Native { tls, address, name })
    }

    /// Connects; `None` if the server speaks only gRPC. The caller times out after `time`.
    pub(super) async fn dial(&self, time: Duration) -> Result<Option<NativeSocket>, LinkError> {
        let stream = self.address.connect(time).await.map_err(LinkError::Socket)?;
        native::bound_kernel(&stream).map_err(LinkError::Socket)?;
        let tls = self.tls.connect(self.name.clone(), Line::new(stream)).await;
        let tls = tls.map_err(LinkError::Handshake)?;
        let cuts = match tls.get_ref().1.alpn_protocol() {
            Some(NATIVE_PROTOCOL) => true,
            Some(NATIVE_PROTOCOL_1) => false,
            _ => return Ok(None),
        };
        let mut socket = FrameSocket::new(tls, MAX_MESSAGE);
        if cuts {
            socket.cut_messages();
        }
        Ok(Some(NativeSocket(Box::new(socket))))
    }

    /// Returns the server's reason for refusing this client's certificate, if the server sends one.
    pub(super) async fn verdict(&self, time: Duration) -> Option<LinkError> {
        let error = match self.dial(time).await {
            Ok(socket) => of_socket(socket?.0.frame().await.err()?),
            Err(error) => error,
        };
        Some(error.explained(Shows::Certificate))
    }
}

impl std::fmt::Debug for Native {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Native").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Trusts the same authority as gRPC's own settings, and presents the same certificate.
fn tls_config(tls: &ClientTls) -> Result<TlsConfig, String> {
    let certificates = |pem: &str| -> Result<Vec<CertificateDer<'static>>, String> {
        CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().map_err(|e| e.to_string())
    };
    let mut roots = RootCertStore::empty();
    for root in certificates(&tls.ca_pem)? {
        roots.add(root).map_err(|error| error.to_string())?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = TlsConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
    let config = config.map_err(|error| error.to_string())?.with_root_certificates(roots);
    let mut config = match &tls.certificate {
        Some(ClientCertificate { cert_pem, key_pem }) => {
            let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(|error| error.to_string())?;
            let config = config.with_client_auth_cert(certificates(cert_pem)?, key);
            config.map_err(|error| error.to_string())?
        }
        None => config.with_no_client_auth(),
    };
    config.alpn_protocols = [NATIVE_PROTOCOL, NATIVE_PROTOCOL_1, GRPC_PROTOCOL].map(<[u8]>::to_vec).into();
    Ok(config)
}

/// A session on a connection of its own, in both directions.
pub(super) struct NativeAnswers {
    socket: NativeSocket,
    outgoing: Outgoing,
    end: Option<LinkError>,
    crowd: Crowd,
    /// The counters at the last check.
    seen: SignOfLife,
    /// When the counters changed last; `None` if that was returned already.
    moved: Option<Instant>,
}

/// Counters that show that the server is alive when they change: bytes that came from it, and bytes that the
/// kernel accepted after its buffer had been full, because the server had acknowledged some. Bytes that were
/// merely written prove nothing, because a dead connection accepts them too.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct SignOfLife {
    read: u64,
    drained: u64,
}

/// Decides if the writer yields to other tasks before a write. With many callers, the first of them wakes the
/// writer, and the callers with answers in the same batch are about to make their next calls. One write for
/// all of them costs little more than one for the first. A single caller is never delayed.
#[derive(Default)]
struct Crowd {
    /// The last batch of messages, in either direction, had several.
    is_there: bool,
    /// Other tasks have had their turn since then.
    was_let: bool,
}

impl NativeAnswers {
    /// Begins a session. A server that refuses this client says so in the first answer.
    pub(super) fn open(mut socket: NativeSocket, bearer: &Bearer, outgoing: Outgoing) -> NativeAnswers {
        let authorization = bearer.authorization().map_or_else(Bytes::new, Bytes::copy_from_slice);
        socket.0.put(Kind::Start, &Start { authorization });
        NativeAnswers {
            socket,
            outgoing,
            end: None,
            crowd: Crowd::default(),
            seen: SignOfLife::default(),
            moved: None,
        }
    }

    /// Returns when the server last showed that it is alive, or `None` if it did not since the previous call.
    /// Messages are not counted, they show it themselves.
    pub(super) fn moved(&mut self) -> Option<Instant> {
        self.moved.take()
    }

    fn sign_of_life(&self) -> SignOfLife {
        let socket = &self.socket.0;
        SignOfLife { read: socket.progress().read, drained: socket.stream().get_ref().0.drained() }
    }

    /// Sends the queued messages, and takes all available ones, at most one batch.
    pub(super) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        messages: &mut Vec<ServerMessage>,
    ) -> Poll<Result<(), LinkError>> {
        if self.lets_others(cx) {
            return Poll::Pending;
        }
        // A write error appears when reading, after everything that can still be read.
        let _ = self.poll_send(cx);
        while messages.len() < BATCH && self.end.is_none() {
            match self.poll_message(cx) {
                Poll::Ready(Ok(message)) => messages.push(message),
                Poll::Ready(Err(end)) => self.end = Some(end),
                Poll::Pending => break,
            }
        }
        if !messages.is_empty() {
            self.crowd.is_there |= messages.len() > 1;
            self.seen = self.sign_of_life();
            return Poll::Ready(Ok(()));
        }
        if let Some(end) = self.end.take() {
            return Poll::Ready(Err(end));
        }
        // A ping is answered at once.
        let _ = self.socket.0.poll_write(cx);
        let sign = self.sign_of_life();
        if sign != self.seen {
            (self.seen, self.moved) = (sign, Some(clock::now()));
        }
        Poll::Pending
    }

    /// Returns true if the writer should yield to other tasks first.
    fn lets_others(&mut self, cx: &mut Context<'_>) -> bool {
        let lets = self.crowd.is_there && !self.crowd.was_let && self.outgoing.has_messages();
        if lets {
            self.crowd.was_let = true;
            cx.waker().wake_by_ref();
        }
        lets
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let socket = &mut self.socket.0;
        loop {
            while socket.has_room_for_first()
                && let Some(renewal) = self.outgoing.take_renewal()
            {
                socket.put_first(&renewal);
            }
            let (mut is_idle, mut count) = (false, 0);
            while !is_idle && socket.has_room() {
                match self.outgoing.poll_message(cx) {
                    Poll::Ready(Some(message)) => {
                        socket.put(Kind::Message, &message);
                        count += 1;
                    }
                    Poll::Ready(None) | Poll::Pending => is_idle = true,
                }
            }
            if count > 0 {
                self.crowd = Crowd { is_there: count > 1, was_let: false };
            }
            ready!(socket.poll_write(cx))?;
            if is_idle {
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Result<ServerMessage, LinkError>> {
        let frame = match ready!(self.socket.0.poll_frame(cx)) {
            Ok(frame) => frame,
            Err(error) => return Poll::Ready(Err(of_socket(error))),
        };
        Poll::Ready(match frame.kind {
            Kind::Message => native::decode(frame.body).map_err(|error| of_socket(error.into())),
            Kind::End => Err(native::decode(frame.body).map_or_else(|e| of_socket(e.into()), of_end)),
            kind => Err(of_socket(FrameError::Unexpected(kind).into())),
        })
    }
}

fn of_socket(error: SocketError) -> LinkError {
    match error {
        SocketError::Io(error) => LinkError::Socket(error),
        SocketError::Closed => LinkError::Ended,
        SocketError::Frame(error) => LinkError::Stream(Box::new(Status::internal(error.to_string()))),
    }
}

/// Returns the status that gRPC would have reported.
fn of_end(End { code, message, error }: End) -> LinkError {
    let code = Code::from_i32(code);
    if code == Code::Ok {
        return LinkError::Ended;
    }
    let mut metadata = MetadataMap::new();
    if !error.is_empty() {
        metadata.insert_bin(ERROR_METADATA, MetadataValue::from_bytes(&error));
    }
    LinkError::Stream(Box::new(Status::with_metadata(code, message, metadata)))
}
