//! Connections: one stream over HTTP/2, TLS and TCP, or over the native protocol if both sides speak it.

use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tokio_stream::Stream;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Response, Status, Streaming};

use super::address::Address;
use super::config::{ClientConfig, ClientTls, Transport};
use super::error::{ClientError, LinkError, Shows};
use super::native::{Native, NativeAnswers, NativeSocket};
use super::renewing::Renewing;
use super::seen::{Connector, LastSeen};
use super::shared::Outgoing;
use super::token::Bearer;
use geolock_api::proto::ServerMessage;
use geolock_api::proto::locks_client::LocksClient;
use geolock_api::time::Instant;

/// Largest answer, in bytes: a reclaim of very many locks, or a page of long names.
pub(super) const MAX_MESSAGE: usize = 64 << 20;
/// HTTP/2 windows, in bytes: enough for answers that fill a loopback or a network of one site.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// Longest wait for a server to say why it refuses a certificate.
const VERDICT: Duration = Duration::from_secs(1);
/// Largest number of answers that one poll takes.
pub(super) const BATCH: usize = 256;

/// The address of one endpoint, and the settings for connections to it.
#[derive(Clone, Debug)]
pub(super) struct Dialled {
    pub name: String,
    address: Address,
    endpoint: Endpoint,
    /// `None` if the client is configured for gRPC.
    native: Option<Native>,
    shows: Shows,
    bearer: Bearer,
    timeout: Duration,
}

/// A channel for calls; each call carries the token.
pub(super) type Api = LocksClient<InterceptedService<Channel, Bearer>>;

impl Dialled {
    /// Returns all endpoints of a configuration, after checking it; connects to none yet.
    pub(super) fn all(config: &ClientConfig) -> Result<Vec<Dialled>, ClientError> {
        config.check()?;
        config.endpoints.iter().map(|name| Dialled::new(name, config)).collect()
    }

    /// Checks the endpoint's name and the certificates.
    fn new(name: &str, config: &ClientConfig) -> Result<Dialled, ClientError> {
        let (host, port) = host_and_port(name).ok_or_else(|| {
            ClientError::Config(format!(
                "`endpoints`: `{name}` is not HOST:PORT, ADDRESS:PORT or [IPV6]:PORT"
            ))
        })?;
        let bad_name = |error: &dyn std::fmt::Display| {
            ClientError::Config(format!("`endpoints`: `{name}` cannot be used: {error}"))
        };
        let endpoint = Endpoint::from_shared(format!("https://{name}"))
            .map_err(|error| bad_name(&error))?
            .connect_timeout(config.connect_timeout)
            .tcp_nodelay(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .tls_config(tls(&config.tls, host))
            .map_err(|error| ClientError::Tls(LinkError::Transport(error).to_string()))?;
        let address = Address::new(host, port);
        let native = match config.transport {
            Transport::Native => Some(Native::new(&config.tls, host, address.clone())?),
            Transport::Grpc => None,
        };
        let shows = match (&config.tls.certificate, &config.token) {
            (Some(_), _) => Shows::Certificate,
            (None, Some(_)) => Shows::Token,
            (None, None) => Shows::Nothing,
        };
        let (name, bearer, timeout) = (name.to_owned(), Bearer(config.token.clone()), config.connect_timeout);
        Ok(Dialled { name, address, endpoint, native, shows, bearer, timeout })
    }

    /// Adds the likely cause to the error.
    pub(super) fn explain(&self, error: ClientError) -> ClientError {
        match error {
            ClientError::Unreachable { endpoint, source } if is_elapsed(&source) => {
                ClientError::Unreachable { endpoint, source: LinkError::Silent(self.timeout) }
            }
            ClientError::Unreachable { endpoint, source } => {
                ClientError::Unreachable { endpoint, source: source.explained(self.shows) }
            }
            error => error,
        }
    }

    /// As [`Dialled::explain`]. A server that refuses a certificate says so after the handshake, and HTTP/2
    /// loses that alert. So the client connects once more, with a connection that reads the alert.
    pub(super) async fn ask_why(&self, error: ClientError) -> ClientError {
        let explained = self.explain(error);
        let (ClientError::Unreachable { source: LinkError::NotAccepted(_), .. }, Some(native)) =
            (&explained, &self.native)
        else {
            return explained;
        };
        match timeout(self.timeout.min(VERDICT), native.verdict(self.timeout)).await {
            Ok(Some(source @ LinkError::Rejected(_))) => {
                ClientError::Unreachable { endpoint: self.name.clone(), source }
            }
            _ => explained,
        }
    }

    /// Of the two limits of an attempt, that of the endpoint may end it first.
    fn not_connected(&self, error: tonic::transport::Error) -> LinkError {
        match LinkError::Transport(error) {
            error if is_elapsed(&error) => LinkError::Silent(self.timeout),
            error => error,
        }
    }

    fn connector(&self, seen: LastSeen) -> Connector {
        Connector { address: self.address.clone(), time: self.timeout, seen }
    }

    /// Connects, for calls of any kind.
    pub(super) async fn dial(&self) -> Result<Api, LinkError> {
        let connector = self.connector(LastSeen::default());
        let channel = timeout(self.timeout, self.endpoint.connect_with_connector(connector)).await;
        let channel = channel
            .map_err(|_| LinkError::Silent(self.timeout))?
            .map_err(|error| self.not_connected(error))?;
        Ok(self.api(channel))
    }

    /// Like [`Dialled::dial`], but connects on the first call.
    fn dial_when_needed(&self) -> Api {
        self.api(self.endpoint.connect_with_connector_lazy(self.connector(LastSeen::default())))
    }

    fn api(&self, channel: Channel) -> Api {
        LocksClient::with_interceptor(channel, self.bearer.clone()).max_decoding_message_size(MAX_MESSAGE)
    }

    /// Connects for a session.
    pub(super) async fn dial_session(&self) -> Result<Carrier, LinkError> {
        if let Some(native) = &self.native {
            let socket = timeout(self.timeout, native.dial(self.timeout)).await;
            if let Some(socket) = socket.map_err(|_| LinkError::Silent(self.timeout))?? {
                return Ok(Carrier::Native(socket, self.dial_when_needed()));
            }
            tracing::debug!(endpoint = self.name, "the server speaks gRPC only");
        }
        let seen = LastSeen::default();
        let connector = self.connector(seen.clone());
        let channel = timeout(self.timeout, self.endpoint.connect_with_connector(connector)).await;
        let channel = channel
            .map_err(|_| LinkError::Silent(self.timeout))?
            .map_err(|error| self.not_connected(error))?;
        Ok(Carrier::Grpc(self.api(channel), seen))
    }

    /// Starts a stream from the server on a connection of its own. The stream may be silent for hours, so the
    /// connection sends keep-alive pings: one that swallows everything is noticed within twice the timeout.
    /// It counts as idle, because nothing more is ever asked on it.
    pub(super) async fn stream<T>(
        &self,
        call: impl AsyncFnOnce(Api) -> Result<Response<Streaming<T>>, Status>,
    ) -> Result<Streaming<T>, LinkError> {
        let endpoint = self.endpoint.clone();
        let endpoint = endpoint.http2_keep_alive_interval(self.timeout).keep_alive_timeout(self.timeout);
        let endpoint = endpoint.keep_alive_while_idle(true);
        let client = Dialled { endpoint, ..self.clone() }.dial().await?;
        let responses = timeout(self.timeout, call(client)).await;
        let responses = responses.map_err(|_| LinkError::Silent(self.timeout))?;
        Ok(responses.map_err(|status| LinkError::Stream(Box::new(status)))?.into_inner())
    }

    /// Opens the stream. A server that refuses this client says so here, or in the first answer.
    pub(super) async fn open(&self, carrier: Carrier, mut outgoing: Outgoing) -> Result<Answers, LinkError> {
        let (mut client, seen) = match carrier {
            Carrier::Grpc(client, seen) => (client, seen),
            Carrier::Native(socket, _) => {
                return Ok(Answers::Native(NativeAnswers::open(socket, &self.bearer, outgoing)));
            }
        };
        let renewals = Renewing::new(client.clone(), outgoing.renew_apart());
        let answers = timeout(self.timeout, client.session(outgoing)).await;
        let answers = answers.map_err(|_| LinkError::Silent(self.timeout))?;
        let answers = answers.map_err(|status| LinkError::Stream(Box::new(status)))?;
        Ok(Answers::Grpc(Box::new(GrpcAnswers { stream: answers.into_inner(), end: None, seen, renewals })))
    }
}

/// The connection that carries a session.
pub(super) enum Carrier {
    Grpc(Api, LastSeen),
    /// With a channel for calls beside the session.
    Native(NativeSocket, Api),
}

impl Carrier {
    /// Returns the channel for calls beside the session.
    pub(super) fn api(&self) -> &Api {
        match self {
            Carrier::Grpc(api, _) | Carrier::Native(_, api) => api,
        }
    }
}

fn tls(tls: &ClientTls, host: &str) -> ClientTlsConfig {
    let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.ca_pem)).domain_name(host);
    match &tls.certificate {
        Some(shown) => config.identity(Identity::from_pem(&shown.cert_pem, &shown.key_pem)),
        None => config,
    }
}

/// Returns the host that the server's certificate has to name, and its port.
fn host_and_port(endpoint: &str) -> Option<(&str, u16)> {
    let (host, port) = endpoint.rsplit_once(':')?;
    let port = port.parse::<u16>().ok().filter(|port| *port > 0)?;
    let host = match host.strip_prefix('[') {
        Some(host) => host.strip_suffix(']'),
        None => Some(host).filter(|host| !host.is_empty() && !host.contains([':', '/', '@'])),
    };
    Some((host?, port))
}

/// Messages of the server on a stream; on a native stream, also the messages of the client.
pub(super) enum Answers {
    Grpc(Box<GrpcAnswers>),
    Native(NativeAnswers),
}

pub(super) struct GrpcAnswers {
    stream: Streaming<ServerMessage>,
    /// Why nothing follows the messages that were taken last.
    end: Option<LinkError>,
    seen: LastSeen,
    renewals: Renewing,
}

impl Answers {
    /// Waits for messages and takes all that are there. Cancel-safe: loses nothing if it is not polled to its
    /// end.
    pub(super) async fn next(&mut self, messages: &mut Vec<ServerMessage>) -> Result<(), LinkError> {
        poll_fn(|cx| match self {
            Answers::Grpc(answers) => answers.poll_next(cx, messages),
            Answers::Native(answers) => answers.poll_next(cx, messages),
        })
        .await
    }

    /// Returns when the server last showed that it is alive, apart from its messages, or `None` if it did not
    /// since the previous call.
    pub(super) fn moved(&mut self) -> Option<Instant> {
        match self {
            Answers::Grpc(answers) => answers.seen.take(),
            Answers::Native(answers) => answers.moved(),
        }
    }
}

impl GrpcAnswers {
    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        messages: &mut Vec<ServerMessage>,
    ) -> Poll<Result<(), LinkError>> {
        messages.extend(self.renewals.poll_answer(cx));
        while messages.len() < BATCH && self.end.is_none() {
            match Pin::new(&mut self.stream).poll_next(cx) {
                Poll::Ready(Some(Ok(message))) => messages.push(message),
                Poll::Ready(Some(Err(status))) => self.end = Some(LinkError::Stream(Box::new(status))),
                Poll::Ready(None) => self.end = Some(LinkError::Ended),
                Poll::Pending if messages.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        match self.end.take() {
            Some(end) if messages.is_empty() => Poll::Ready(Err(end)),
            end => {
                self.end = end;
                Poll::Ready(Ok(()))
            }
        }
    }
}

/// Returns true if the time limit of a connection attempt ended it.
fn is_elapsed(error: &LinkError) -> bool {
    let error: Option<&(dyn Error + 'static)> = match error {
        LinkError::Transport(error) => Some(error),
        LinkError::Stream(status) => status.source(),
        _ => None,
    };
    let limited = |error: &(dyn Error + 'static)| {
        let of_socket = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        error.is::<Elapsed>() || of_socket.is_some_and(|inner| inner.is::<Elapsed>())
    };
    std::iter::successors(error, |&error| error.source()).any(limited)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_name_a_host_and_a_port() {
        let host_of = |endpoint| host_and_port(endpoint).map(|(host, _)| host);
        assert_eq!(host_and_port("locks.example:7400"), Some(("locks.example", 7400)));
        assert_eq!(host_of("127.0.0.1:7400"), Some("127.0.0.1"));
        assert_eq!(host_of("[::1]:7400"), Some("::1"));
        for wrong in
            ["", "host", "host:", ":7400", "host:0", "host:99999", "::1:7400", "https://host:7400", "a@b:1"]
        {
            assert_eq!(host_of(wrong), None, "{wrong}");
        }
    }
}
