//! Who works: whoever brings a call, if nobody else is at it.
//!
//! A thread of its own for every call would cost two wake-ups of threads each, one to hand it over and one for its answer:
//! tens of microseconds, where the call itself takes one. So who puts a call into the mailbox then tries to take a turn with
//! the works himself, in his own thread, and finds the answer in his outbox. Nobody waits for a turn but the actor, who comes
//! first: everybody else leaves his call in the mailbox, to whoever has the turn. Steps happen one at a time whoever makes
//! them, each call after the ones before it in the mailbox.
//!
//! **Nothing is forgotten.** Who puts something in says so (`brought`) before he tries to take a turn; who ends a turn looks
//! at that afterwards. Of two who do this at a time, one sees the other.
//!
//! What was rejected: a lock that everybody waits for (a thread that waits serves no other connection); the actor as a task
//! of the caller's runtime (a call waits for a thread to be free, and who embeds a server decides how long that takes).

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use super::ports::{Links, Machine, Store};
use super::start::StopError;
use super::works::{Left, Works};

/// Most batches that somebody works off for others before the actor goes on with it.
const TURNS: usize = 4;

/// See the top of this file.
pub(super) struct Workshop<M, S, L: Links> {
    /// None before the actor's first turn and after its last one.
    works: Mutex<Option<Works<M, S, L>>>,
    /// Something may be in the mailbox.
    brought: AtomicBool,
    /// The actor waits for a turn.
    actor_waits: AtomicBool,
    /// For the actor.
    call: Arc<Notify>,
}

/// A [`Workshop`], for those who bring something.
pub(super) trait Work: Send + Sync {
    /// Something was put into the mailbox.
    fn brought(&self);
}

impl<M: Machine, S: Store, L: Links> Work for Workshop<M, S, L> {
    fn brought(&self) {
        self.brought.store(true, Ordering::SeqCst);
        self.work_off();
    }
}

impl<M: Machine, S: Store, L: Links> Workshop<M, S, L> {
    /// `call`: what calls the actor.
    pub(super) fn new(works: Works<M, S, L>, call: Arc<Notify>) -> Workshop<M, S, L> {
        let (brought, actor_waits) = (AtomicBool::new(false), AtomicBool::new(false));
        Workshop { works: Mutex::new(Some(works)), brought, actor_waits, call }
    }

    /// The actor's turn; then that of the mailbox.
    pub(super) fn turn<R>(
        &self,
        turn: impl FnOnce(&mut Works<M, S, L>) -> Result<R, StopError>,
    ) -> Result<R, StopError> {
        self.actor_waits.store(true, Ordering::SeqCst);
        let mut works = self.lock();
        self.actor_waits.store(false, Ordering::SeqCst);
        let result = turn(works.as_mut().expect("the actor takes no turn after its last one"));
        drop(works);
        if result.is_ok() {
            // Its own probes are in there, too.
            self.brought();
        }
        result
    }

    /// Until the actor has something to do that others found.
    pub(super) async fn called(&self) {
        self.call.notified().await;
    }

    /// The end: nobody takes a turn any more.
    pub(super) fn close(&self) -> Works<M, S, L> {
        self.lock().take().expect("the actor ends once")
    }

    fn lock(&self) -> MutexGuard<'_, Option<Works<M, S, L>>> {
        self.works.lock().unwrap_or_else(|poisoned| {
            // Whoever waits for an answer hears that none will come.
            drop(poisoned.into_inner().take());
            panic!("a step of the lock server has panicked");
        })
    }

    /// Works off what was brought, unless somebody else is at it, or about to be.
    fn work_off(&self) {
        for _ in 0..TURNS {
            fence(Ordering::SeqCst);
            if !self.brought.load(Ordering::SeqCst) || self.actor_waits.load(Ordering::SeqCst) {
                return;
            }
            let Ok(mut works) = self.works.try_lock() else { return };
            let Some(works) = works.as_mut() else { return };
            self.brought.store(false, Ordering::SeqCst);
            match works.work_off() {
                Ok(Left::Nothing) => {}
                Ok(Left::Perhaps) => self.brought.store(true, Ordering::SeqCst),
                Ok(Left::Untouched) => {
                    self.brought.store(true, Ordering::SeqCst);
                    return;
                }
                Err(error) => works.failed = Some(error),
            }
            if works.is_due_sooner() {
                self.call.notify_one();
            }
        }
        self.call.notify_one();
    }
}
