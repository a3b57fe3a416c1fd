//! A selection that was made: one task that owns its locks.

use std::future::pending;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use geolock_client::{AcquireError, AcquireRequest, CommitError, LockGuard, LostReason, Mode, Reason};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::sleep_until;

use super::shared::{Shared, count};
use super::store::{NotRead, Subject};
use super::{SelectError, Selection, TokenId, TokenSource};
use crate::retry::{Failed, failed, passes};
use crate::selector_state::{
    Answer, Call, Change, Mark, MarkRead, MarkState, Open, OpenEffect as Effect, OpenEvent as Event, Record,
    Stage, Wait, Write,
};

/// Calls that wait for the task, at most.
const CALLS: usize = 16;

pub(super) type Reply = oneshot::Sender<Result<(), SelectError>>;

pub(super) enum Message {
    Call(Call, Reply),
    /// A new handle, which is there until its other end is dropped.
    Attach(oneshot::Receiver<()>),
    /// The source says that the tokens are spent.
    Denied,
}

/// The selection, as calls reach it.
pub(super) struct Opened {
    pub of: Arc<Subject>,
    calls: mpsc::Sender<Message>,
    handle: Weak<Handle>,
    seen: Arc<Seen>,
    task: AbortHandle,
}

/// The state of the task that handles show.
pub(super) struct Seen {
    pub fence: AtomicU64,
    pub stage: Mutex<Stage>,
    pub lost: watch::Sender<Option<LostReason>>,
}

/// All handles of a selection share this. When it is dropped, the task hears of it.
pub(super) struct Handle {
    pub of: Arc<Subject>,
    pub seen: Arc<Seen>,
    _lives: oneshot::Sender<()>,
}

pub(super) enum Begin {
    Picked {
        guard: LockGuard,
        fence: u64,
    },
    /// Of another replica, or of an earlier run.
    Recovered(Record),
}

/// Makes a handle of a selection, and the task that owns it.
pub(super) fn open<S: TokenSource>(
    shared: &Arc<Shared<S>>,
    of: Subject,
    begin: Begin,
) -> Result<Selection, SelectError> {
    let of = Arc::new(of);
    let (calls, called) = mpsc::channel(CALLS);
    let (lives, dropped) = oneshot::channel();
    let now = shared.now();
    let (open, guard) = match begin {
        Begin::Picked { guard, fence } => (Open::picked(&shared.options, fence), Some(guard)),
        Begin::Recovered(record) => (Open::recovered(now, &shared.options, &record), None),
    };
    let seen = Arc::new(Seen {
        fence: AtomicU64::new(open.fence()),
        stage: Mutex::new(open.stage()),
        lost: watch::Sender::new(None),
    });
    let mut task = Task {
        shared: Arc::clone(shared),
        of: Arc::clone(&of),
        open,
        lost: None,
        guard: None,
        seen: Arc::clone(&seen),
        called,
        dropped: Some(dropped),
        reply: None,
        error: None,
        is_counted: true,
    };
    if let Some(guard) = guard {
        task.hold(guard);
    }
    let handle = Arc::new(Handle { of: Arc::clone(&of), seen: Arc::clone(&seen), _lives: lives });
    let tx = of.tx.clone();
    shared.change(|state, _| {
        if state.is_closed() {
            return Err(SelectError::Closed);
        }
        state.space.claim(&tx, of.ids());
        state.space.count_locked(&of.pool, of.tokens.len(), 0);
        let task = tokio::spawn(task.run()).abort_handle();
        let handle = Arc::downgrade(&handle);
        state.opened.insert(tx.clone(), Opened { of, calls, handle, seen, task });
        Ok(())
    })?;
    Ok(Selection { handle })
}

impl Opened {
    /// Returns another handle; `None` if the selection is about to end.
    pub fn attach(&mut self) -> Option<Selection> {
        if let Some(handle) = self.handle.upgrade() {
            return (self.stage() != Stage::Over).then_some(Selection { handle });
        }
        if matches!(self.stage(), Stage::Picked | Stage::Over) {
            return None;
        }
        let (lives, dropped) = oneshot::channel();
        self.calls.try_send(Message::Attach(dropped)).ok()?;
        let handle = Handle { of: Arc::clone(&self.of), seen: Arc::clone(&self.seen), _lives: lives };
        let handle = Arc::new(handle);
        self.handle = Arc::downgrade(&handle);
        Some(Selection { handle })
    }

    pub fn stage(&self) -> Stage {
        *self.seen.stage.lock().expect("nothing panics while it holds this")
    }

    pub fn is_spent(&self) -> bool {
        matches!(self.stage(), Stage::Spent { .. } | Stage::Over)
    }

    pub fn ids(&self) -> Vec<TokenId> {
        self.of.ids()
    }

    pub fn calls(&self) -> mpsc::Sender<Message> {
        self.calls.clone()
    }

    /// Tells the task something that may get lost.
    pub fn tell(&self, message: Message) {
        // If it has no time for this, there will be another round.
        let _ = self.calls.try_send(message);
    }

    pub fn abort(&self) {
        self.task.abort();
    }
}

struct Task<S: TokenSource> {
    shared: Arc<Shared<S>>,
    of: Arc<Subject>,
    open: Open,
    guard: Option<LockGuard>,
    lost: Option<Pin<Box<dyn Future<Output = LostReason> + Send>>>,
    seen: Arc<Seen>,
    called: mpsc::Receiver<Message>,
    dropped: Option<oneshot::Receiver<()>>,
    /// The caller that waits.
    reply: Option<Reply>,
    /// The latest error, for the caller.
    error: Option<SelectError>,
    /// Its tokens count as locked: they are not spent.
    is_counted: bool,
}

impl<S: TokenSource> Task<S> {
    async fn run(mut self) {
        loop {
            let mut is_over = false;
            while let Some(effect) = self.open.poll_effect() {
                is_over |= effect == Effect::End;
                self.perform(effect).await;
            }
            if is_over {
                return;
            }
            let due = self.open.deadline().map(|at| self.shared.at(at));
            let due = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => pending().await,
                }
            };
            let event = tokio::select! {
                biased;
                reason = lost(&mut self.lost) => {
                    self.lost = None;
                    self.seen.lost.send_replace(Some(reason));
                    Event::Lost
                }
                message = self.called.recv(), if !self.open.is_busy() => match message {
                    Some(Message::Call(call, reply)) => {
                        self.reply = Some(reply);
                        Event::Call(call)
                    }
                    Some(Message::Attach(dropped)) => {
                        self.dropped = Some(dropped);
                        Event::Attached
                    }
                    Some(Message::Denied) => Event::Denied,
                    // The selector is dropped.
                    None => return,
                },
                () = dropped(&mut self.dropped) => {
                    self.dropped = None;
                    Event::Dropped
                }
                () = due => Event::Time,
            };
            self.handle(event);
        }
    }

    fn handle(&mut self, event: Event) {
        self.open.handle(self.shared.now(), event);
        self.seen.fence.store(self.open.fence(), Ordering::Relaxed);
        *self.seen.stage.lock().expect("nothing panics while it holds this") = self.open.stage();
    }

    fn hold(&mut self, guard: LockGuard) {
        self.lost = Some(Box::pin(guard.lost()));
        self.guard = Some(guard);
    }

    async fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Lock(wait) => self.lock(&wait).await,
            Effect::Write(write) => self.write(&write).await,
            Effect::LetGo => {
                self.lost = None;
                if let Some(guard) = self.guard.take() {
                    // If it was lost, there is nothing to release.
                    let _ = guard.release().await;
                }
            }
            Effect::Answer(answer) => self.answer(answer),
            Effect::End => self.leave(),
        }
    }

    fn answer(&mut self, answer: Answer) {
        let tx = self.of.tx.clone();
        let error = self.error.take();
        let answer = match answer {
            Answer::Done => Ok(()),
            Answer::Fenced => Err(SelectError::Fenced { tx }),
            Answer::AlreadySpent => Err(SelectError::AlreadySpent { tx }),
            Answer::Taken | Answer::Failed => Err(error.unwrap_or(SelectError::Timeout)),
        };
        if let Some(reply) = self.reply.take() {
            // The caller may have gone.
            let _ = reply.send(answer);
        }
    }

    /// Takes all locks again, and reads the marks under them.
    async fn lock(&mut self, wait: &Wait) {
        let keys = &self.shared.store.keys;
        let mut locks = self.of.tokens.iter().map(|token| keys.lock(token));
        let Some(first) = locks.next() else { return self.handle(Event::LockFailed) };
        let request = AcquireRequest::exclusive(first).label(self.of.tx.as_str());
        let request = locks.fold(request, |request, lock| request.and(lock, Mode::Exclusive));
        let request = request.wait(match wait {
            Wait::Try => geolock_client::Wait::Try,
            Wait::AtMost(wait) => geolock_client::Wait::AtMost(*wait),
        });
        let event = match self.shared.store.client.acquire(request).await {
            Ok(guard) => {
                let (fence, ids) = (guard.token().0, self.of.ids());
                match self.shared.store.marks_under(&guard, &self.of.tx, &ids).await {
                    Ok((marks, _)) => {
                        self.hold(guard);
                        Event::Locked { fence, marks }
                    }
                    Err(NotRead::ForNow) => Event::LockFailed,
                    Err(NotRead::For(error)) => {
                        self.error = Some(error);
                        Event::LockFailed
                    }
                }
            }
            Err(AcquireError::NotFree | AcquireError::TimedOut { .. }) => self.not_locked().await,
            Err(error) => {
                self.error = Some(error.into());
                Event::LockFailed
            }
        };
        self.handle(event);
    }

    async fn not_locked(&mut self) -> Event {
        let (tx, ttl) = (&self.of.tx, self.shared.store.client.ttl());
        let read = self.shared.store.marks(tx, &self.of.ids()).await;
        let is_own = read.is_ok_and(|(marks, _)| marks.iter().all(|mark| *mark == MarkRead::Own));
        let (by, retry_after) = {
            let state = self.shared.lock();
            state.space.blockers(self.shared.now(), &self.of.pool, tx, ttl)
        };
        let ids = self.of.ids();
        let by =
            by.into_iter().filter(|held| held.token.as_ref().is_some_and(|id| ids.contains(id))).collect();
        self.error = Some(SelectError::Locked { free: 0, by, retry_after });
        Event::NotLocked { is_own }
    }

    async fn write(&mut self, write: &Write) {
        let Some(guard) = &self.guard else { return self.handle(Event::NotWritten) };
        let shared = Arc::clone(&self.shared);
        let event = match shared.store.write(guard, &self.of, write, &shared.options).await {
            Ok(()) => {
                self.on_written(write);
                Event::Written
            }
            Err(error) => self.on_not_written(error),
        };
        self.handle(event);
    }

    fn on_not_written(&mut self, error: CommitError) -> Event {
        let is_unknown = matches!(error, CommitError::OutcomeUnknown(_));
        let text = error.to_string();
        match failed(error) {
            Failed::NotWritten(crate::once_state::NotWritten::Lost) if !is_unknown => Event::NotWritten,
            Failed::NotWritten(_) => {
                self.error = Some(CommitError::OutcomeUnknown(text).into());
                Event::WriteFailed { passes: true }
            }
            Failed::Refused(reason, message) => {
                let passes = passes(reason) || reason == Reason::Unspecified;
                self.error = Some(geolock_client::ClientError::Refused(reason, message).into());
                Event::WriteFailed { passes }
            }
        }
    }

    /// This replica knows it at once, not when its watch tells.
    fn on_written(&mut self, write: &Write) {
        let Task { of, shared, .. } = self;
        match write {
            Write::Reserved => {}
            Write::Spent(change) => {
                count(&shared.counters.spent, of.tokens.len());
                let fence = self.open.fence();
                shared.change(|state, now| {
                    for id in of.ids() {
                        let mark = Mark { tx: of.tx.clone(), fence, state: MarkState::Spent };
                        state.space.on_change(now, Change::Marked(id, mark));
                    }
                    state.space.on_change(now, Change::New(of.pool.clone(), change.clone()));
                });
                self.stop_counting();
            }
            Write::Removed => shared.change(|state, now| {
                of.ids().into_iter().for_each(|id| state.space.on_change(now, Change::Unmarked(id)));
            }),
        }
    }

    fn stop_counting(&mut self) {
        if std::mem::take(&mut self.is_counted) {
            let Task { of, shared, .. } = self;
            shared.change(|state, _| state.space.count_locked(&of.pool, 0, of.tokens.len()));
        }
    }

    /// The selection is over for this replica.
    fn leave(&mut self) {
        let is_spent = !self.is_counted;
        self.stop_counting();
        let Task { of, shared, seen, .. } = self;
        shared.change(|state, _| {
            state.space.unclaim(&of.tx, of.ids());
            // There may be a later one of the same transaction.
            if state.opened.get(&of.tx).is_some_and(|opened| Arc::ptr_eq(&opened.seen, seen)) {
                state.opened.remove(&of.tx);
                if !is_spent {
                    state.note_gone(of.tx.clone());
                }
            }
        });
    }
}

async fn lost(lost: &mut Option<Pin<Box<dyn Future<Output = LostReason> + Send>>>) -> LostReason {
    match lost {
        Some(lost) => lost.await,
        None => pending().await,
    }
}

/// Waits until the handle is dropped. Cancel-safe.
async fn dropped(dropped: &mut Option<oneshot::Receiver<()>>) {
    match dropped {
        // Nothing is ever sent.
        Some(dropped) => drop(dropped.await),
        None => pending().await,
    }
}
