//! The network thread: starts the endpoint and its tasks, and joins them all at the end.
//!
//! It is a thread of its own with a single-threaded runtime: packets are handled two to three times faster
//! than on a shared runtime, and no client request can delay them.

use std::collections::BTreeMap;
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
use super::shared::{Context, Peer, Refusals, nonce};
use super::transport;
use super::wan::Pump;
use crate::pki::{Credentials, Identity, Role};
use geolock_api::names::ClusterId;

/// How long the endpoint may take to tell its peers that it closes.
const CLOSING_TIME: Duration = Duration::from_millis(500);
/// Most incoming connections that wait for a peer's task.
const WAITING_CANDIDATES: usize = 2;

/// An endpoint that is set up and not running yet.
pub(super) struct Setup {
    pub context: Arc<Context>,
    pub local_address: SocketAddr,
    runtime: Runtime,
    endpoint: Endpoint,
    diallers: Vec<Dialler>,
    pump: Option<Pump>,
    renewal: Renewal,
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
        let context = Arc::new(context(&config)?);
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
        let diallers = context.peers.iter().map(|peer| {
            // Checks the configuration now, so that an unusable one is found at start.
            transport::client(&config.tls.borrow(), peer.id, &transport)?;
            Ok(Dialler {
                endpoint: endpoint.clone(),
                tls: config.tls.clone(),
                transport: transport.clone(),
                context: context.clone(),
                peer: peer.clone(),
            })
        });
        let diallers = diallers.collect::<Result<_, InterdcError>>()?;
        drop(entered);
        let renewal = Renewal { endpoint: endpoint.clone(), tls: config.tls, transport };
        Ok(Setup { context, local_address, runtime, endpoint, diallers, pump, renewal })
    }

    /// Runs until it is stopped and all tasks have ended.
    pub(super) fn run(self, events: mpsc::Sender<LinkEvent>, shutdown: watch::Receiver<bool>) {
        let Setup { context, runtime, endpoint, diallers, pump, renewal, .. } = self;
        let links = run(context, endpoint, diallers, Helpers { pump, renewal }, events, shutdown);
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

async fn run(
    context: Arc<Context>,
    endpoint: Endpoint,
    diallers: Vec<Dialler>,
    Helpers { pump, renewal }: Helpers,
    events: mpsc::Sender<LinkEvent>,
    mut shutdown: watch::Receiver<bool>,
) {
    let (mut tasks, mut helpers) = (JoinSet::new(), JoinSet::new());
    if let Some(pump) = pump {
        helpers.spawn(pump.run());
    }
    helpers.spawn(renewal.run());
    let mut candidates = BTreeMap::new();
    for dialler in diallers {
        let (sender, receiver) = mpsc::channel(WAITING_CANDIDATES);
        candidates.insert(dialler.peer.id, sender);
        let task = PeerTask {
            context: context.clone(),
            peer: dialler.peer.clone(),
            dialler,
            backoff: Backoff::default(),
            candidates: receiver,
            welcoming: Welcoming::default(),
            events: events.clone(),
            shutdown: shutdown.clone(),
        };
        tasks.spawn(task.run());
    }
    let acceptor = Arc::new(Acceptor { context, endpoint: endpoint.clone(), candidates });
    tasks.spawn(acceptor.run(shutdown.clone()));

    stopped(&mut shutdown).await;
    join(&mut tasks).await;
    endpoint.close(CloseCode::ShuttingDown.value(), b"shut down");
    // Peers that do not receive the close find out after their `peer_timeout`.
    let _ = timeout(CLOSING_TIME, endpoint.wait_idle()).await;
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

fn context(config: &InterdcConfig) -> Result<Context, InterdcError> {
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
    let mut peers: Vec<_> =
        config.peers.iter().map(|(id, address)| Arc::new(Peer::new(*id, address.clone()))).collect();
    peers.sort_by_key(|peer| peer.id);
    let doubled = peers.windows(2).find(|pair| pair[0].id == pair[1].id).map(|pair| pair[0].id);
    let me = peers.iter().find(|peer| peer.id == config.me).map(|peer| peer.id);
    if let Some(bad) = doubled.or(me) {
        return Err(InterdcError::BadPeer(bad));
    }
    Ok(Context {
        has_failed: std::sync::atomic::AtomicBool::new(false),
        takes_bulk: watch::Sender::new(true),
        me: config.me,
        cluster: ClusterId::of(&config.cluster),
        epoch: config.epoch,
        versions: config.versions.clone(),
        incarnation: nonce(),
        timeout: config.peer_timeout,
        queue: config.queue,
        peers,
        refusals: Refusals::default().into(),
    })
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
