//! A lock that is held with its value: a task writes the value, and writes it again before it expires.

use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use geolock_client::{ClientError, FencingToken, LockGuard, LostReason, Reason};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::{HeldError, Place, check};
use crate::held_state::{Denied, Effect, Event, Holder};

/// Callers that wait for the task, at most.
const CALLERS: usize = 16;

type Answer = oneshot::Sender<Result<(), HeldError>>;

/// A lock that is held, with its value. If this is dropped, the task gives up the lock.
#[derive(Debug)]
pub(crate) struct Holding {
    token: FencingToken,
    guard: Weak<LockGuard>,
    /// The reason of the loss, when the guard is gone.
    reason: Arc<OnceLock<LostReason>>,
    calls: mpsc::Sender<(Bytes, Answer)>,
    task: JoinHandle<Result<(), ClientError>>,
}

impl Holding {
    /// Writes the first value. Without an error, it was written while the lock was held.
    pub(super) async fn begin(place: &Place, guard: LockGuard, value: Bytes) -> Result<Holding, HeldError> {
        let (token, guard) = (guard.token(), Arc::new(guard));
        let (calls, called) = mpsc::channel(CALLERS);
        let (answer, answered) = oneshot::channel();
        let renew = place.expires.then(|| place.client.ttl());
        let reason = Arc::new(OnceLock::new());
        let task = Task {
            place: place.clone(),
            holder: Holder::new(value, renew),
            began: Instant::now(),
            waiting: vec![answer],
            called,
            reason: Arc::clone(&reason),
            refusal: None,
        };
        let holding = Holding {
            token,
            guard: Arc::downgrade(&guard),
            reason,
            calls,
            // From here on, dropping this future gives up the lock.
            task: tokio::spawn(task.run(guard)),
        };
        answered.await.unwrap_or(Err(HeldError::Lost(LostReason::Closed)))?;
        Ok(holding)
    }

    pub fn token(&self) -> FencingToken {
        self.token
    }

    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + use<> {
        let lost = self.guard.upgrade().map(|guard| guard.lost()).ok_or_else(|| known(&self.reason));
        async {
            match lost {
                Ok(lost) => lost.await,
                Err(reason) => reason,
            }
        }
    }

    pub fn is_lost(&self) -> Option<LostReason> {
        match self.guard.upgrade() {
            Some(guard) => guard.is_lost(),
            None => Some(known(&self.reason)),
        }
    }

    /// Waits until the value is written, however long that takes while the lock is held.
    pub async fn set(&self, value: Bytes) -> Result<(), HeldError> {
        check(&value)?;
        let (answer, answered) = oneshot::channel();
        let over = || HeldError::Lost(self.is_lost().unwrap_or(LostReason::Released));
        self.calls.send((value, answer)).await.map_err(|_| over())?;
        answered.await.unwrap_or_else(|_| Err(over()))
    }

    /// Returns [`ClientError::LeaseLost`] if the lock had been lost before.
    pub async fn release(self) -> Result<(), ClientError> {
        drop(self.calls);
        self.task.await.unwrap_or(Err(ClientError::Closed))
    }
}

/// The driver of a [`Holder`].
struct Task {
    place: Place,
    holder: Holder,
    began: Instant,
    /// The callers that wait for an answer.
    waiting: Vec<Answer>,
    called: mpsc::Receiver<(Bytes, Answer)>,
    reason: Arc<OnceLock<LostReason>>,
    /// The last refusal.
    refusal: Option<(Reason, String)>,
}

impl Task {
    async fn run(mut self, guard: Arc<LockGuard>) -> Result<(), ClientError> {
        let mut lost = pin!(guard.lost());
        loop {
            let effect = self.holder.poll_effect();
            let event = match effect {
                Some(Effect::Answer(answer)) => {
                    self.answer(answer);
                    continue;
                }
                Some(Effect::Release) => {
                    return match Arc::into_inner(guard) {
                        Some(guard) => guard.release().await,
                        // A caller looks at it at this moment, and lets it go.
                        None => Ok(()),
                    };
                }
                Some(Effect::End) => return Err(ClientError::LeaseLost(known(&self.reason))),
                effect => tokio::select! {
                    biased;
                    reason = &mut lost => {
                        // It resolves once.
                        let _ = self.reason.set(reason);
                        Event::Lost
                    }
                    event = self.perform(&guard, effect) => event,
                },
            };
            self.holder.handle(self.began.elapsed(), event);
        }
    }

    /// Writes, or waits for a call or for time.
    async fn perform(&mut self, guard: &LockGuard, effect: Option<Effect>) -> Event {
        match effect {
            Some(Effect::Write(value)) => self.place.write(guard, value, &mut self.refusal).await,
            Some(Effect::Clear) => self.place.clear(guard).await,
            _ => {
                let due = self.holder.deadline();
                tokio::select! {
                    called = self.called.recv() => match called {
                        Some((value, answer)) => {
                            self.waiting.push(answer);
                            Event::Set(value)
                        }
                        None => Event::Leave,
                    },
                    () = until(self.began, due) => Event::Time,
                }
            }
        }
    }

    fn answer(&mut self, answer: Result<(), Denied>) {
        for waiting in self.waiting.drain(..) {
            let answer = match (answer, self.refusal.clone()) {
                (Ok(()), _) => Ok(()),
                (Err(Denied::Refused), Some((reason, message))) => {
                    Err(HeldError::Refused { reason, message })
                }
                (Err(Denied::Left), _) => Err(HeldError::Lost(LostReason::Released)),
                (Err(Denied::Lost | Denied::Refused), _) => Err(HeldError::Lost(known(&self.reason))),
            };
            // The caller may have gone.
            let _ = waiting.send(answer);
        }
    }
}

fn known(reason: &OnceLock<LostReason>) -> LostReason {
    reason.get().cloned().unwrap_or(LostReason::Released)
}

async fn until(began: Instant, due: Option<Duration>) {
    match due {
        Some(due) => sleep_until(began + due).await,
        None => pending().await,
    }
}
