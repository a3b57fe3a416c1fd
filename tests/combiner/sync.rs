//! The primitives that the combiner is made of, from loom. A test can ask for a deliberate bug: then one of
//! them does not do what the combiner asks for.
//!
//! All threads of a model run on the thread of their test, one at a time, so thread-local variables of `std`
//! are common to them and belong to no execution order that loom would explore.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, LockResult, TryLockError, TryLockResult};

use loom::sync::atomic;
pub use loom::sync::atomic::Ordering;

/// A deliberate bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// The fences around the lock are removed.
    NoFence,
    /// `submitted` is cleared after the batch, not before.
    ClearedAfterBatch,
    /// `submitted` is set after `try_lock`, not before.
    SetAfterTryLock,
    /// The swaps of `submitted` are relaxed.
    RelaxedSwaps,
    /// `submitted` is written by plain stores, sequentially consistent ones.
    PlainStores,
    /// `actor_waits` is not set.
    ActorWaitsUnset,
    /// The actor passes no fence after it has set `actor_waits`.
    NoFenceOfActor,
    /// The actor is not woken.
    NoWake,
}

/// The state of one execution of a model that loom does not explore.
#[derive(Default)]
struct Ghost {
    /// Writes of `submitted` that a bug postpones, by thread.
    postponed: BTreeMap<usize, (Arc<atomic::AtomicBool>, bool)>,
    /// The actor waits for the lock: since it has set its flag, and since the fence after that.
    announcing: Option<usize>,
    announced: bool,
    /// Threads that have passed a fence since then.
    passed: Vec<usize>,
    /// Batches begun since then.
    batches: usize,
}

thread_local! {
    static BUG: Cell<Option<Bug>> = const { Cell::new(None) };
    static GHOST: RefCell<Ghost> = RefCell::default();
    static MOST_BATCHES: Cell<usize> = const { Cell::new(0) };
}

loom::thread_local! {
    static ME: usize = NEXT.with(|next| next.replace(next.get() + 1));
}

thread_local! {
    static NEXT: Cell<usize> = const { Cell::new(0) };
}

/// Chooses the bug of the models that this test runs next.
pub fn choose(bug: Option<Bug>) {
    BUG.set(bug);
    MOST_BATCHES.set(0);
}

/// Begins an execution.
pub fn begin() {
    GHOST.take();
    NEXT.set(0);
}

/// Notes that this thread begins a batch.
pub fn begin_batch() {
    let me = me();
    GHOST.with_borrow_mut(|ghost| {
        if ghost.announced {
            assert!(!ghost.passed.contains(&me), "a batch began although the actor waits");
            ghost.batches += 1;
            MOST_BATCHES.set(MOST_BATCHES.get().max(ghost.batches));
        }
    });
}

/// Returns how many batches began at most while the actor waited, over all executions.
pub fn most_batches() -> usize {
    MOST_BATCHES.get()
}

fn has(bug: Bug) -> bool {
    BUG.get() == Some(bug)
}

fn me() -> usize {
    ME.with(|me| *me)
}

/// Makes the write that a bug has postponed.
fn make_up() {
    let me = me();
    if let Some((flag, value)) = GHOST.with_borrow_mut(|ghost| ghost.postponed.remove(&me)) {
        flag.swap(value, Ordering::AcqRel);
    }
}

pub fn fence(order: Ordering) {
    let me = me();
    let is_actors = GHOST.with_borrow(|ghost| ghost.announcing == Some(me));
    match BUG.get() {
        Some(Bug::NoFence) if !is_actors => return,
        Some(Bug::NoFenceOfActor) if is_actors => {}
        _ => atomic::fence(order),
    }
    GHOST.with_borrow_mut(|ghost| {
        if is_actors {
            let postponed = std::mem::take(&mut ghost.postponed);
            *ghost = Ghost { announced: true, postponed, ..Ghost::default() };
        } else if ghost.announced {
            ghost.passed.push(me);
        }
    });
}

/// A flag. The combiner swaps `submitted`, and stores `actor_waits`.
pub struct AtomicBool(Arc<atomic::AtomicBool>);

impl AtomicBool {
    pub fn new(value: bool) -> AtomicBool {
        AtomicBool(Arc::new(atomic::AtomicBool::new(value)))
    }

    pub fn swap(&self, value: bool, order: Ordering) -> bool {
        match (BUG.get(), value) {
            (Some(Bug::ClearedAfterBatch), false) | (Some(Bug::SetAfterTryLock), true) => {
                self.postpone(value)
            }
            (Some(Bug::ClearedAfterBatch), true) => {
                make_up();
                self.0.swap(true, order)
            }
            (Some(Bug::PlainStores), _) => {
                self.0.store(value, Ordering::SeqCst);
                value
            }
            (Some(Bug::RelaxedSwaps), _) => self.0.swap(value, Ordering::Relaxed),
            _ => self.0.swap(value, order),
        }
    }

    fn postpone(&self, value: bool) -> bool {
        let (me, write) = (me(), (Arc::clone(&self.0), value));
        GHOST.with_borrow_mut(|ghost| ghost.postponed.insert(me, write));
        value
    }

    pub fn store(&self, value: bool, order: Ordering) {
        let me = me();
        GHOST.with_borrow_mut(|ghost| match value {
            true => ghost.announcing = Some(me),
            false => ghost.announced = false,
        });
        if !has(Bug::ActorWaitsUnset) {
            self.0.store(value, order);
        }
    }

    pub fn load(&self, order: Ordering) -> bool {
        let me = me();
        let own = GHOST.with_borrow(|ghost| {
            ghost.postponed.get(&me).filter(|(flag, _)| Arc::ptr_eq(flag, &self.0)).map(|(_, value)| *value)
        });
        own.unwrap_or_else(|| self.0.load(order))
    }
}

/// A lock.
pub struct Mutex<T>(loom::sync::Mutex<T>);

/// A lock that is held.
pub struct MutexGuard<'a, T>(loom::sync::MutexGuard<'a, T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Mutex<T> {
        Mutex(loom::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        Ok(MutexGuard(self.0.lock().expect("no model panics under the lock")))
    }

    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        let tried = self.0.try_lock();
        if has(Bug::SetAfterTryLock) {
            make_up();
        }
        tried.map(MutexGuard).map_err(|_| TryLockError::WouldBlock)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        if has(Bug::ClearedAfterBatch) {
            make_up();
        }
    }
}

/// Keeps a wake-up for the actor. In production the actor sleeps until there is one; a model looks for it
/// when all other threads have ended.
#[derive(Default)]
pub struct Notify(std::sync::atomic::AtomicBool);

impl Notify {
    pub fn notify_one(&self) {
        self.0.store(!has(Bug::NoWake), Ordering::SeqCst);
    }

    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::SeqCst)
    }
}
