//! Where calls enter: a handle that is cheap to clone, and the inputs it makes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

use super::budget::{Allowance, Budget, Charge, ClientAllowance};
use super::mailbox;
use super::outbox::{ByteCount, Feed, Outbox};
use super::session::{Session, WayIn};
use super::workshop::Work;
use crate::replica::call::{Call, Reply, SessionId};
use crate::telemetry::Board;

/// What clients put into the actor's mailbox.
pub(super) enum Input {
    Open {
        session: SessionId,
        feed: Feed,
    },
    Call {
        session: SessionId,
        tag: u64,
        call: Call,
        /// Given back when the call has been handled.
        _charge: Option<Charge>,
    },
    Close {
        session: SessionId,
        _kept: Kept,
    },
    Unary {
        call: Call,
        reply: oneshot::Sender<Reply>,
        _charge: Option<Charge>,
    },
    /// The actor's own: how long does the mailbox take?
    Probe,
}

/// What a session takes, until all its calls have been handled: they may wait longer than it lives.
pub(super) struct Kept {
    _slot: Option<OwnedSemaphorePermit>,
    /// Whatever it takes elsewhere.
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

/// The server has stopped; what became of the call is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server has stopped; what became of the call is unknown")]
pub struct Stopped;

/// Nothing was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} sessions are open, which is the limit of this server")]
pub struct TooManySessions(pub usize);

/// How far the server is on its way out. Only goes forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Running,
    /// Refuses acquires; releases and renewals go on.
    Draining,
    Stopped,
}

/// A way to a running server.
#[derive(Clone)]
pub struct LockServerHandle {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub work: Arc<dyn Work>,
    pub mailbox: mpsc::Sender<Input>,
    pub sessions: Arc<Semaphore>,
    pub max_sessions: usize,
    pub session_backlog: usize,
    /// Bytes of calls in the mailbox, of everybody.
    pub mailbox_bytes: Budget,
    /// The same of one session, at most, and of one client outside sessions.
    pub session_mailbox: usize,
    /// The same of one client.
    pub client_mailbox: usize,
    /// What sessions of nobody in particular may have in the mailbox.
    pub anybody: ClientAllowance,
    /// What calls of nobody in particular may have in the mailbox.
    pub unary: Arc<Allowance>,
    pub drain_timeout: Duration,
    pub next_session: AtomicU64,
    /// What was asked for: written by handles, read by the actor.
    pub wanted: watch::Sender<Stage>,
    /// What is: written by the actor.
    pub stage: watch::Receiver<Stage>,
    pub board: Arc<Board>,
}

impl LockServerHandle {
    /// Opens a session of nobody in particular. It closes when it is dropped.
    pub async fn open_session(&self) -> Result<Session, OpenError> {
        self.open_session_within(&self.shared.anybody, Arc::new(ByteCount::new(usize::MAX))).await
    }

    /// The same, for a client that may have so many bytes of calls and answers waiting, over all its sessions.
    pub async fn open_session_within(
        &self,
        calls: &ClientAllowance,
        answers: Arc<ByteCount>,
    ) -> Result<Session, OpenError> {
        let shared = &self.shared;
        let slot = Arc::clone(&shared.sessions)
            .try_acquire_owned()
            .map_err(|_| TooManySessions(shared.max_sessions))?;
        // The place in the mailbox for the closing is taken now, so that dropping a session never waits.
        let closing = shared.mailbox.clone().reserve_owned().await.map_err(|_| Stopped)?;
        let id = SessionId(shared.next_session.fetch_add(1, Ordering::Relaxed));
        let outbox = Arc::new(Outbox::new(shared.session_backlog, answers));
        let open = Input::Open { session: id, feed: Feed::new(&outbox) };
        shared.mailbox.send(open).await.map_err(|_| Stopped)?;
        shared.work.brought();
        let way_in = WayIn {
            mailbox: shared.mailbox.clone(),
            allowance: calls.allowance(),
            work: Arc::clone(&shared.work),
        };
        Ok(Session::new(id, way_in, closing, outbox, Kept::slot(slot)))
    }

    /// What another client may have in the mailbox.
    pub fn client_allowance(&self) -> ClientAllowance {
        let shared = &self.shared;
        ClientAllowance::new(shared.session_mailbox, shared.client_mailbox, &shared.mailbox_bytes)
    }

    /// One call outside any session, of nobody in particular.
    pub async fn call(&self, call: Call) -> Result<Reply, Stopped> {
        self.call_within(&self.shared.unary, call).await
    }

    /// One call outside any session, of the client that has this allowance. Giving up the future gives up a call that waits
    /// for room in the mailbox, and no other.
    ///
    /// An acquire that is retried under the same client key is answered at its last call only.
    pub async fn call_within(&self, allowance: &Arc<Allowance>, call: Call) -> Result<Reply, Stopped> {
        let (reply, answer) = oneshot::channel();
        let _charge = match mailbox::weight_alone(&call) {
            Some(bytes) => match allowance.try_take(bytes) {
                Some(charge) => Some(charge),
                None => Some(Arc::clone(allowance).take(bytes).await),
            },
            None => None,
        };
        self.shared.mailbox.send(Input::Unary { call, reply, _charge }).await.map_err(|_| Stopped)?;
        self.shared.work.brought();
        answer.await.map_err(|_| Stopped)
    }

    /// Asks the server to stop: at once if nothing is held, after `drain_timeout` at the latest.
    pub fn drain(&self) {
        self.shared.wanted.send_modify(|stage| *stage = (*stage).max(Stage::Draining));
    }

    pub fn drain_timeout(&self) -> Duration {
        self.shared.drain_timeout
    }

    /// How far the server is on its way out.
    pub fn stage(&self) -> watch::Receiver<Stage> {
        self.shared.stage.clone()
    }

    /// Where the server shows a picture of itself every 100 ms.
    pub fn board(&self) -> &Board {
        &self.shared.board
    }
}

/// Why no session was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    TooMany(#[from] TooManySessions),
    #[error(transparent)]
    Stopped(#[from] Stopped),
}
