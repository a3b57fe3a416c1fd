//! The combiner. A thread that submits a call steps the machine itself, unless another thread does so
//! already.
//!
//! This is flat combining (Hendler, Incze, Shavit, Tzafrir: Flat Combining and the
//! Synchronization-Parallelism Tradeoff, SPAA 2010). A dedicated thread for the machine would cost each call
//! two wake-ups of threads, one to hand it over and one for its answer: tens of microseconds, where the call
//! itself takes one. So a thread puts its call into the mailbox, tries to take the lock of the engine,
//! handles the mailbox in its own thread, and finds the answer in its outbox.
//!
//! Only the actor blocks on the lock, and it has priority. Other threads `try_lock`; if that fails, their
//! call stays in the mailbox for the thread that holds the lock. Steps are made one at a time, whichever
//! thread makes them, and calls are handled in the order of the mailbox.
//!
//! **No input is lost.** A thread that puts an input into the mailbox sets `submitted` *before* `try_lock`.
//! A thread that releases the lock reads `submitted` *afterwards*. A sequentially consistent fence separates
//! the two accesses on each side. So if `try_lock` fails, the thread that holds the lock sees `submitted`
//! after it has released the lock, and handles the input. A thread that finds `actor_waits` set leaves its
//! input to the actor, which handles the mailbox after its step.
//!
//! Rejected: a lock on which every thread blocks (a blocked thread serves no other connection); the actor as
//! a task on the caller's runtime (a call then waits for a free thread, and the program that embeds the
//! server decides how long that takes).

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use super::engine::{Backlog, Engine};
use super::ports::{Links, Machine, Store};
use super::start::StopError;

/// Most batches that one thread handles for others before the actor continues.
const MAX_BATCHES: usize = 4;

/// The combiner: the lock of the engine, and the flags of the threads that want it.
pub(super) struct Combiner<M, S, L: Links> {
    /// `None` after the actor's last step.
    engine: Mutex<Option<Engine<M, S, L>>>,
    /// The mailbox may contain inputs.
    submitted: AtomicBool,
    /// The actor is blocked on the lock.
    actor_waits: AtomicBool,
    /// Wakes the actor.
    wake_actor: Arc<Notify>,
}

/// A [`Combiner`] as the threads that submit inputs see it.
pub(super) trait Combine: Send + Sync {
    /// Notes that an input was put into the mailbox, and handles the mailbox if no other thread does.
    fn notify_submitted(&self);
}

impl<M: Machine, S: Store, L: Links> Combine for Combiner<M, S, L> {
    fn notify_submitted(&self) {
        self.submitted.store(true, Ordering::SeqCst);
        self.run_pending();
    }
}

impl<M: Machine, S: Store, L: Links> Combiner<M, S, L> {
    /// `wake_actor` wakes the actor.
    pub(super) fn new(engine: Engine<M, S, L>, wake_actor: Arc<Notify>) -> Combiner<M, S, L> {
        let (submitted, actor_waits) = (AtomicBool::new(false), AtomicBool::new(false));
        Combiner { engine: Mutex::new(Some(engine)), submitted, actor_waits, wake_actor }
    }

    /// Runs one step of the actor under the lock, then handles the mailbox.
    pub(super) fn with_engine<R>(
        &self,
        step: impl FnOnce(&mut Engine<M, S, L>) -> Result<R, StopError>,
    ) -> Result<R, StopError> {
        self.actor_waits.store(true, Ordering::SeqCst);
        let mut engine = self.lock();
        self.actor_waits.store(false, Ordering::SeqCst);
        let result = step(engine.as_mut().expect("the actor takes no turn after its last one"));
        drop(engine);
        if result.is_ok() {
            // The step itself may have put a probe into the mailbox.
            self.notify_submitted();
        }
        result
    }

    /// Takes the engine out for good; no thread steps the machine afterwards.
    pub(super) fn close(&self) -> Engine<M, S, L> {
        self.lock().take().expect("the actor ends once")
    }

    fn lock(&self) -> MutexGuard<'_, Option<Engine<M, S, L>>> {
        self.engine.lock().unwrap_or_else(|poisoned| {
            // Dropping the engine tells all waiting callers that no answer will come.
            drop(poisoned.into_inner().take());
            panic!("a step of the lock server has panicked");
        })
    }

    /// Handles the mailbox, unless another thread does so or the actor waits for the lock.
    fn run_pending(&self) {
        for _ in 0..MAX_BATCHES {
            fence(Ordering::SeqCst);
            if !self.submitted.load(Ordering::SeqCst) || self.actor_waits.load(Ordering::SeqCst) {
                return;
            }
            let Ok(mut engine) = self.engine.try_lock() else { return };
            let Some(engine) = engine.as_mut() else { return };
            self.submitted.store(false, Ordering::SeqCst);
            match engine.run_pending() {
                Ok(Backlog::Empty) => {}
                Ok(Backlog::Possible) => self.submitted.store(true, Ordering::SeqCst),
                Ok(Backlog::NotRead) => {
                    self.submitted.store(true, Ordering::SeqCst);
                    return;
                }
                Err(error) => engine.failed = Some(error),
            }
            if engine.is_due_sooner() {
                self.wake_actor.notify_one();
            }
        }
        self.wake_actor.notify_one();
    }
}
