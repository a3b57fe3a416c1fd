//! Where callers and the driver meet: the session behind a mutex, and who waits for what.
//!
//! A caller hands its wish to the session itself, in its own task, and wakes the writer of the stream: no hop over
//! the driver on the way out. On the way back the driver hands in all messages that are there under one lock and
//! tells the callers afterwards. The mutex is held for the microsecond or less that a step of the session takes,
//! and never over an await. Because cancelling is such a step too, dropping a future or a guard needs no task and
//! cannot fail.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use rustc_hash::FxHashMap;
use tokio::sync::{Notify, oneshot};

use super::clock;
use super::error::{AcquireError, ClientError, LostReason};
use super::request::AcquireRequest;
use super::session::{Ending, Grant, Output, Releasing, Session, Why};
use super::txn_error::{CommitError, TxnError};
use super::txn_request::NewTxn;
use crate::proto::{ClientMessage, KeepAliveRequest, Reason, ServerMessage, Step, StepResponse};
use crate::time::Instant;

/// See the top of this file.
pub(super) struct Hub {
    state: Mutex<State>,
    /// The driver has something to look at.
    news: Notify,
    /// The session may want to renew its lease.
    renews: AtomicBool,
}

struct State {
    session: Session,
    /// Who waits for what, by the number of a request.
    acquiring: FxHashMap<u64, oneshot::Sender<Result<Grant, AcquireError>>>,
    releasing: FxHashMap<u64, oneshot::Sender<Result<(), ClientError>>>,
    watching: FxHashMap<u64, Vec<oneshot::Sender<LostReason>>>,
    /// By the number of a step; that of a begin is its transaction's.
    stepping: FxHashMap<u64, oneshot::Sender<Stepped>>,
    /// The current stream; another number than before after every reconnect.
    stream: u64,
    /// Wakes its writer.
    writer: Option<Waker>,
}

/// What a step of the session came to, for the driver.
pub(super) struct Turn {
    pub deadline: Instant,
    /// Calls can be made.
    pub ready: bool,
    pub leave: Option<Why>,
    pub lease: Option<Result<(), ClientError>>,
    pub ending: Option<Ending>,
}

/// What a step came to.
pub(super) type Stepped = Result<StepResponse, CommitError>;

/// What `lost()` waits for.
pub(super) enum Watch {
    Over(LostReason),
    Waiting(oneshot::Receiver<LostReason>),
}

impl Hub {
    pub(super) fn new(session: Session) -> Hub {
        let state = State {
            session,
            acquiring: FxHashMap::default(),
            releasing: FxHashMap::default(),
            watching: FxHashMap::default(),
            stepping: FxHashMap::default(),
            stream: 0,
            writer: None,
        };
        Hub { state: Mutex::new(state), news: Notify::new(), renews: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no step of a session panics")
    }

    /// Does something in a caller's task, and wakes whom it concerns.
    fn step<R>(&self, step: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock();
        let result = step(&mut state);
        let writer = state.writer_to_wake();
        let news = !state.session.is_ready() || state.session.has_outputs();
        drop(state);
        if let Some(writer) = writer {
            writer.wake();
        }
        if news {
            self.news.notify_one();
        }
        result
    }

    pub(super) fn acquire(
        &self,
        request: AcquireRequest,
    ) -> Result<(u64, oneshot::Receiver<Result<Grant, AcquireError>>), AcquireError> {
        let (tell, outcome) = oneshot::channel();
        self.step(|state| {
            let number = state.session.acquire(clock::now(), request)?;
            state.acquiring.insert(number, tell);
            Ok((number, outcome))
        })
    }

    /// The future that wanted it is gone.
    pub(super) fn abandon(&self, number: u64) {
        self.step(|state| {
            state.acquiring.remove(&number);
            state.session.abandon(number);
        });
    }

    /// The outcome, or what will tell it.
    pub(super) fn release(
        &self,
        number: u64,
    ) -> Result<oneshot::Receiver<Result<(), ClientError>>, Result<(), ClientError>> {
        self.step(|state| {
            state.watching.remove(&number);
            match state.session.release(number) {
                Releasing::OnItsWay => {
                    let (tell, outcome) = oneshot::channel();
                    state.releasing.insert(number, tell);
                    Ok(outcome)
                }
                Releasing::Over(outcome) => Err(outcome),
            }
        })
    }

    /// The guard was dropped.
    pub(super) fn drop_guard(&self, number: u64) {
        self.step(|state| {
            state.watching.remove(&number);
            state.session.abandon(number);
        });
    }

    pub(super) fn lost(&self, number: u64) -> Option<LostReason> {
        self.lock().session.lost(clock::now(), number)
    }

    pub(super) fn watch(&self, number: u64) -> Watch {
        let mut state = self.lock();
        match state.session.lost(clock::now(), number) {
            Some(reason) => Watch::Over(reason),
            None => {
                let (tell, reason) = oneshot::channel();
                let watching = state.watching.entry(number).or_default();
                // Futures that were dropped do not pile up.
                watching.retain(|watch| !watch.is_closed());
                watching.push(tell);
                Watch::Waiting(reason)
            }
        }
    }

    /// The number of the transaction, and what will tell whether it began.
    pub(super) fn begin(&self, new: NewTxn) -> Result<(u64, oneshot::Receiver<Stepped>), TxnError> {
        let (tell, outcome) = oneshot::channel();
        self.step(|state| {
            let number = state.session.begin(clock::now(), new)?;
            state.stepping.insert(number, tell);
            Ok((number, outcome))
        })
    }

    /// A further step of a transaction.
    pub(super) fn step_of(&self, txn: u64, step: Step) -> Result<oneshot::Receiver<Stepped>, TxnError> {
        let (tell, outcome) = oneshot::channel();
        self.step(|state| {
            let number = state.session.step(txn, step)?;
            state.stepping.insert(number, tell);
            Ok(outcome)
        })
    }

    /// Nobody has the transaction any more, whatever it is by now.
    pub(super) fn give_up(&self, txn: u64) {
        self.step(|state| state.session.give_up(txn));
    }

    pub(super) fn close(&self) {
        self.step(|state| state.session.close(clock::now()));
        self.news.notify_one();
    }

    // For the driver.

    /// Until a caller did something that the driver has to look at.
    pub(super) async fn news(&self) {
        self.news.notified().await;
    }

    /// There is a stream: what is to be sent on it, as long as it is the current one.
    pub(super) fn connected(self: &Arc<Hub>) -> Outgoing {
        let mut state = self.lock();
        state.session.connected(clock::now());
        state.stream += 1;
        state.writer = None;
        let (stream, taken) = (state.stream, VecDeque::new());
        Outgoing { hub: Arc::clone(self), stream, taken, renews_apart: false }
    }

    /// The stream is left, whatever its state: its writer ends it, so that the server does not keep it either.
    pub(super) fn disconnected(&self) {
        let writer = self.step(|state| {
            state.stream += 1;
            state.session.disconnected(clock::now());
            state.writer.take()
        });
        if let Some(writer) = writer {
            writer.wake();
        }
    }

    /// No endpoint wants this client.
    pub(super) fn turned_away(&self, reason: Reason, message: &str) {
        self.step(|state| state.session.turned_away(reason, message));
    }

    /// The renewal that is due, for that stream.
    fn renewal<T>(&self, stream: u64, take: impl FnOnce(&mut Session) -> Option<T>) -> Option<T> {
        if !self.renews.load(Ordering::Relaxed) {
            return None;
        }
        let mut state = self.lock();
        if state.stream != stream {
            return None;
        }
        self.renews.store(false, Ordering::Relaxed);
        take(&mut state.session)
    }

    /// Time has passed, and messages came; beside them the server was seen to be there at `moved`.
    pub(super) fn turn(&self, moved: Option<Instant>, messages: &mut Vec<ServerMessage>) -> Turn {
        let now = clock::now();
        let mut state = self.lock();
        let moved = if messages.is_empty() { moved } else { Some(now) };
        if let Some(moved) = moved {
            state.session.moved(moved);
        }
        state.session.on_time(now);
        for message in messages.drain(..) {
            state.session.on_message(now, message);
        }
        let mut turn = Turn {
            deadline: state.session.next_deadline(),
            ready: state.session.is_ready(),
            leave: None,
            lease: None,
            ending: state.session.ending(),
        };
        if state.session.has_renewal() {
            self.renews.store(true, Ordering::Relaxed);
        }
        let tellings = state.tell(&mut turn);
        let writer = state.writer_to_wake();
        drop(state);
        tellings.into_iter().for_each(Telling::tell);
        if let Some(writer) = writer {
            writer.wake();
        }
        turn
    }
}

/// Somebody who has to be told something, once nobody holds the lock.
enum Telling {
    Acquired(oneshot::Sender<Result<Grant, AcquireError>>, Result<Grant, AcquireError>),
    Released(oneshot::Sender<Result<(), ClientError>>, Result<(), ClientError>),
    Lost(oneshot::Sender<LostReason>, LostReason),
    Stepped(oneshot::Sender<Stepped>, Stepped),
}

impl Telling {
    fn tell(self) {
        // Whoever does not listen any more has said so to the session, or does not care.
        match self {
            Telling::Acquired(to, outcome) => drop(to.send(outcome)),
            Telling::Released(to, outcome) => drop(to.send(outcome)),
            Telling::Lost(to, reason) => drop(to.send(reason)),
            Telling::Stepped(to, outcome) => drop(to.send(outcome)),
        }
    }
}

impl State {
    fn writer_to_wake(&mut self) -> Option<Waker> {
        if self.session.has_messages() { self.writer.take() } else { None }
    }

    fn tell(&mut self, turn: &mut Turn) -> Vec<Telling> {
        let mut outputs = Vec::new();
        self.session.take_outputs(&mut outputs);
        let mut tellings = Vec::with_capacity(outputs.len());
        for output in outputs {
            match output {
                Output::Acquired { number, outcome } => {
                    let to = self.acquiring.remove(&number);
                    tellings.extend(to.map(|to| Telling::Acquired(to, outcome)));
                }
                Output::Released { number, outcome } => {
                    let to = self.releasing.remove(&number);
                    tellings.extend(to.map(|to| Telling::Released(to, outcome)));
                }
                Output::Lost { number, reason } => {
                    let all = self.watching.remove(&number).unwrap_or_default();
                    tellings.extend(all.into_iter().map(|to| Telling::Lost(to, reason.clone())));
                }
                Output::Stepped { number, outcome } => {
                    let to = self.stepping.remove(&number);
                    tellings.extend(to.map(|to| Telling::Stepped(to, outcome)));
                }
                Output::LeaseOpened => turn.lease = Some(Ok(())),
                Output::LeaseRefused(reason, message) => {
                    turn.lease = Some(Err(ClientError::Refused(reason, message)));
                }
                Output::Reconnect(why) => turn.leave = Some(why),
            }
        }
        tellings
    }
}

/// What the session wants to send on one stream. Whoever writes that polls it, and packs what is there into one write.
pub(super) struct Outgoing {
    hub: Arc<Hub>,
    stream: u64,
    /// Out of the session, not yet out of here.
    taken: VecDeque<ClientMessage>,
    /// Renewals go another way.
    renews_apart: bool,
}

/// The renewals of the lease, as long as a stream is the current one, for calls of their own.
pub(super) struct Renewals {
    hub: Arc<Hub>,
    stream: u64,
}

impl Renewals {
    /// The renewal that is due.
    pub(super) fn take(&self) -> Option<KeepAliveRequest> {
        self.hub.renewal(self.stream, Session::take_renewal_apart)
    }
}

impl tokio_stream::Stream for Outgoing {
    type Item = ClientMessage;

    fn poll_next(self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ClientMessage>> {
        self.get_mut().poll_message(cx)
    }
}

impl Outgoing {
    /// Whether there is something to be sent.
    pub(super) fn has_messages(&self) -> bool {
        !self.taken.is_empty() || self.hub.lock().session.has_messages()
    }

    /// The renewal of the lease, which goes before everything else.
    pub(super) fn take_renewal(&mut self) -> Option<ClientMessage> {
        if self.renews_apart { None } else { self.hub.renewal(self.stream, Session::take_renewal) }
    }

    /// From now on renewals are sent by whoever has this: on this stream they would wait for what was put on it before.
    pub(super) fn renew_apart(&mut self) -> Renewals {
        self.renews_apart = true;
        Renewals { hub: Arc::clone(&self.hub), stream: self.stream }
    }

    /// The next message; `None` once the stream is left.
    pub(super) fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<ClientMessage>> {
        if let Some(renewal) = self.take_renewal() {
            return Poll::Ready(Some(renewal));
        }
        if let Some(message) = self.taken.pop_front() {
            return Poll::Ready(Some(message));
        }
        let mut state = self.hub.lock();
        if state.stream != self.stream {
            return Poll::Ready(None);
        }
        state.session.take_messages(&mut self.taken);
        match self.taken.pop_front() {
            Some(message) => Poll::Ready(Some(message)),
            None => {
                match &mut state.writer {
                    Some(writer) => writer.clone_from(cx.waker()),
                    none => *none = Some(cx.waker().clone()),
                }
                Poll::Pending
            }
        }
    }
}
