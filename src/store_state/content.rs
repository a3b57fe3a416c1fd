//! What is at a key: its value, and the marks beside it.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::causal_log::Action;
use crate::crdt::VersionVector;
use crate::crdt::value::{At, Slots};
use crate::store_state::marks::{Fate, Marks};

/// A value, and what decides whether a late change is still one of it (`marks.rs`).
///
/// An end takes away everything, also what it has not seen: what is here when it is applied, and what comes later
/// from a transaction that had not seen it. So a key that ended never comes back to life by an update that was under
/// way; who has seen the end creates the key anew.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Content {
    pub(super) slots: Slots,
    pub(super) marks: Marks,
}

impl Content {
    /// What the key shows.
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Applies one change of a commit.
    pub fn apply(&mut self, action: &Action, at: &At<'_>) {
        match (self.marks.apply(action, at), action) {
            (Fate::In, Action::Update(update)) => self.slots.apply(update, at),
            (Fate::Ends, _) => self.slots = Slots::default(),
            (Fate::In | Fate::Out, _) => {}
        }
    }

    /// Forgets what only commits that have not seen `stable` could need: there will be none any more.
    pub fn settle(&mut self, stable: &VersionVector) {
        self.marks.settle(stable);
        self.slots.settle(stable);
    }

    /// See [`Slots::settle_some`].
    pub fn settle_some(
        &mut self,
        stable: &VersionVector,
        after: Option<Bytes>,
        most: &mut usize,
    ) -> Option<Bytes> {
        self.marks.settle(stable);
        self.slots.settle_some(stable, after, most)
    }

    /// Whether nothing is left, as if the key had never been written.
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty() && self.slots.is_empty()
    }

    /// Whether it is known to have ended.
    #[cfg(test)]
    pub fn has_ends(&self) -> bool {
        self.marks.has_ends()
    }

    /// Whether it does not live for ever: its time runs, or it is done.
    pub fn is_mortal(&self) -> bool {
        !self.marks.lifetimes().is_empty() || self.slots.done_by().is_some()
    }

    /// How long it is to live, as each datacenter wants it that does.
    #[cfg(test)]
    pub(crate) fn lifetimes(&self) -> &[super::Lifetime] {
        self.marks.lifetimes()
    }
}
