//! The presence of an element in a set, or of a flag.

use std::fmt::Debug;

use serde::{Deserialize, Serialize};

use crate::crdt::VersionVector;
use crate::crdt::value::At;
use crate::crdt::value::dots::Dots;
use geolock_api::value::Type;

/// The remaining operations on something that is present or absent. The default is absent.
pub(super) trait Presence: Clone + Default + PartialEq + Debug {
    /// The type of a set of such elements.
    const SET: Type;
    /// The type of such a flag.
    const FLAG: Type;

    fn put(&mut self, at: &At<'_>);
    fn remove(&mut self, at: &At<'_>);
    /// Removes all operations that it saw, of both kinds. The result is the default, unless some are
    /// concurrent.
    fn reset(&mut self, at: &At<'_>);
    fn is_present(&self) -> bool;
    /// Returns true if it is equivalent to the default.
    fn is_empty(&self) -> bool;
    /// Returns true if [`Presence::compact`] may change anything, now or later.
    fn has_tombstones(&self) -> bool;
    fn compact(&mut self, stable: &VersionVector);
}

/// Present while an add is left: a remove removes the adds that it saw.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct AddWins(Dots);

impl Presence for AddWins {
    const SET: Type = Type::AddWinsSet;
    const FLAG: Type = Type::EnableWinsFlag;

    fn put(&mut self, at: &At<'_>) {
        self.0.put(at);
    }

    fn remove(&mut self, at: &At<'_>) {
        self.0.take_seen(at);
    }

    fn reset(&mut self, at: &At<'_>) {
        self.0.take_seen(at);
    }

    fn is_present(&self) -> bool {
        !self.0.is_empty()
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn has_tombstones(&self) -> bool {
        self.0.len() > 1
    }

    fn compact(&mut self, stable: &VersionVector) {
        self.0.compact(stable);
    }
}

/// Present while an add is left and no remove is: each operation removes those of both kinds that it saw.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct RemoveWins {
    adds: Dots,
    removes: Dots,
}

impl Presence for RemoveWins {
    const SET: Type = Type::RemoveWinsSet;
    const FLAG: Type = Type::DisableWinsFlag;

    fn put(&mut self, at: &At<'_>) {
        self.removes.take_seen(at);
        self.adds.put(at);
    }

    fn remove(&mut self, at: &At<'_>) {
        self.adds.take_seen(at);
        self.removes.put(at);
    }

    fn reset(&mut self, at: &At<'_>) {
        self.adds.take_seen(at);
        self.removes.take_seen(at);
    }

    fn is_present(&self) -> bool {
        !self.adds.is_empty() && self.removes.is_empty()
    }

    fn is_empty(&self) -> bool {
        self.adds.is_empty() && self.removes.is_empty()
    }

    fn has_tombstones(&self) -> bool {
        self.adds.len() > 1 || !self.removes.is_empty()
    }

    fn compact(&mut self, stable: &VersionVector) {
        if self.removes.has_stable(stable) {
            // Hidden by that remove; an operation that removes the remove has seen these too.
            self.adds.take_stable(stable);
        }
        self.adds.compact(stable);
        self.removes.compact(stable);
        if self.adds.is_empty() {
            // All future adds have seen these removes, so there is nothing left to hide.
            self.removes.take_stable(stable);
        }
    }
}
