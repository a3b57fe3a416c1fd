//! The network thread: starts the endpoint and its tasks, and joins them all at the end.
//!
//! It is a thread of its own with a single-threaded runtime: packets are handled two to three times faster
//! than on a shared runtime, and no client request can delay them.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quinn::{AsyncUdpSocket, Endpoint, Runtime as _, TokioRuntime, TransportConfig};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::accept::Acceptor;
use super::config::InterdcConfig;
use super::dial::{Backoff, Dialler};
use super::error::{CloseCode, InterdcError};
use super::event::LinkEvent;
use super::peer::{PeerTask, Welcoming, stopped};
use super::shared::{Context, NewPeer, Peer};
use super::source::Sources;
use super::transport;
use super::wan::Pump;
use crate::pki::{Credentials, Identity, Role};

/// How long the endpoint may take to tell its peers that it closes.
const CLOSING_TIME: Duration = Duration::from_millis(500);

/// An endpoint that is set up and not running yet.
pub(super) struct Setup {
    pub context: Arc<Context>,
    pub local_address: SocketAddr,
    runtime: Runtime,
    endpoint: Endpoint,
    dialling: Dialling,
    new_peers: mpsc::Receiver<NewPeer>,
    pump: Option<Pump>,
    renewal: Renewal,
}

/// Everything that a dialler needs besides its peer.
struct Dialling {
    sources: Arc<Sources>,
    tls: watch::Receiver<Credentials>,
    transport: Arc<TransportConfig>,
}

impl Dialling {
    fn dialler(&self, context: &Arc<Context>, peer: &Arc<Peer>) -> Dialler {
        Dialler {
            sources: self.sources.clone(),
            tls: self.tls.clone(),
            transport: self.transport.clone(),
            context: context.clone(),
            peer: peer.clone(),
        }
    }
}

/// Installs new credentials for incoming connections. Diallers read the credentials with every attempt.
struct Renewal {
    endpoint: Endpoint,
    tls: watch::Receiver<Credentials>,
    transport: Arc<TransportConfig>,
}

impl Renewal {
    /// Runs until the sender of the credentials is dropped.
    async fn run(mut self) {
        while self.tls.changed().await.is_ok() {
            let server = transport::server(&self.tls.borrow_and_update(), &self.transport);
            match server {
                Ok(server) => self.endpoint.set_server_config(Some(server)),
                Err(error) => {
                    tracing::error!(%error, "the new certificate cannot be used for links: the old one stays")
                }
            }
        }
    }
}

impl Setup {
    pub(super) fn new(config: InterdcConfig, socket: UdpSocket) -> Result<Setup, InterdcError> {
        let (context, new_peers) = context(&config)?;
        let transport = transport::transport(config.peer_timeout)?;
        let server = transport::server(&config.tls.borrow(), &transport)?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let entered = runtime.enter();

        let mut socket: Arc<dyn AsyncUdpSocket> = TokioRuntime.wrap_udp_socket(socket)?;
        let mut pump = None;
        if let Some(wan) = &config.wan {
            let (delaying, its_pump) = wan.wrap(socket)?;
            (socket, pump) = (delaying, Some(its_pump));
        }
        let local_address = socket.local_addr()?;
        let endpoint = Endpoint::new_with_abstract_socket(
            transport::endpoint(),
            Some(server),
            socket,
            Arc::new(TokioRuntime),
        )?;
        // Checks the configuration now, so that an unusable one is found at start.
        transport::client_of_any(&config.tls.borrow(), &transport)?;
        drop(entered);
        let sources = Sources::new(endpoint.clone(), config.wan.is_none().then_some(local_address));
        let dialling = Dialling { sources, tls: config.tls.clone(), transport: transport.clone() };
        let renewal = Renewal { endpoint: endpoint.clone(), tls: config.tls, transport };
        Ok(Setup { context, local_address, runtime, endpoint, dialling, new_peers, pump, renewal })
    }

    /// Runs until it is stopped and all tasks have ended.
    pub(super) fn run(self, events: mpsc::Sender<LinkEvent>, shutdown: watch::Receiver<bool>) {
        let Setup { context, runtime, endpoint, dialling, new_peers, pump, renewal, .. } = self;
        let peers = Peers { context, dialling, events, shutdown, tasks: JoinSet::new() };
        let links = run(endpoint, peers, new_peers, Helpers { pump, renewal });
        run_alone(runtime, links);
    }
}

/// Runs a future to its end, and waits for nothing that it leaves behind: a name may still be resolving on a
/// thread that cannot be stopped.
fn run_alone(runtime: Runtime, work: impl Future<Output = ()>) {
    runtime.block_on(work);
    runtime.shutdown_background();
}

/// Tasks that run beside the links.
struct Helpers {
    pump: Option<Pump>,
    renewal: Renewal,
}

/// The tasks of the peers.
struct Peers {
    context: Arc<Context>,
    dialling: Dialling,
    events: mpsc::Sender<LinkEvent>,
    shutdown: watch::Receiver<bool>,
    tasks: JoinSet<()>,
}

impl Peers {
    fn start(&mut self, NewPeer { peer, candidates, former }: NewPeer) {
        let removed = peer.removed.subscribe();
        let started = peer.clone();
        let task = PeerTask {
            context: self.context.clone(),
            dialler: self.dialling.dialler(&self.context, &peer),
            peer,
            backoff: Backoff::default(),
            candidates,
            welcoming: Welcoming::default(),
            events: self.events.clone(),
            shutdown: self.shutdown.clone(),
            removed,
        };
        self.tasks.spawn(async move {
            // Its last event comes before the first one of its successor.
            if let Some(former) = former {
                stopped(&mut former.ended.subscribe()).await;
            }
            task.run().await;
            started.ended.send_replace(true);
        });
    }
}

async fn run(
    endpoint: Endpoint,
    mut peers: Peers,
    mut new_peers: mpsc::Receiver<NewPeer>,
    Helpers { pump, renewal }: Helpers,
) {
    let mut helpers = JoinSet::new();
    if let Some(pump) = pump {
        helpers.spawn(pump.run());
    }
    helpers.spawn(renewal.run());
    let mut shutdown = peers.shutdown.clone();
    let acceptor = Arc::new(Acceptor { context: peers.context.clone(), endpoint: endpoint.clone() });
    peers.tasks.spawn(acceptor.run(shutdown.clone()));
    loop {
        tokio::select! {
            Some(peer) = new_peers.recv() => peers.start(peer),
            () = stopped(&mut shutdown) => break,
        }
    }
    // Readers of the events see their end when the last task is gone.
    let Peers { mut tasks, events, dialling, .. } = peers;
    drop(events);
    join(&mut tasks).await;
    endpoint.close(CloseCode::ShuttingDown.value(), b"shut down");
    // Peers that do not receive the close find out after their `peer_timeout`.
    let _ =
        timeout(CLOSING_TIME, async { tokio::join!(endpoint.wait_idle(), dialling.sources.close()) }).await;
    helpers.abort_all();
    join(&mut helpers).await;
}

async fn join(tasks: &mut JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended
            && error.is_panic()
        {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}

fn context(config: &InterdcConfig) -> Result<(Arc<Context>, mpsc::Receiver<NewPeer>), InterdcError> {
    let wanted = Identity { cluster: config.cluster.clone(), role: Role::Dc(config.me) };
    let found = config.tls.borrow().identity().clone();
    if found != wanted {
        return Err(InterdcError::WrongCertificate {
            found: found.to_string(),
            me: config.me,
            cluster: config.cluster.clone(),
        });
    }
    if config.versions.is_empty() {
        return Err(InterdcError::NoVersion { from: *config.versions.start(), to: *config.versions.end() });
    }
    let mut ids: Vec<_> = config.peers.iter().map(|(id, _)| *id).collect();
    ids.sort_unstable();
    let doubled = ids.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
    let me = ids.iter().find(|id| **id == config.me).copied();
    if let Some(bad) = doubled.or(me) {
        return Err(InterdcError::BadPeer(bad));
    }
    let (context, new_peers) = Context::new(config);
    config.peers.iter().for_each(|(id, address)| context.add_peer(*id, address, None));
    Ok((Arc::new(context), new_peers))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use tokio::task::spawn_blocking;

    use super::*;

    #[test]
    fn a_name_that_is_being_resolved_keeps_nobody_from_stopping() {
        let runtime = Builder::new_current_thread().enable_all().build().expect("there are threads");
        let (resolved, resolving) = channel::<()>();
        let (end, ended) = channel();
        thread::spawn(move || {
            run_alone(runtime, async move {
                let (begin, begun) = tokio::sync::oneshot::channel();
                // As in the resolver of the standard library, the blocking call continues after its caller is
                // gone.
                let name = spawn_blocking(move || (begin.send(()), resolving.recv()));
                begun.await.expect("it has a thread");
                drop(name);
            });
            end.send(()).expect("the test waits");
        });
        ended.recv_timeout(Duration::from_secs(60)).expect("it ends although no answer has come");
        drop(resolved);
    }
}
