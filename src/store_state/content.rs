//! What is at a key: its value and the tombstones of its removals.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::causal_log::Action;
use crate::crdt::VersionVector;
use crate::crdt::value::{At, Dot, Slots};

/// A value, and the removals that a late update could still be concurrent with.
///
/// A removal takes away everything, also what it has not seen: what is here when it is applied, and what comes later
/// from a transaction that had not seen it. So a removed key never comes back to life by an update that was under
/// way; who has seen the removal creates the key anew. A tombstone goes when every datacenter's further commits have
/// seen it (causal stability: Baquero, Almeida, Shoker, *Making operation-based CRDTs operation-based*, 2014).
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Content {
    pub(super) slots: Slots,
    tombstones: SmallVec<[Dot; 1]>,
}

impl Content {
    /// What the key shows.
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Applies one change of a commit.
    pub fn apply(&mut self, action: &Action, at: &At<'_>) {
        match action {
            Action::Update(update) => {
                if self.lets_in(at) {
                    self.slots.apply(update, at);
                }
            }
            Action::Remove => {
                self.slots = Slots::default();
                self.tombstones.retain(|dot| !at.has_seen(*dot));
                self.tombstones.push(at.dot);
            }
        }
    }

    /// Whether an update may do anything: it has seen all removals.
    pub fn lets_in(&self, at: &At<'_>) -> bool {
        self.tombstones.iter().all(|dot| at.has_seen(*dot))
    }

    /// Forgets what only commits that have not seen `stable` could need: there will be none any more.
    pub fn settle(&mut self, stable: &VersionVector) {
        self.tombstones.retain(|dot| dot.seq > stable.get(dot.dc));
        self.slots.settle(stable);
    }

    /// Whether nothing is left, as if the key had never been written.
    pub fn is_empty(&self) -> bool {
        self.tombstones.is_empty() && self.slots.is_empty()
    }

    /// Whether it is known to have been removed.
    pub fn has_tombstones(&self) -> bool {
        !self.tombstones.is_empty()
    }
}
