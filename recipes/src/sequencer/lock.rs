//! The contract's lock: waits for it, holds it, and writes the handover under it.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use geolock_client::{
    AcquireError, AcquireRequest, Batch, Client, CommitError, LockGuard, Reading, TxnRequest, Update, Value,
};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::driver::LockInput;
use super::keys::Keys;
use super::{SequencerError, Warning};
use crate::once_state::NotWritten;
use crate::retry::{Failed, PAUSE, failed, passes};
use crate::sequencer_state::{Epoch, Handover, LockEffect, LockEvent};

/// An effect, and the number of the request that it is about.
#[derive(Debug)]
pub(super) struct Command {
    pub number: u64,
    /// The number of the last handover that is to be written, this one included.
    pub handover: u64,
    pub effect: LockEffect,
}

/// The task that has the lock. Its events carry the number of the request: those of a former one are void.
pub(super) struct LockTask {
    pub place: LockPlace,
    /// At most two for each election. A release ends with the lease at the latest.
    pub commands: mpsc::UnboundedReceiver<Command>,
}

/// The lock, and the driver that hears of it.
pub(super) struct LockPlace {
    pub client: Client,
    pub keys: Arc<Keys>,
    /// How often a request that waits asks if the lock can be had.
    pub asks_every: Duration,
    pub events: mpsc::UnboundedSender<LockInput>,
}

/// The end of a request.
enum Over {
    /// It was released, or lost.
    Ended,
    /// The driver has gone.
    Closed,
}

impl LockTask {
    /// Ends when the driver has gone; the lock is released then.
    pub async fn run(mut self) {
        while let Some(Command { number, effect, .. }) = self.commands.recv().await {
            if effect != LockEffect::Acquire {
                // Of a request that has ended.
                continue;
            }
            let Some(guard) = self.acquire(number).await else { continue };
            if let Over::Closed = self.hold(number, guard).await {
                return;
            }
        }
    }

    /// Waits for the lock; `None` if the request is given up.
    async fn acquire(&mut self, number: u64) -> Option<LockGuard> {
        let LockTask { place, commands } = self;
        let mut news = pin!(place.tell_if_blocked(number));
        loop {
            let request = AcquireRequest::exclusive(place.keys.lock().clone());
            let request = request.label(place.keys.me().as_str());
            let acquired = tokio::select! {
                acquired = place.client.acquire(request) => acquired,
                _ = commands.recv() => return None,
                never = &mut news => match never {},
            };
            let pause = match acquired {
                Ok(guard) => return Some(guard),
                // The next acquire opens another lease.
                Err(AcquireError::LeaseLost(_)) => Duration::ZERO,
                Err(AcquireError::Exhausted { retry_after, .. }) => retry_after,
                Err(AcquireError::Refused(reason, _)) if passes(reason) => PAUSE,
                Err(error @ (AcquireError::Refused(..) | AcquireError::Closed)) => {
                    place.tell(LockInput::Failed(SequencerError::Refused(error.to_string())));
                    return None;
                }
                Err(_) => PAUSE,
            };
            tokio::select! {
                () = sleep(pause) => {}
                _ = commands.recv() => return None,
            }
        }
    }

    async fn hold(&mut self, number: u64, guard: LockGuard) -> Over {
        let LockTask { place, commands } = self;
        let mut lost = pin!(guard.lost());
        let mut work = Work::Read;
        loop {
            let done = async {
                match &work {
                    Work::Read => place.read(&guard).await,
                    Work::Write(number, handover) => place.write(&guard, *number, handover).await,
                    Work::None => pending().await,
                }
            };
            // The loss is told before anything else. It comes once, and commands are few.
            tokio::select! {
                biased;
                _ = &mut lost => {
                    place.tell(LockInput::Event(number, LockEvent::Lost));
                    return Over::Ended;
                }
                command = commands.recv() => match command.map(|it| (it.handover, it.effect)) {
                    Some((number, LockEffect::WriteHandover(handover))) => work = Work::Write(number, handover),
                    Some((_, LockEffect::Acquire)) => {}
                    Some((_, LockEffect::Release)) => {
                        // If it was lost, there is nothing to release.
                        let _ = guard.release().await;
                        return Over::Ended;
                    }
                    None => {
                        let _ = guard.release().await;
                        return Over::Closed;
                    }
                },
                done = done => {
                    match done {
                        Done::Event(event) => place.tell(LockInput::Event(number, event)),
                        Done::Written(handover) => place.tell(LockInput::Written(handover)),
                        // Lost, or it is not known if it was written: the next holder sees that.
                        Done::Lost => {
                            place.tell(LockInput::Event(number, LockEvent::Lost));
                            let _ = guard.release().await;
                            return Over::Ended;
                        }
                        Done::Failed(error) => place.tell(LockInput::Failed(error)),
                    }
                    work = Work::None;
                }
            }
        }
    }
}

impl LockPlace {
    fn tell(&self, news: LockInput) {
        // The driver may have gone.
        let _ = self.events.send(news);
    }

    /// Tells when a datacenter that owns a part of the lock is not reachable, and when all are again.
    async fn tell_if_blocked(&self, number: u64) -> Infallible {
        let mut ticks = interval(self.asks_every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first one is at once: a lock that is free is granted before the second.
        ticks.tick().await;
        let mut was_blocked = false;
        loop {
            ticks.tick().await;
            let Ok(described) = self.client.describe_lock(self.keys.lock()).await else { continue };
            let is_blocked = !described.unreachable_dcs.is_empty();
            if is_blocked != was_blocked {
                was_blocked = is_blocked;
                let event = if is_blocked { LockEvent::Blocked } else { LockEvent::Unblocked };
                self.tell(LockInput::Event(number, event));
            }
        }
    }

    /// Reads the handover under the lock: it is that of the last coordinator, wherever that was.
    async fn read(&self, guard: &LockGuard) -> Done {
        let key = self.keys.handover();
        loop {
            let batch = Batch::new().read(key);
            let done = self.client.transact(TxnRequest::new().under(guard), batch).await;
            let values = match done {
                Ok(done) => done.values,
                Err(CommitError::NotAtMajority(not)) => not.values,
                Err(error) => match self.after(error).await {
                    Some(done) => return done,
                    None => continue,
                },
            };
            // The answer was lost.
            let Some(values) = values else { continue };
            let handover = match values.first().and_then(Value::reading) {
                Some(Reading::LwwRegister(Some(bytes))) => {
                    Handover::decode(bytes).map(Some).map_err(|why| why.to_string())
                }
                None | Some(Reading::LwwRegister(None)) => Ok(None),
                Some(_) => Err("it is no register".to_owned()),
            };
            let handover = handover.unwrap_or_else(|why| {
                let key = key.name().escape_ascii().to_string();
                self.tell(LockInput::Warning(Warning::Unreadable { key, why }));
                None
            });
            return Done::Event(LockEvent::Granted { epoch: Epoch(guard.token().0), handover });
        }
    }

    async fn write(&self, guard: &LockGuard, number: u64, handover: &Handover) -> Done {
        loop {
            let batch = Batch::new().update(self.keys.handover(), Update::register(handover.encode()));
            match self.client.transact(TxnRequest::new().under(guard), batch).await {
                Ok(_) | Err(CommitError::NotAtMajority(_)) => return Done::Written(number),
                Err(error) => {
                    if let Some(done) = self.after(error).await {
                        return done;
                    }
                }
            }
        }
    }

    /// Returns the end of the attempt, or nothing after a pause: it is to be made again.
    async fn after(&self, error: CommitError) -> Option<Done> {
        match failed(error) {
            Failed::NotWritten(NotWritten::Lost) => Some(Done::Lost),
            Failed::NotWritten(NotWritten::ForNow) => {
                sleep(PAUSE).await;
                None
            }
            Failed::Refused(_, message) => Some(Done::Failed(SequencerError::Refused(message))),
        }
    }
}

enum Work {
    None,
    Read,
    Write(u64, Handover),
}

enum Done {
    Event(LockEvent),
    Written(u64),
    Lost,
    Failed(SequencerError),
}
