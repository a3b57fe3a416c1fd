//! A cheap, cloneable handle through which calls enter the server, and the inputs that it makes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

use super::budget::{Allowance, Budget, Charge, ClientAllowance};
use super::combiner::Combine;
use super::mailbox;
use super::outbox::{ByteCount, Feed, Outbox};
use super::session::{Session, WayIn};
use crate::base::access_digests::AccessDigests;
use crate::replica::call::{Call, ClientId, Reply, SessionId};
use crate::telemetry::Board;

/// An input in the server's mailbox.
pub(super) enum Input {
    Open {
        session: SessionId,
        feed: Feed,
    },
    Call {
        session: SessionId,
        tag: u64,
        client: ClientId,
        call: Call,
        /// Released when the call has been handled.
        _charge: Option<Charge>,
    },
    Close {
        session: SessionId,
        _kept: Kept,
    },
    Unary {
        client: ClientId,
        call: Call,
        reply: oneshot::Sender<Reply>,
        _charge: Option<Charge>,
    },
    /// The server's files of access rules were read.
    AccessRules(AccessDigests),
    /// Sent by the server itself to measure how long inputs wait in the mailbox.
    Probe,
}

/// Resources of a session. They are released only when all its calls have been handled, which may be after
/// the session is closed.
pub(super) struct Kept {
    _slot: Option<OwnedSemaphorePermit>,
    /// Resources of the session outside this module.
    pub beside: Option<Box<dyn Send + Sync>>,
}

impl Kept {
    fn slot(slot: OwnedSemaphorePermit) -> Kept {
        Kept { _slot: Some(slot), beside: None }
    }

    #[cfg(test)]
    pub(super) fn nothing() -> Kept {
        Kept { _slot: None, beside: None }
    }
}

/// The server has stopped; the outcome of the call is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server has stopped; the outcome of the call is unknown")]
pub struct Stopped;

/// No session was opened: the limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} sessions are open, which is the limit of this server")]
pub struct TooManySessions(pub usize);

/// How far the shutdown of the server has progressed. Stages only advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Running,
    /// Refuses acquires; still handles releases and renewals.
    Draining,
    Stopped,
}

/// A handle to a running server.
#[derive(Clone)]
pub struct LockServerHandle {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub combiner: Arc<dyn Combine>,
    pub mailbox: mpsc::Sender<Input>,
    pub sessions: Arc<Semaphore>,
    pub max_sessions: usize,
    pub session_backlog: usize,
    /// Bytes of calls in the mailbox, over all clients.
    pub mailbox_bytes: Budget,
    /// Most bytes of calls in the mailbox of one session, or of one client outside sessions.
    pub session_mailbox: usize,
    /// Most bytes of calls in the mailbox of one client, over all its sessions.
    pub client_mailbox: usize,
    /// Allowance of sessions that belong to no particular client.
    pub anybody: ClientAllowance,
    /// Allowance of unary calls that belong to no particular client.
    pub unary: Arc<Allowance>,
    pub drain_timeout: Duration,
    pub next_session: AtomicU64,
    /// The requested stage: written by handles, read by the actor.
    pub wanted: watch::Sender<Stage>,
    /// The actual stage: written by the actor.
    pub stage: watch::Receiver<Stage>,
    pub board: Arc<Board>,
}

impl LockServerHandle {
    /// Opens a session that belongs to no particular client. It closes when it is dropped.
    pub async fn open_session(&self) -> Result<Session, OpenError> {
        self.open_session_within(&self.shared.anybody, Arc::new(ByteCount::new(usize::MAX))).await
    }

    /// Opens a session of a client, with that client's limits on waiting bytes of calls and answers, over all
    /// its sessions.
    pub async fn open_session_within(
        &self,
        calls: &ClientAllowance,
        answers: Arc<ByteCount>,
    ) -> Result<Session, OpenError> {
        let shared = &self.shared;
        let slot = Arc::clone(&shared.sessions)
            .try_acquire_owned()
            .map_err(|_| TooManySessions(shared.max_sessions))?;
        // The place in the mailbox for the closing is reserved now, so that dropping a session never waits.
        let closing = shared.mailbox.clone().reserve_owned().await.map_err(|_| Stopped)?;
        let id = SessionId(shared.next_session.fetch_add(1, Ordering::Relaxed));
        let outbox = Arc::new(Outbox::new(shared.session_backlog, answers));
        let open = Input::Open { session: id, feed: Feed::new(&outbox) };
        shared.mailbox.send(open).await.map_err(|_| Stopped)?;
        shared.combiner.notify_submitted();
        let way_in = WayIn {
            mailbox: shared.mailbox.clone(),
            allowance: calls.allowance(),
            combiner: Arc::clone(&shared.combiner),
        };
        Ok(Session::new(id, way_in, closing, outbox, Kept::slot(slot)))
    }

    /// Returns the mailbox allowance of a client that has none yet. Its calls come from `client`.
    pub fn client_allowance(&self, client: ClientId) -> ClientAllowance {
        let shared = &self.shared;
        ClientAllowance::new(client, (shared.session_mailbox, shared.client_mailbox), &shared.mailbox_bytes)
    }

    /// Makes one call outside any session, for no particular client.
    pub async fn call(&self, call: Call) -> Result<Reply, Stopped> {
        self.call_within(&self.shared.unary, call).await
    }

    /// Makes one call outside any session, for the client that has this allowance. Dropping the future
    /// cancels a call that still waits for room in the mailbox; a call that is in the mailbox is handled all
    /// the same.
    ///
    /// If an acquire is retried under the same idempotency key, only its last call is answered.
    pub async fn call_within(&self, allowance: &Arc<Allowance>, call: Call) -> Result<Reply, Stopped> {
        let (reply, answer) = oneshot::channel();
        let _charge = match mailbox::weight_alone(&call) {
            Some(bytes) => match allowance.try_take(bytes) {
                Some(charge) => Some(charge),
                None => Some(Arc::clone(allowance).take(bytes).await),
            },
            None => None,
        };
        let client = allowance.client();
        self.shared.mailbox.send(Input::Unary { client, call, reply, _charge }).await.map_err(|_| Stopped)?;
        self.shared.combiner.notify_submitted();
        answer.await.map_err(|_| Stopped)
    }

    /// Tells the server the digests of its files of access rules, which the others compare with theirs.
    pub async fn show_access_rules(&self, digests: AccessDigests) -> Result<(), Stopped> {
        self.shared.mailbox.send(Input::AccessRules(digests)).await.map_err(|_| Stopped)?;
        self.shared.combiner.notify_submitted();
        Ok(())
    }

    /// Asks the server to stop: at once if no lock is held, after `drain_timeout` at the latest.
    pub fn drain(&self) {
        self.shared.wanted.send_modify(|stage| *stage = (*stage).max(Stage::Draining));
    }

    pub fn drain_timeout(&self) -> Duration {
        self.shared.drain_timeout
    }

    /// Returns the stage of the shutdown, to be watched for changes.
    pub fn stage(&self) -> watch::Receiver<Stage> {
        self.shared.stage.clone()
    }

    /// Waits until the server has stopped.
    pub async fn stopped(&self) {
        let mut stage = self.stage();
        // An error means that the server is gone.
        let _stopped = stage.wait_for(|stage| *stage == Stage::Stopped).await.is_ok();
    }

    /// Returns the board where the server publishes its status every 100 ms.
    pub fn board(&self) -> &Board {
        &self.shared.board
    }
}

/// The reason why no session was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    TooMany(#[from] TooManySessions),
    #[error(transparent)]
    Stopped(#[from] Stopped),
}
