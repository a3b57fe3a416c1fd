//! The state that the calls and the tasks of a selector share.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::flight::Flight;
use super::opened::Opened;
use super::query;
use super::store::Store;
use super::{Pool, SelectError, Stats, TokenSource, TxId};
use crate::selector_state::{SelectorOptions, Space};

/// Keys that could not be read and are remembered.
const MAX_UNREADABLE: usize = 100;

/// Transactions that have ended here and are remembered.
const MAX_GONE: usize = 1_000;

pub(super) struct Shared<S> {
    pub store: Store,
    pub source: S,
    pub options: SelectorOptions,
    /// For the order of equal tokens, and pauses: another one in each replica.
    pub seed: u64,
    pub counters: Counters,
    began: Instant,
    state: Mutex<State>,
    changes: watch::Sender<u64>,
    itself: Weak<Shared<S>>,
}

pub(super) struct State {
    pub space: Space,
    /// Selections that are being made.
    pub flights: BTreeMap<TxId, Weak<Flight>>,
    /// Selections that were made.
    pub opened: BTreeMap<TxId, Opened>,
    /// The latest error of each pool's queries.
    pub failures: BTreeMap<Pool, SelectError>,
    unreadable: VecDeque<String>,
    /// The latest transactions that have ended here with nothing.
    gone: VecDeque<TxId>,
    /// The tasks that go on for as long as the selector. No more are begun once it is dropped.
    tasks: Option<Vec<AbortHandle>>,
}

impl State {
    pub fn note_unreadable(&mut self, key: String) {
        if !self.unreadable.contains(&key) {
            self.unreadable.push_back(key);
        }
        if self.unreadable.len() > MAX_UNREADABLE {
            self.unreadable.pop_front();
        }
    }

    pub fn note_gone(&mut self, tx: TxId) {
        self.gone.push_back(tx);
        if self.gone.len() > MAX_GONE {
            self.gone.pop_front();
        }
    }

    pub fn is_gone(&self, tx: &TxId) -> bool {
        self.gone.contains(tx)
    }

    pub fn unreadable(&self) -> BTreeSet<String> {
        self.unreadable.iter().cloned().collect()
    }

    pub fn is_closed(&self) -> bool {
        self.tasks.is_none()
    }
}

impl<S: TokenSource> Shared<S> {
    pub fn new(store: Store, source: S, options: SelectorOptions, seed: u64) -> Arc<Shared<S>> {
        Arc::new_cyclic(|itself| Shared {
            store,
            source,
            seed,
            counters: Counters::default(),
            began: Instant::now(),
            state: Mutex::new(State {
                space: Space::new(&options, seed),
                flights: BTreeMap::new(),
                opened: BTreeMap::new(),
                failures: BTreeMap::new(),
                unreadable: VecDeque::new(),
                gone: VecDeque::new(),
                tasks: Some(Vec::new()),
            }),
            options,
            changes: watch::Sender::new(0),
            itself: itself.clone(),
        })
    }

    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub fn at(&self, at: Duration) -> Instant {
        self.began + at
    }

    /// The state, for a step that tells nobody. Never held across an await.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no step panics")
    }

    /// Makes a step, begins the queries that it wants, and wakes all selections that wait.
    pub fn change<R>(&self, step: impl FnOnce(&mut State, Duration) -> R) -> R {
        let result = self.step(step);
        self.changes.send_modify(|version| *version += 1);
        result
    }

    /// The same, for a step that is news to nobody else.
    pub fn step<R>(&self, step: impl FnOnce(&mut State, Duration) -> R) -> R {
        let (result, queries) = {
            let mut state = self.lock();
            let now = self.now();
            let result = step(&mut state, now);
            (result, state.space.begin_queries(now))
        };
        for pool in queries {
            if let Some(shared) = self.itself.upgrade() {
                tokio::spawn(query::run(shared, pool));
            }
        }
        result
    }

    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Keeps a task until the selector is dropped.
    pub fn keep(&self, task: AbortHandle) {
        match &mut self.lock().tasks {
            Some(tasks) => tasks.push(task),
            None => task.abort(),
        }
    }

    /// The selector is dropped: its tasks end, and so its locks are released.
    pub fn close(&self) {
        let (tasks, opened) = {
            let mut state = self.lock();
            (state.tasks.take().unwrap_or_default(), std::mem::take(&mut state.opened))
        };
        tasks.iter().for_each(AbortHandle::abort);
        opened.values().for_each(Opened::abort);
        self.changes.send_modify(|version| *version += 1);
    }
}

/// Counters. See [`Stats`].
#[derive(Default)]
pub(super) struct Counters {
    pub selections: AtomicU64,
    pub requests: AtomicU64,
    pub waits: AtomicU64,
    pub granted: AtomicU64,
    pub locks_granted: AtomicU64,
    pub given_back: AtomicU64,
    pub refused: AtomicU64,
    pub spent: AtomicU64,
    pub queries: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64, more: usize) {
    counter.fetch_add(more as u64, Ordering::Relaxed);
}

impl Counters {
    pub fn stats(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            selections: read(&self.selections),
            requests: read(&self.requests),
            waits: read(&self.waits),
            granted: read(&self.granted),
            locks_granted: read(&self.locks_granted),
            given_back: read(&self.given_back),
            refused: read(&self.refused),
            spent: read(&self.spent),
            queries: read(&self.queries),
        }
    }
}
