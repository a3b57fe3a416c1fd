//! One complete datacenter: journal, machine, actor and API, with clients over TLS on loopback.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Status, Streaming};

use crate::lock_server::LockServerOptions;
use crate::lock_server::fakes::dc;
use crate::pki::{Credentials, playground};
use crate::replica::LocalConfig;
use crate::server::config::Config;
use crate::server::node::{Node, Sockets};
use geolock_api::proto::client_message::Call;
use geolock_api::proto::locks_client::LocksClient;
use geolock_api::proto::server_message::Answer;
use geolock_api::proto::{self, ClientMessage, ServerMessage, acquire_request};

const CLUSTER: &str = "test";

/// A folder with the certificates and the data of a datacenter that can be started, stopped and started
/// again.
pub(super) struct Site {
    dir: TempDir,
}

/// A running datacenter.
pub(super) struct Running {
    pub node: Node,
    pub address: SocketAddr,
    /// The address of its metrics.
    pub http: SocketAddr,
}

impl Site {
    pub(super) fn new() -> Site {
        let dir = TempDir::new().expect("there is a temporary folder");
        playground(dir.path(), CLUSTER, [dc(0)]).expect("the folder is empty");
        Site { dir }
    }

    /// Returns a new site that runs, and a client of it.
    pub(super) async fn running() -> (Site, Running, LocksClient<Channel>) {
        let site = Site::new();
        let running = site.start().await;
        let client = site.client(&running).await;
        (site, running, client)
    }

    pub(super) async fn start(&self) -> Running {
        self.start_configured(|_| ()).await
    }

    pub(super) async fn start_with(&self, local: LocalConfig, options: LockServerOptions) -> Running {
        self.start_configured(|config| {
            config.replica.local = local;
            config.server = options;
        })
        .await
    }

    /// `change`: the differences from the default configuration. A drain ends at once, so that a stop does
    /// not wait for held locks.
    pub(super) async fn start_configured(&self, change: impl FnOnce(&mut Config)) -> Running {
        let mut config = Config::alone(CLUSTER, dc(0), self.dir.path());
        config.server.drain_timeout = Duration::ZERO;
        change(&mut config);
        config.journal.segment_bytes = 1 << 20;
        let sockets = Sockets::bind(&config.listen).expect("there are ports");
        let address = sockets.grpc().expect("it is bound");
        let http = sockets.http().expect("it is bound");
        let node = Node::start(sockets, config, None).await.expect("the site is in order");
        Running { node, address, http }
    }

    pub(super) fn folder(&self, folder: &str) -> PathBuf {
        self.dir.path().join(folder)
    }

    /// Returns a client with the playground's certificate.
    pub(super) async fn client(&self, running: &Running) -> LocksClient<Channel> {
        LocksClient::new(self.channel(running).await)
    }

    pub(super) async fn channel(&self, running: &Running) -> Channel {
        dial(running.address, &self.folder("client")).await.expect("the client is welcome")
    }
}

/// Opens a connection of the playground's client with this protocol, up to the end of the TLS handshake.
pub(super) async fn shake_hands(site: &Site, address: SocketAddr, protocol: &[u8]) -> TlsStream<TcpStream> {
    let mut tls = Credentials::load(&site.folder("client")).expect("made").dial_api().expect("good");
    tls.alpn_protocols = vec![protocol.to_vec()];
    let stream = TcpStream::connect(address).await.expect("it listens");
    let name = ServerName::try_from("localhost").expect("a name");
    TlsConnector::from(Arc::new(tls)).connect(name, stream).await.expect("the client is welcome")
}

/// Opens a connection with the certificate in that folder, if there is one.
pub(super) async fn dial(address: SocketAddr, folder: &Path) -> Result<Channel, tonic::transport::Error> {
    dial_with(address, folder, |endpoint| endpoint).await
}

/// The same, with other settings than the default ones.
pub(super) async fn dial_with(
    address: SocketAddr,
    folder: &Path,
    change: impl FnOnce(Endpoint) -> Endpoint,
) -> Result<Channel, tonic::transport::Error> {
    let read = |file| fs::read(folder.join(file)).expect("the playground made it");
    let mut tls =
        ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read("ca.pem"))).domain_name("localhost");
    if folder.join("cert.pem").exists() {
        tls = tls.identity(Identity::from_pem(read("cert.pem"), read("key.pem")));
    }
    let endpoint = Endpoint::from_shared(format!("https://{address}"))?;
    change(endpoint.tls_config(tls)?).connect().await
}

impl Running {
    /// Stops the datacenter even if locks are held.
    pub(super) async fn stop(self) {
        self.node.handle().drain();
        self.node.ended().await.expect("nothing went wrong");
    }
}

pub(super) async fn open_lease(client: &mut LocksClient<Channel>) -> proto::OpenLeaseResponse {
    client.open_lease(proto::OpenLeaseRequest::default()).await.expect("opened").into_inner()
}

/// Returns a counter of the server's status.
pub(super) async fn counted(client: &mut LocksClient<Channel>, what: &str) -> u64 {
    client.status(proto::StatusRequest {}).await.expect("it is up").into_inner().counts[what]
}

/// A client with a lease, without a stream.
pub(super) struct Caller {
    pub client: LocksClient<Channel>,
    pub lease: proto::OpenLeaseResponse,
    last_key: u64,
}

impl Caller {
    pub(super) async fn new(mut client: LocksClient<Channel>) -> Caller {
        let lease = open_lease(&mut client).await;
        Caller { client, lease, last_key: 0 }
    }

    /// Returns the idempotency key of its next request.
    pub(super) fn key(&mut self) -> u64 {
        self.last_key += 1;
        self.last_key
    }
}

/// The client's end of a stream.
pub(super) struct Talk {
    pub calls: mpsc::Sender<ClientMessage>,
    pub answers: Streaming<ServerMessage>,
    last_tag: u64,
}

impl Talk {
    /// Opens a stream and sends the hello.
    pub(super) async fn open(client: &mut LocksClient<Channel>) -> Talk {
        let mut talk = Talk::open_silently(client).await;
        let hello = proto::Hello { revision: 1, client: "test".into() };
        match talk.ask(Call::Hello(hello)).await {
            Answer::Welcome(welcome) => assert_eq!((welcome.dc_name.as_str(), welcome.revision), ("here", 1)),
            other => panic!("a welcome was expected, this is {other:?}"),
        }
        talk
    }

    pub(super) async fn open_silently(client: &mut LocksClient<Channel>) -> Talk {
        let (calls, stream) = mpsc::channel(64);
        let answers = client.session(ReceiverStream::new(stream)).await.expect("the server runs");
        Talk { calls, answers: answers.into_inner(), last_tag: 0 }
    }

    /// Sends a call and returns its tag.
    pub(super) async fn send(&mut self, call: Call) -> u64 {
        self.last_tag += 1;
        let message = ClientMessage { tag: self.last_tag, call: Some(call) };
        self.calls.send(message).await.expect("the stream is open");
        self.last_tag
    }

    pub(super) async fn hear(&mut self) -> Result<Option<(u64, Answer)>, Status> {
        let message = self.answers.message().await?;
        Ok(message.map(|message| (message.tag, message.answer.expect("this client knows all answers"))))
    }

    /// Sends a call and waits for its answer, which must be the next.
    pub(super) async fn ask(&mut self, call: Call) -> Answer {
        let tag = self.send(call).await;
        match self.hear().await {
            Ok(Some((answered, answer))) if answered == tag => answer,
            other => panic!("an answer to {tag} was expected, this is {other:?}"),
        }
    }

    pub(super) async fn open_lease(&mut self) -> proto::OpenLeaseResponse {
        self.open_lease_that(proto::OnDisconnect::Keep).await
    }

    pub(super) async fn open_lease_that(&mut self, on: proto::OnDisconnect) -> proto::OpenLeaseResponse {
        let open = proto::OpenLeaseRequest { ttl_ms: 30_000, on_disconnect: on.into() };
        match self.ask(Call::OpenLease(open)).await {
            Answer::LeaseOpened(lease) => lease,
            other => panic!("a lease was expected, this is {other:?}"),
        }
    }

    pub(super) async fn refused(&mut self, call: Call) -> proto::Reason {
        match self.ask(call).await {
            Answer::Error(error) => error.reason(),
            other => panic!("a refusal was expected, this is {other:?}"),
        }
    }
}

pub(super) fn exclusive(name: impl AsRef<[u8]>) -> proto::LockMode {
    let name = bytes::Bytes::copy_from_slice(name.as_ref());
    proto::LockMode { name, mode: proto::Mode::Exclusive.into(), home: None }
}

pub(super) fn try_acquire(lease: u64, key: u64, name: &str) -> proto::AcquireRequest {
    proto::AcquireRequest {
        lease,
        secret: bytes::Bytes::new(),
        locks: vec![exclusive(name)],
        wait: Some(acquire_request::Wait::TryOnce(proto::TryOnce {})),
        idempotency_key: key,
        label: "test".into(),
        enough: None,
    }
}

pub(super) fn acquire(lease: u64, key: u64, name: &str) -> proto::AcquireRequest {
    let wait = Some(acquire_request::Wait::WaitForever(proto::WaitForever {}));
    proto::AcquireRequest { wait, ..try_acquire(lease, key, name) }
}

pub(super) fn release(lease: u64, key: u64) -> proto::ReleaseRequest {
    let target = Some(proto::release_request::Target::IdempotencyKey(key));
    proto::ReleaseRequest { lease, secret: bytes::Bytes::new(), target }
}
