//! The list of decisions, as the rest of the server sees it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::types::{LogId, StoredMembers};

/// Decisions that are kept beside the state that they made. A reader further behind gets the state.
const RECENT: usize = 256;

/// The state that a list of commands makes. It stands for the commands once the log is cut. Its encoding has
/// at most [`MAX_STATE`](super::MAX_STATE) bytes: of a larger one no snapshot is made, and the log grows.
///
/// `apply` must be a function of its arguments: no clock, no randomness, no hash order. It cannot refuse a
/// command; a command that no longer fits changes nothing.
pub trait Fold: Default + Clone + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// A command. An append-only wire type of at most [`MAX_COMMAND`](super::MAX_COMMAND) bytes.
    type Command: Clone + Serialize + DeserializeOwned + Send + Sync + 'static;

    /// Applies decision `index`, the first of which is 1.
    fn apply(&mut self, index: u64, command: &Self::Command);
}

/// A step of a reader of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decided<F: Fold> {
    /// The next decision.
    Command { index: u64, command: F::Command },
    /// The decisions up to `index` at once: single ones are no longer known here.
    State { index: u64, state: F },
}

/// The list at this member.
pub(super) struct List<F: Fold> {
    pub state: F,
    /// Number of the last decision.
    pub decided: u64,
    recent: VecDeque<F::Command>,
    /// The last entry of Raft's log that was applied; it counts more than decisions.
    pub last: Option<LogId>,
    pub members: StoredMembers,
}

impl<F: Fold> List<F> {
    /// Applies the next decision and returns its number.
    pub(super) fn decide(&mut self, command: F::Command) -> u64 {
        self.decided += 1;
        self.state.apply(self.decided, &command);
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(command);
        self.decided
    }

    /// Replaces everything by a snapshot.
    pub(super) fn install(&mut self, decided: u64, state: F) {
        (self.decided, self.state) = (decided, state);
        self.recent.clear();
    }

    /// Remembers the last decisions that the state was made of.
    pub(super) fn remember(&mut self, before: Vec<F::Command>) {
        assert!(self.recent.is_empty() && before.len() as u64 <= self.decided, "the list was just installed");
        self.recent = before.into_iter().rev().take(RECENT).collect();
        self.recent.make_contiguous().reverse();
    }

    /// Returns the number of the last decision before those that are known one by one.
    fn before_recent(&self) -> u64 {
        self.decided - self.recent.len() as u64
    }

    fn after(&self, seen: u64) -> Option<Decided<F>> {
        if seen >= self.decided {
            return None;
        }
        let first_recent = self.before_recent() + 1;
        Some(match seen + 1 {
            index if index >= first_recent => {
                let command = self.recent[(index - first_recent) as usize].clone();
                Decided::Command { index, command }
            }
            _ => Decided::State { index: self.decided, state: self.state.clone() },
        })
    }
}

/// The list, shared by the state machine and its readers.
pub(super) struct SharedList<F: Fold>(Mutex<List<F>>);

impl<F: Fold> SharedList<F> {
    pub(super) fn new() -> Arc<SharedList<F>> {
        Arc::new(SharedList(Mutex::new(List {
            state: F::default(),
            decided: 0,
            recent: VecDeque::new(),
            last: None,
            members: StoredMembers::default(),
        })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, List<F>> {
        self.0.lock().expect("a fold that panicked has ended the process")
    }
}

/// Reads the list in order.
pub struct Applied<F: Fold> {
    pub(super) seen: u64,
    pub(super) list: Arc<SharedList<F>>,
    pub(super) decided: watch::Receiver<u64>,
}

impl<F: Fold> Applied<F> {
    /// Returns the state after all decisions so far.
    pub fn state(&self) -> F {
        self.list.lock().state.clone()
    }

    /// Reads the decisions again that are still known one by one. For a reader that has got the state, and
    /// wants what it is made of.
    pub fn rewind(&mut self) {
        self.seen = self.list.lock().before_recent();
    }

    /// Returns the next step of the list, as soon as it is decided and applied here; nothing once the group
    /// has shut down. Cancel safe.
    pub async fn next(&mut self) -> Option<Decided<F>> {
        loop {
            self.decided.borrow_and_update();
            let step = self.list.lock().after(self.seen);
            if let Some(step) = step {
                let (Decided::Command { index, .. } | Decided::State { index, .. }) = &step;
                self.seen = *index;
                return Some(step);
            }
            self.decided.changed().await.ok()?;
        }
    }
}
