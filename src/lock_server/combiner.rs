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
//! # No input is lost
//!
//! ```text
//!   submitting thread                  thread that has the lock
//!   P   put the input in               C   submitted.swap(false)
//!   S   submitted.swap(true)           B   handle a batch
//!   F   fence(SeqCst)                  U   unlock
//!   R   read submitted, actor_waits    F'  fence(SeqCst)
//!   L   try_lock                       R'  read submitted, actor_waits
//! ```
//!
//! **A clear that comes after S is followed by a batch that finds the input.** Here *after* means the
//! modification order of `submitted`. Every write of `submitted` is a swap that acquires and releases, so C
//! reads the end of a chain of swaps that contains S, and P happens before B. A plain store as S or C would
//! break the chain: C could overwrite S without reading it, and then nothing orders P before B. And C comes
//! before B: a clear after the batch would erase the flag of an input that came during the batch.
//!
//! **A thread that returns without the lock leaves `submitted` to a thread that reads it later.**
//! - L fails: the thread that has the lock unlocks and reads again at R'. One side writes `submitted` and
//!   then reads the lock, the other writes the lock and then reads `submitted`. Acquire and release do not
//!   order a write before a later read of another location, so both could read the old value. The fences are
//!   in one total order: if F comes first, R' sees S; if F' comes first, L sees U and does not fail. Either
//!   fence alone is not enough.
//! - R finds `actor_waits` set: the actor clears it as soon as it has the lock. After its step it sets
//!   `submitted` and passes F'. If F' came before F, R would see the clear. So F is first, and R' sees S.
//! - R finds `submitted` clear: it was cleared after S.
//! - [`MAX_BATCHES`] are handled: the thread wakes the actor, which sets `submitted` after its step.
//!
//! The mailbox returns no input that follows an unfinished one. The thread that puts that one in sets
//! `submitted` afterwards, so this input is handled with it at the latest.
//!
//! # The actor is not starved
//!
//! The actor sets `actor_waits`, passes a fence, and blocks on the lock. A thread that passes F later in the
//! total order sees the flag and returns. So each other thread begins one batch at most before the actor has
//! the lock: the batch for which it read the flag before. The lock itself need not be fair.
//!
//! # Failures
//!
//! [`Combiner::step`] makes every step and decides alone what a failure means: the state leaves `Running`
//! before the lock is released, and the actor is woken. No thread steps the machine afterwards.
//!
//! `tests/combiner` checks all of this with loom, on this file, together with deliberate bugs.
//!
//! Rejected: a lock on which every thread blocks (a blocked thread serves no other connection); the actor as
//! a task on the caller's runtime (a call then waits for a free thread, and the program that embeds the
//! server decides how long that takes).

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use super::sync::{AtomicBool, Mutex, MutexGuard, Notify, Ordering, fence};

/// Most batches that one thread handles for others before the actor continues.
const MAX_BATCHES: usize = 4;

/// The combiner: the lock of the engine, and the flags of the threads that want it.
pub(super) struct Combiner<T: Combined> {
    state: Mutex<State<T>>,
    /// The mailbox may contain inputs. Written by swaps only.
    submitted: AtomicBool,
    /// The actor is blocked on the lock.
    actor_waits: AtomicBool,
    /// Wakes the actor.
    wake_actor: Arc<Notify>,
}

/// The engine as the combiner sees it.
pub(super) trait Combined {
    type Error;

    /// Handles one batch of the mailbox.
    fn run_pending(&mut self) -> Result<Backlog, Self::Error>;

    /// Returns true if something is due before the actor wakes up by itself.
    fn is_due_sooner(&self) -> bool;
}

/// Tells if the mailbox may contain more inputs that were put in before the batch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Backlog {
    Empty,
    Possible,
}

/// The engine, and if it still makes steps.
enum State<T: Combined> {
    Running(T),
    /// A step returned an error. The actor takes both out.
    Failed(T, T::Error),
    /// A step panicked. Its engine was dropped, which tells all callers that no answer will come.
    Panicked,
    /// The actor has taken the engine out.
    Closed,
}

/// A [`Combiner`] as the threads that submit inputs see it.
pub(super) trait Combine: Send + Sync {
    /// Notes that an input was put into the mailbox, and handles the mailbox if no other thread does.
    fn notify_submitted(&self);
}

impl<T: Combined<Error: Send> + Send> Combine for Combiner<T> {
    fn notify_submitted(&self) {
        self.submitted.swap(true, Ordering::AcqRel);
        self.run_pending();
    }
}

impl<T: Combined<Error: Send> + Send> Combiner<T> {
    /// `wake_actor` wakes the actor.
    pub(super) fn new(engine: T, wake_actor: Arc<Notify>) -> Combiner<T> {
        let (submitted, actor_waits) = (AtomicBool::new(false), AtomicBool::new(false));
        Combiner { state: Mutex::new(State::Running(engine)), submitted, actor_waits, wake_actor }
    }

    /// Runs one step of the actor under the lock, then handles the mailbox. Returns `None` if this step or
    /// an earlier one has failed.
    pub(super) fn with_engine<R>(&self, step: impl FnOnce(&mut T) -> Result<R, T::Error>) -> Option<R> {
        self.actor_waits.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let state = self.lock();
        self.actor_waits.store(false, Ordering::Relaxed);
        let result = self.step(state, step)?;
        // The step itself may have put a probe into the mailbox.
        self.notify_submitted();
        Some(result)
    }

    /// Takes the engine out for good; no thread steps the machine afterwards. Returns also the error of a
    /// step that has failed.
    ///
    /// # Panics
    /// If a step has panicked in another thread.
    pub(super) fn close(&self) -> (T, Result<(), T::Error>) {
        let state = mem::replace(&mut *self.lock(), State::Closed);
        match state {
            State::Running(engine) => (engine, Ok(())),
            State::Failed(engine, error) => (engine, Err(error)),
            State::Panicked => panic!("a step of the lock server has panicked"),
            State::Closed => unreachable!("the actor ends once"),
        }
    }

    /// Drops the engine, if it is still here: the actor has ended by a panic.
    pub(super) fn abandon(&self) {
        let abandoned = mem::replace(&mut *self.lock(), State::Closed);
        drop(abandoned);
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().expect("a panic of a step is caught before the lock is released")
    }

    /// Handles the mailbox, unless another thread does so or the actor waits for the lock.
    fn run_pending(&self) {
        for _ in 0..MAX_BATCHES {
            fence(Ordering::SeqCst);
            if !self.submitted.load(Ordering::Relaxed) || self.actor_waits.load(Ordering::Relaxed) {
                return;
            }
            let Ok(state) = self.state.try_lock() else { return };
            let is_due_sooner = self.step(state, |engine| {
                self.submitted.swap(false, Ordering::AcqRel);
                if engine.run_pending()? == Backlog::Possible {
                    self.submitted.swap(true, Ordering::AcqRel);
                }
                Ok(engine.is_due_sooner())
            });
            match is_due_sooner {
                Some(true) => self.wake_actor.notify_one(),
                Some(false) => {}
                None => return,
            }
        }
        self.wake_actor.notify_one();
    }

    /// Makes one step, and releases the lock. Returns `None` if this step or an earlier one has failed.
    ///
    /// If the step returns an error, the actor finds it in [`Combiner::close`]. If it panics, the engine is
    /// dropped, the panic continues in this thread, and the actor panics in [`Combiner::close`].
    fn step<R>(
        &self,
        mut state: MutexGuard<'_, State<T>>,
        step: impl FnOnce(&mut T) -> Result<R, T::Error>,
    ) -> Option<R> {
        let State::Running(engine) = &mut *state else { return None };
        // After a panic nothing but its drop uses the engine.
        let failure = match catch_unwind(AssertUnwindSafe(|| step(engine))) {
            Ok(Ok(result)) => return Some(result),
            Ok(Err(error)) => Ok(error),
            Err(panic) => Err(panic),
        };
        let State::Running(engine) = mem::replace(&mut *state, State::Panicked) else {
            unreachable!("it was running, and this thread has the lock");
        };
        match failure {
            Ok(error) => {
                *state = State::Failed(engine, error);
                drop(state);
                self.wake_actor.notify_one();
                None
            }
            Err(panic) => {
                drop(state);
                self.wake_actor.notify_one();
                drop(engine);
                resume_unwind(panic)
            }
        }
    }
}
