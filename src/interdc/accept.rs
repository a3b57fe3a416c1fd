//! Incoming connections, until the peer is identified.
//!
//! Unidentified connections are bounded in number (in all, and from one address), in time, and in the bytes
//! they may send: only a connection with a datacenter's certificate reaches the hello. When many wait,
//! addresses must first prove that they are real, which costs the server nothing.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use quinn::{Connection, Endpoint, Incoming, RecvStream, SendStream};
use rustls::pki_types::CertificateDer;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::dial::{Established, Unconfirmed};
use super::error::{AttemptError, Refusal};
use super::hello::{self, Hello};
use super::join::{self, JOIN_FORMAT};
use super::peer::stopped;
use super::shared::{Context, Peer, nonce};
use crate::pki::{Role, peer_identity};
use geolock_api::names::DcId;

/// Most connections between their first packet and their hello, in all.
pub(super) const MAX_PENDING: usize = 64;
/// The same, from one IP address.
const MAX_PENDING_FROM_ONE: usize = 16;
/// With this many waiting connections, addresses are validated first.
const VALIDATE_FROM: usize = 16;

/// A connection of a peer after its hello was read and found valid.
pub(super) struct Candidate {
    connection: Unconfirmed,
    send: SendStream,
    receive: RecvStream,
    pub hello: Hello,
    version: u16,
}

impl Candidate {
    pub(super) fn refuse(self, refusal: Refusal) {
        self.connection.fail(&refusal.into());
    }

    /// Answers the hello. The link is up when the dialler confirms.
    pub(super) async fn welcome(
        mut self,
        context: Arc<Context>,
        peer: Arc<Peer>,
    ) -> Result<Established, AttemptError> {
        let limit = context.timeout;
        match timeout(limit, self.shake_hands(&context, &peer)).await.unwrap_or(Err(AttemptError::TimedOut)) {
            Ok(nonce) => Ok(Established {
                connection: self.connection.confirm(),
                version: self.version,
                nonce,
                incarnation: self.hello.incarnation,
                generation: self.hello.generation,
            }),
            Err(error) => {
                self.connection.fail(&error);
                Err(error)
            }
        }
    }

    async fn shake_hands(&mut self, context: &Context, peer: &Peer) -> Result<u64, AttemptError> {
        let arbiter = context.arbitrates(peer.id);
        let nonce = if arbiter { nonce() } else { self.hello.named()? };
        let ours = Hello::new(context, if arbiter { nonce } else { 0 }, peer.last_link());
        hello::write(&mut self.send, &ours).await?;
        hello::read_confirmation(&mut self.receive).await?;
        Ok(nonce)
    }
}

pub(super) struct Acceptor {
    pub context: Arc<Context>,
    pub endpoint: Endpoint,
}

/// The decision about a connection attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    Take,
    /// Ask the client to return with the token of a retry packet, which proves its address.
    Validate,
    Refuse,
}

impl Acceptor {
    pub(super) async fn run(self: Arc<Acceptor>, mut shutdown: watch::Receiver<bool>) {
        let mut pending = Pending::default();
        loop {
            tokio::select! {
                incoming = self.endpoint.accept() => match incoming {
                    Some(incoming) => self.admit(incoming, &mut pending),
                    None => {
                        // The endpoint is closed only after this task, so its socket has failed.
                        tracing::error!("the UDP socket failed: no links until a restart");
                        self.context.has_failed.store(true, Ordering::Relaxed);
                        break;
                    }
                },
                () = pending.one_done() => {}
                () = stopped(&mut shutdown) => break,
            }
        }
        pending.tasks.shutdown().await;
    }

    fn admit(self: &Arc<Acceptor>, incoming: Incoming, pending: &mut Pending) {
        let from = incoming.remote_address();
        match pending.admission(from.ip(), incoming.remote_address_validated()) {
            Admission::Take => {
                let acceptor = self.clone();
                pending.start(from.ip(), async move { acceptor.introduce(incoming).await });
            }
            // A connection that is not validated can always be answered with a retry.
            Admission::Validate => drop(incoming.retry()),
            Admission::Refuse => {
                self.context.refused(from, "too many connections at once");
                incoming.refuse();
            }
        }
    }

    /// Identifies the peer and hands the connection to that peer's task.
    async fn introduce(&self, incoming: Incoming) {
        let from = incoming.remote_address();
        let limit = self.context.timeout;
        let connection = match timeout(limit, async { incoming.accept()?.await }).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => return self.context.failed(from, &error.into()),
            Err(_) => return self.context.failed(from, &AttemptError::TimedOut),
        };
        let connection = Unconfirmed::new(connection);
        let dc = match identify(connection.get()) {
            Ok(dc) => dc,
            Err(refusal) => {
                self.context.refused(from, &refusal.to_string());
                return connection.fail(&refusal.into());
            }
        };
        let peer = self.context.peer(dc);
        let greeting = timeout(limit, self.greeting(connection.get(), dc, peer.as_deref())).await;
        match greeting.unwrap_or(Err(Refusal::TimedOut.into())) {
            Ok(Greeting::Hello(send, receive, hello, version)) => {
                let candidate = Candidate { connection, send, receive, hello, version };
                // If more connections of a peer wait than its task takes, this one is dropped; the peer then
                // dials again.
                if let Some(peer) = peer {
                    drop(peer.candidates.try_send(candidate));
                }
            }
            Ok(Greeting::Answered) => drop(connection.confirm()),
            Err(error) => {
                if let Some(peer) = peer {
                    peer.failed(&error);
                }
                self.context.failed(from, &error);
                connection.fail(&error);
            }
        }
    }

    /// Reads the hello of a peer, or answers the request of a server that is to join.
    async fn greeting(
        &self,
        connection: &Connection,
        dc: DcId,
        peer: Option<&Peer>,
    ) -> Result<Greeting, AttemptError> {
        let first = connection.accept_bi();
        // A stranger is refused at once, unless servers can join here: then its first byte tells.
        let (mut send, mut receive) = match (peer, &self.context.joins) {
            (None, None) => return Err(Refusal::UnknownDc(dc).into()),
            _ => first.await?,
        };
        let format = hello::read_format(&mut receive).await?;
        if format == JOIN_FORMAT {
            join::answer((&mut send, &mut receive), dc, self.context.joins.as_ref()).await?;
            return Ok(Greeting::Answered);
        }
        let hello = hello::read_body(&mut receive, format).await?;
        let version = hello.check(&self.context, dc)?;
        let Some(peer) = peer else {
            let refusal = self.context.unknown(dc, hello.generation);
            if matches!(refusal, Refusal::UnknownDc(_)) {
                self.context.stranger.send_replace(Some(dc));
            }
            return Err(refusal.into());
        };
        peer.recognize(&hello)?;
        Ok(Greeting::Hello(send, receive, hello, version))
    }
}

/// The first stream of a connection.
enum Greeting {
    Hello(SendStream, RecvStream, Hello, u16),
    /// A server asked to join, and has its answer.
    Answered,
}

/// Returns the datacenter that the other side has a certificate for.
fn identify(connection: &Connection) -> Result<DcId, Refusal> {
    let shown =
        connection.peer_identity().and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok());
    match shown.and_then(|chain| peer_identity(&chain)).map(|identity| identity.role) {
        Some(Role::Dc(dc)) => Ok(dc),
        _ => Err(Refusal::Nobody),
    }
}

/// Connections whose peers are not identified yet.
#[derive(Default)]
struct Pending {
    tasks: JoinSet<IpAddr>,
    from: BTreeMap<IpAddr, usize>,
}

impl Pending {
    fn admission(&self, from: IpAddr, validated: bool) -> Admission {
        let from_it = self.from.get(&from).copied().unwrap_or(0);
        match self.tasks.len() {
            MAX_PENDING.. => Admission::Refuse,
            _ if from_it >= MAX_PENDING_FROM_ONE => Admission::Refuse,
            VALIDATE_FROM.. if !validated => Admission::Validate,
            _ => Admission::Take,
        }
    }

    fn start(&mut self, from: IpAddr, task: impl Future<Output = ()> + Send + 'static) {
        *self.from.entry(from).or_default() += 1;
        self.tasks.spawn(async move {
            task.await;
            from
        });
    }

    /// Pending for ever while there is none.
    async fn one_done(&mut self) {
        let Some(done) = self.tasks.join_next().await else { return std::future::pending().await };
        let from = done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
        if let Some(count) = self.from.get_mut(&from) {
            *count -= 1;
            if *count == 0 {
                self.from.remove(&from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn strangers_are_bounded_and_leave_room_for_others() {
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        let mut pending = Pending::default();
        for _ in 0..MAX_PENDING_FROM_ONE {
            assert_eq!(pending.admission(address(1), false), Admission::Take);
            pending.start(address(1), std::future::pending());
        }
        assert_eq!(pending.admission(address(1), true), Admission::Refuse);
        assert_eq!(pending.admission(address(2), false), Admission::Validate);
        assert_eq!(pending.admission(address(2), true), Admission::Take);
        for last in 2..5 {
            (0..MAX_PENDING_FROM_ONE).for_each(|_| pending.start(address(last), std::future::pending()));
        }
        assert_eq!(pending.admission(address(9), true), Admission::Refuse);
    }

    #[tokio::test]
    async fn who_is_done_makes_room() {
        let address = IpAddr::from([10, 0, 0, 1]);
        let mut pending = Pending::default();
        (0..MAX_PENDING_FROM_ONE).for_each(|_| pending.start(address, async {}));
        assert_eq!(pending.admission(address, true), Admission::Refuse);
        pending.one_done().await;
        assert_eq!(pending.admission(address, true), Admission::Take);
    }
}
