//! The content of a key: its value, tombstones and lifetimes.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::causal_log::Action;
use crate::crdt::VersionVector;
use crate::crdt::value::{At, Slots};
use crate::store_state::tombstones::{Fate, Tombstones};

/// The value of a key, and the tombstones that decide if a late change still belongs to it (`tombstones.rs`).
///
/// An end takes away everything, also what it has not seen: the content when it is applied, and changes that
/// arrive later from a transaction that had not seen it. So a key that ended never returns by an update in
/// transit; an update that has seen the end creates the key again.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Content {
    pub(super) slots: Slots,
    pub(super) tombstones: Tombstones,
}

impl Content {
    /// Returns the value.
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Applies one change of a commit.
    pub fn apply(&mut self, action: &Action, at: &At<'_>) {
        match (self.tombstones.apply(action, at), action) {
            (Fate::In, Action::Update(update)) => self.slots.apply(update, at),
            (Fate::Ends, _) => self.slots = Slots::default(),
            (Fate::In | Fate::Out, _) => {}
        }
    }

    /// Drops everything that only commits could need that have not seen `stable`: there will be none any
    /// more.
    pub fn compact(&mut self, stable: &VersionVector) {
        self.tombstones.compact(stable);
        self.slots.compact(stable);
    }

    /// See [`Slots::compact_some`].
    pub fn compact_some(
        &mut self,
        stable: &VersionVector,
        after: Option<Bytes>,
        most: &mut usize,
    ) -> Option<Bytes> {
        self.tombstones.compact(stable);
        self.slots.compact_some(stable, after, most)
    }

    /// Returns true if nothing is left, as if the key had never been written.
    pub fn is_empty(&self) -> bool {
        self.tombstones.is_empty() && self.slots.is_empty()
    }

    /// Returns true if an end of the key is known.
    #[cfg(test)]
    pub fn has_ends(&self) -> bool {
        self.tombstones.has_ends()
    }

    /// Returns true for an expiring key: it has a time to live, or is done.
    pub fn is_expiring(&self) -> bool {
        !self.tombstones.lifetimes().is_empty() || self.slots.done_by().is_some()
    }

    /// Returns the lifetimes that the datacenters want.
    #[cfg(test)]
    pub(crate) fn lifetimes(&self) -> &[super::Lifetime] {
        self.tombstones.lifetimes()
    }
}
