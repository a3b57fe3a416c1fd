//! One datacenter, whole: journal, machine, actor and API, with clients over TLS on loopback.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Status, Streaming};

use crate::api::{ApiOptions, ServeError, ServerInfo, serve};
use crate::interdc::{InterdcConfig, QueueBound};
use crate::journal::JournalOptions;
use crate::lock_server::fakes::dc;
use crate::lock_server::{DatacenterConfig, LockServer, LockServerOptions, start_datacenter};
use crate::names::{ClusterId, DcSet};
use crate::pki::{Credentials, playground};
use crate::proto::client_message::Call;
use crate::proto::locks_client::LocksClient;
use crate::proto::server_message::Answer;
use crate::proto::{self, ClientMessage, ServerMessage, acquire_request};
use crate::replica::{AgreedConfig, LocalConfig, ReplicaConfig};

const CLUSTER: &str = "test";

/// A folder with the certificates and the data of a datacenter that can be started, stopped, started again.
pub(super) struct Site {
    dir: TempDir,
}

/// A datacenter that runs.
pub(super) struct Running {
    pub server: LockServer,
    pub address: SocketAddr,
    api: JoinHandle<Result<(), ServeError>>,
}

impl Site {
    pub(super) fn new() -> Site {
        let dir = TempDir::new().expect("there is a temporary folder");
        playground(dir.path(), CLUSTER, [dc(0)]).expect("the folder is empty");
        Site { dir }
    }

    pub(super) async fn start(&self) -> Running {
        self.start_with(LocalConfig::default(), LockServerOptions::default()).await
    }

    pub(super) async fn start_with(&self, local: LocalConfig, options: LockServerOptions) -> Running {
        let cluster = ClusterId::of(CLUSTER);
        let mut journal = JournalOptions::new(self.dir.path().join("data"), cluster, dc(0));
        journal.segment_bytes = 1 << 20;
        let tls = self.credentials("tls/dc0");
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let agreed = AgreedConfig::new(cluster, DcSet::only(dc(0)));
        let config = DatacenterConfig {
            replica: ReplicaConfig::new(dc(0), agreed, local),
            journal,
            links: InterdcConfig {
                me: dc(0),
                cluster: CLUSTER.into(),
                epoch: 0,
                listen: any,
                peers: vec![],
                tls: tls.clone(),
                peer_timeout: Duration::from_secs(3),
                versions: 1..=1,
                queue: QueueBound::default(),
                wan: None,
            },
            server: options,
        };
        let server = start_datacenter(config, None, Arc::default()).expect("the site is in order");
        let listener = TcpListener::bind(any).await.expect("there are ports");
        let address = listener.local_addr().expect("it is bound");
        let info = ServerInfo::new(dc(0), [(dc(0), "oslo".to_owned())].into()).expect("there is randomness");
        let tls = Arc::new(tls.accept_clients().expect("it is a datacenter's"));
        let api = tokio::spawn(serve(listener, tls, server.handle(), info, ApiOptions::default()));
        Running { server, address, api }
    }

    fn credentials(&self, folder: &str) -> Credentials {
        Credentials::load(&self.dir.path().join(folder)).expect("the playground made it")
    }

    pub(super) fn folder(&self, folder: &str) -> PathBuf {
        self.dir.path().join(folder)
    }

    /// A client with the playground's certificate.
    pub(super) async fn client(&self, running: &Running) -> LocksClient<Channel> {
        LocksClient::new(self.channel(running).await)
    }

    pub(super) async fn channel(&self, running: &Running) -> Channel {
        dial(running.address, &self.folder("client")).await.expect("the client is welcome")
    }
}

/// A connection that shows the certificate in that folder.
pub(super) async fn dial(address: SocketAddr, folder: &Path) -> Result<Channel, tonic::transport::Error> {
    let read = |file| fs::read(folder.join(file)).expect("the playground made it");
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(read("ca.pem")))
        .identity(Identity::from_pem(read("cert.pem"), read("key.pem")))
        .domain_name("localhost");
    let endpoint = Endpoint::from_shared(format!("https://{address}"))?;
    endpoint.tls_config(tls)?.connect().await
}

impl Running {
    /// Stops it although locks may be held.
    pub(super) async fn stop(self) {
        self.server.handle().drain();
        self.server.stopped().await.expect("nothing went wrong");
        self.api.await.expect("it does not panic").expect("it served to the end");
    }
}

/// A client's end of a stream.
pub(super) struct Talk {
    pub calls: mpsc::Sender<ClientMessage>,
    pub answers: Streaming<ServerMessage>,
    last_tag: u64,
}

impl Talk {
    /// Opens a stream and says hello.
    pub(super) async fn open(client: &mut LocksClient<Channel>) -> Talk {
        let mut talk = Talk::open_silently(client).await;
        let hello = proto::Hello { revision: 1, client: "test".into() };
        match talk.ask(Call::Hello(hello)).await {
            Answer::Welcome(welcome) => assert_eq!((welcome.dc_name.as_str(), welcome.revision), ("oslo", 1)),
            other => panic!("a welcome was expected, this is {other:?}"),
        }
        talk
    }

    pub(super) async fn open_silently(client: &mut LocksClient<Channel>) -> Talk {
        let (calls, stream) = mpsc::channel(64);
        let answers = client.session(ReceiverStream::new(stream)).await.expect("the server runs");
        Talk { calls, answers: answers.into_inner(), last_tag: 0 }
    }

    /// Sends a call and says its tag.
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
    proto::LockMode { name, mode: proto::Mode::Exclusive.into() }
}

pub(super) fn try_acquire(lease: u64, key: u64, name: &str) -> proto::AcquireRequest {
    proto::AcquireRequest {
        lease,
        secret: bytes::Bytes::new(),
        locks: vec![exclusive(name)],
        wait: Some(acquire_request::Wait::TryOnce(proto::TryOnce {})),
        key,
        label: "test".into(),
    }
}

pub(super) fn acquire(lease: u64, key: u64, name: &str) -> proto::AcquireRequest {
    let wait = Some(acquire_request::Wait::WaitForever(proto::WaitForever {}));
    proto::AcquireRequest { wait, ..try_acquire(lease, key, name) }
}

pub(super) fn release(lease: u64, key: u64) -> proto::ReleaseRequest {
    let target = Some(proto::release_request::Target::Key(key));
    proto::ReleaseRequest { lease, secret: bytes::Bytes::new(), target }
}
