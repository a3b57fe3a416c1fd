//! The session behind a mutex, shared by callers and the driver, and the channels of the callers that wait.
//!
//! A caller submits its call to the session in its own task, and wakes the writer of the stream, so the way
//! out does not pass through the driver. On the way back the driver processes all available messages under
//! one lock, and sends the outcomes to the callers after it has released the lock. The mutex is held for the
//! microsecond or less that a step of the session takes, and never across an await. A cancellation is such a
//! step too, so dropping a future or a guard needs no task and cannot fail.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rustc_hash::FxHashMap;
use tokio::sync::{Notify, oneshot};

use super::clock;
use super::error::{AcquireError, AmendError, ClientError, LostReason};
use super::request::AcquireRequest;
use super::session::{Downgrading, Ending, Grant, Output, Releasing, Session, Why};
use super::txn_error::{CommitError, TxnError};
use super::txn_request::NewTxn;
use geolock_api::names::LockName;
use geolock_api::proto::{
    Candidate, ClientMessage, KeepAliveRequest, Reason, ServerMessage, Step, StepResponse,
};
use geolock_api::time::Instant;

/// The shared state of callers and driver.
pub(super) struct Shared {
    state: Mutex<State>,
    /// Notified when there is work for the driver.
    driver: Notify,
    /// The session may want to renew its lease.
    renews: AtomicBool,
}

struct State {
    session: Session,
    /// The callers that wait for each outcome, by the number of their request.
    acquiring: FxHashMap<u64, oneshot::Sender<Result<Grant, AcquireError>>>,
    releasing: FxHashMap<u64, oneshot::Sender<Result<(), ClientError>>>,
    /// By the number of the downgrade.
    downgrading: FxHashMap<u64, oneshot::Sender<Result<(), ClientError>>>,
    /// By the number of the request. One that ends while its amendment is under way drops the channel.
    amending: FxHashMap<u64, oneshot::Sender<Result<(), AmendError>>>,
    watching: FxHashMap<u64, Vec<oneshot::Sender<LostReason>>>,
    /// By the number of a step; the number of a begin is that of its transaction.
    stepping: FxHashMap<u64, oneshot::Sender<Stepped>>,
    /// The number of the current stream; it changes with every reconnect.
    stream: u64,
    /// Wakes the writer of the current stream.
    writer: Option<Waker>,
}

/// The result of a step of the session, for the driver.
pub(super) struct Advanced {
    pub deadline: Instant,
    /// Calls can be made.
    pub ready: bool,
    pub leave: Option<Why>,
    pub lease: Option<Result<(), ClientError>>,
    pub ending: Option<Ending>,
}

/// The outcome of a step.
pub(super) type Stepped = Result<StepResponse, CommitError>;

/// The state of a `lost()` future at its start.
pub(super) enum Watch {
    Over(LostReason),
    Waiting(oneshot::Receiver<LostReason>),
}

impl Shared {
    pub(super) fn new(session: Session) -> Shared {
        let state = State {
            session,
            acquiring: FxHashMap::default(),
            releasing: FxHashMap::default(),
            downgrading: FxHashMap::default(),
            amending: FxHashMap::default(),
            watching: FxHashMap::default(),
            stepping: FxHashMap::default(),
            stream: 0,
            writer: None,
        };
        Shared { state: Mutex::new(state), driver: Notify::new(), renews: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no step of a session panics")
    }

    /// Runs a step of the session in a caller's task, then wakes the writer and the driver if needed.
    fn step<R>(&self, step: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock();
        let result = step(&mut state);
        let writer = state.writer_to_wake();
        let wakes_driver = !state.session.is_ready() || state.session.has_outputs();
        drop(state);
        if let Some(writer) = writer {
            writer.wake();
        }
        if wakes_driver {
            self.driver.notify_one();
        }
        result
    }

    pub(super) fn ttl(&self) -> Duration {
        self.lock().session.ttl()
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

    /// Cancels a request whose future was dropped.
    pub(super) fn abandon(&self, number: u64) {
        self.step(|state| {
            state.acquiring.remove(&number);
            state.amending.remove(&number);
            state.session.abandon(number);
        });
    }

    /// Changes the candidates of a waiting request. Returns the channel that will receive the outcome, or
    /// close if the request ends before.
    pub(super) fn amend(
        &self,
        number: u64,
        add: Vec<Candidate>,
        drop: Vec<Candidate>,
    ) -> Result<oneshot::Receiver<Result<(), AmendError>>, AmendError> {
        let (tell, outcome) = oneshot::channel();
        self.step(|state| {
            state.session.amend(number, add, drop)?;
            state.amending.insert(number, tell);
            Ok(outcome)
        })
    }

    /// Releases a request. Returns the outcome, or the channel that will receive it.
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

    /// Downgrades a lock of a request. Returns the outcome, or the channel that will receive it.
    pub(super) fn downgrade(
        &self,
        number: u64,
        lock: &LockName,
    ) -> Result<oneshot::Receiver<Result<(), ClientError>>, Result<(), ClientError>> {
        self.step(|state| match state.session.downgrade(number, lock) {
            Downgrading::OnItsWay(number) => {
                let (tell, outcome) = oneshot::channel();
                state.downgrading.insert(number, tell);
                Ok(outcome)
            }
            Downgrading::Over(outcome) => Err(outcome),
        })
    }

    /// Releases a request whose guard was dropped.
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
                // Discards dropped futures, so that they do not accumulate.
                watching.retain(|watch| !watch.is_closed());
                watching.push(tell);
                Watch::Waiting(reason)
            }
        }
    }

    /// Begins a transaction. Returns its number, and the channel that will receive the outcome.
    pub(super) fn begin(&self, new: NewTxn) -> Result<(u64, oneshot::Receiver<Stepped>), TxnError> {
        let (tell, outcome) = oneshot::channel();
        self.step(|state| {
            let number = state.session.begin(clock::now(), new)?;
            state.stepping.insert(number, tell);
            Ok((number, outcome))
        })
    }

    /// Starts a further step of a transaction.
    pub(super) fn step_of(&self, txn: u64, step: Step) -> Result<oneshot::Receiver<Stepped>, TxnError> {
        let (tell, outcome) = oneshot::channel();
        self.step(|state| {
            let number = state.session.step(txn, step)?;
            state.stepping.insert(number, tell);
            Ok(outcome)
        })
    }

    /// Ends a transaction whose handle was dropped, whatever its state.
    pub(super) fn give_up(&self, txn: u64) {
        self.step(|state| state.session.give_up(txn));
    }

    pub(super) fn close(&self) {
        self.step(|state| state.session.close(clock::now()));
        self.driver.notify_one();
    }

    // For the driver.

    /// Waits until a caller has left work for the driver.
    pub(super) async fn work_for_driver(&self) {
        self.driver.notified().await;
    }

    /// Registers a new stream. Returns its messages, which end when the stream is no longer the current one.
    pub(super) fn connected(self: &Arc<Shared>) -> Outgoing {
        let mut state = self.lock();
        state.session.connected(clock::now());
        state.stream += 1;
        state.writer = None;
        let (stream, taken) = (state.stream, VecDeque::new());
        Outgoing { shared: Arc::clone(self), stream, taken, renews_apart: false }
    }

    /// Leaves the stream, whatever its state. Its writer ends it, so that the server drops its side as well.
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

    /// Every endpoint refuses this client.
    pub(super) fn turned_away(&self, reason: Reason, message: &str) {
        self.step(|state| state.session.turned_away(reason, message));
    }

    /// Takes the renewal that is due, if `stream` is the current one.
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

    /// Advances the time and processes messages. `moved`: when the server last showed that it is alive, apart
    /// from its messages.
    pub(super) fn advance(&self, moved: Option<Instant>, messages: &mut Vec<ServerMessage>) -> Advanced {
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
        let mut advanced = Advanced {
            deadline: state.session.next_deadline(),
            ready: state.session.is_ready(),
            leave: None,
            lease: None,
            ending: state.session.ending(),
        };
        if state.session.has_renewal() {
            self.renews.store(true, Ordering::Relaxed);
        }
        let deliveries = state.take_deliveries(&mut advanced);
        let writer = state.writer_to_wake();
        drop(state);
        deliveries.into_iter().for_each(Delivery::deliver);
        if let Some(writer) = writer {
            writer.wake();
        }
        advanced
    }
}

/// An outcome, and the channel of its caller, to be sent after the lock is released.
enum Delivery {
    Acquired(oneshot::Sender<Result<Grant, AcquireError>>, Result<Grant, AcquireError>),
    /// Also of a downgrade.
    Released(oneshot::Sender<Result<(), ClientError>>, Result<(), ClientError>),
    Amended(oneshot::Sender<Result<(), AmendError>>, Result<(), AmendError>),
    Lost(oneshot::Sender<LostReason>, LostReason),
    Stepped(oneshot::Sender<Stepped>, Stepped),
}

impl Delivery {
    fn deliver(self) {
        // A caller that no longer listens has cancelled its call already, or does not need the outcome.
        match self {
            Delivery::Acquired(to, outcome) => drop(to.send(outcome)),
            Delivery::Released(to, outcome) => drop(to.send(outcome)),
            Delivery::Amended(to, outcome) => drop(to.send(outcome)),
            Delivery::Lost(to, reason) => drop(to.send(reason)),
            Delivery::Stepped(to, outcome) => drop(to.send(outcome)),
        }
    }
}

impl State {
    fn writer_to_wake(&mut self) -> Option<Waker> {
        if self.session.has_messages() { self.writer.take() } else { None }
    }

    fn take_deliveries(&mut self, advanced: &mut Advanced) -> Vec<Delivery> {
        let mut outputs = Vec::new();
        self.session.take_outputs(&mut outputs);
        let mut deliveries = Vec::with_capacity(outputs.len());
        for output in outputs {
            match output {
                Output::Acquired { number, outcome } => {
                    self.amending.remove(&number);
                    let to = self.acquiring.remove(&number);
                    deliveries.extend(to.map(|to| Delivery::Acquired(to, outcome)));
                }
                Output::Released { number, outcome } => {
                    let to = self.releasing.remove(&number);
                    deliveries.extend(to.map(|to| Delivery::Released(to, outcome)));
                }
                Output::Downgraded { number, outcome } => {
                    let to = self.downgrading.remove(&number);
                    deliveries.extend(to.map(|to| Delivery::Released(to, outcome)));
                }
                Output::Amended { number, outcome } => {
                    let to = self.amending.remove(&number);
                    deliveries.extend(to.map(|to| Delivery::Amended(to, outcome)));
                }
                Output::Lost { number, reason } => {
                    let all = self.watching.remove(&number).unwrap_or_default();
                    deliveries.extend(all.into_iter().map(|to| Delivery::Lost(to, reason.clone())));
                }
                Output::Stepped { number, outcome } => {
                    let to = self.stepping.remove(&number);
                    deliveries.extend(to.map(|to| Delivery::Stepped(to, outcome)));
                }
                Output::LeaseOpened => advanced.lease = Some(Ok(())),
                Output::LeaseRefused(reason, message) => {
                    advanced.lease = Some(Err(ClientError::Refused(reason, message)));
                }
                Output::Reconnect(why) => advanced.leave = Some(why),
            }
        }
        deliveries
    }
}

/// The messages that the session sends on one stream. The writer polls it, and combines all available
/// messages into one write.
pub(super) struct Outgoing {
    shared: Arc<Shared>,
    stream: u64,
    /// Taken from the session, not yet returned to the writer.
    taken: VecDeque<ClientMessage>,
    /// Renewals are sent as calls of their own.
    renews_apart: bool,
}

/// The renewals of the lease, for calls of their own, as long as the stream is the current one.
pub(super) struct Renewals {
    shared: Arc<Shared>,
    stream: u64,
}

impl Renewals {
    /// Takes the renewal that is due.
    pub(super) fn take(&self) -> Option<KeepAliveRequest> {
        self.shared.renewal(self.stream, Session::take_renewal_apart)
    }
}

impl tokio_stream::Stream for Outgoing {
    type Item = ClientMessage;

    fn poll_next(self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ClientMessage>> {
        self.get_mut().poll_message(cx)
    }
}

impl Outgoing {
    /// Returns true if there is something to send.
    pub(super) fn has_messages(&self) -> bool {
        !self.taken.is_empty() || self.shared.lock().session.has_messages()
    }

    /// Takes the renewal of the lease, which goes before everything else.
    pub(super) fn take_renewal(&mut self) -> Option<ClientMessage> {
        if self.renews_apart { None } else { self.shared.renewal(self.stream, Session::take_renewal) }
    }

    /// From now on the returned value supplies the renewals: on this stream they would wait behind everything
    /// queued before them.
    pub(super) fn renew_apart(&mut self) -> Renewals {
        self.renews_apart = true;
        Renewals { shared: Arc::clone(&self.shared), stream: self.stream }
    }

    /// Returns the next message; `None` once the stream is left.
    pub(super) fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<ClientMessage>> {
        if let Some(renewal) = self.take_renewal() {
            return Poll::Ready(Some(renewal));
        }
        if let Some(message) = self.taken.pop_front() {
            return Poll::Ready(Some(message));
        }
        let mut state = self.shared.lock();
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
