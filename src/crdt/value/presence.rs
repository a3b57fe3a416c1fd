//! Whether something is there: an element in a set, or a flag.

use std::fmt::Debug;

use serde::{Deserialize, Serialize};

use crate::crdt::VersionVector;
use crate::crdt::value::dots::Dots;
use crate::crdt::value::{At, Type};

/// What is left of the operations on one thing that can be there or not. Fresh, it is not there.
pub(super) trait Presence: Clone + Default + PartialEq + Debug {
    /// The type of a set of such elements.
    const SET: Type;
    /// The type of such a flag.
    const FLAG: Type;

    fn put(&mut self, at: &At<'_>);
    fn remove(&mut self, at: &At<'_>);
    /// Takes away all it saw, of both kinds: back to fresh, unless something is concurrent.
    fn reset(&mut self, at: &At<'_>);
    fn is_present(&self) -> bool;
    /// Whether it is as good as fresh.
    fn is_empty(&self) -> bool;
    /// Whether [`Presence::settle`] may change anything, now or later.
    fn has_marks(&self) -> bool;
    fn settle(&mut self, stable: &VersionVector);
}

/// There while an add is left: a remove takes away the adds it saw.
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

    fn has_marks(&self) -> bool {
        self.0.len() > 1
    }

    fn settle(&mut self, stable: &VersionVector) {
        self.0.settle(stable);
    }
}

/// There while an add is left and no remove is: each takes away those of both kinds that it saw.
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

    fn has_marks(&self) -> bool {
        self.adds.len() > 1 || !self.removes.is_empty()
    }

    fn settle(&mut self, stable: &VersionVector) {
        if self.removes.has_stable(stable) {
            // Out of sight behind that remove, and what takes the remove away has seen these too.
            self.adds.take_stable(stable);
        }
        self.adds.settle(stable);
        self.removes.settle(stable);
        if self.adds.is_empty() {
            // All adds to come have seen these removes: there is nothing left to hide.
            self.removes.take_stable(stable);
        }
    }
}
