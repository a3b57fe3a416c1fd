//! The operations of one kind that no other operation has removed yet.
//!
//! One rule makes every resettable type converge: an operation removes exactly those operations that its
//! transaction had seen. The operations that are left are those that no other one has seen. That does not
//! depend on the order in which they arrive, because each arrives after everything it has seen.
//!
//! This is not the crate's `VClock`, which keeps the highest dot of each actor. Here one datacenter runs many
//! transactions at once, so the later of two of its commits need not have seen the earlier one, and removing
//! the later must leave the earlier. Only concurrent operations are kept together, so there is nearly always
//! one.

use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::crdt::VersionVector;
use crate::crdt::value::{At, Dot};

/// In order, each once.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Dots(SmallVec<[Dot; 1]>);

impl Dots {
    /// Adds an operation, which replaces those that it has seen.
    pub fn put(&mut self, at: &At<'_>) {
        self.take_seen(at);
        let place = self.0.partition_point(|dot| *dot < at.dot);
        self.0.insert(place, at.dot);
        debug_assert!(self.0.is_sorted_by(|a, b| a <= b), "dots are in order");
    }

    pub fn take_seen(&mut self, at: &At<'_>) {
        self.0.retain(|dot| !at.has_seen(*dot));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn has_stable(&self, stable: &VersionVector) -> bool {
        self.0.iter().any(|dot| dot.is_in(stable))
    }

    pub fn take_stable(&mut self, stable: &VersionVector) {
        self.0.retain(|dot| !dot.is_in(stable));
    }

    /// Compacts. Every future operation has seen all stable ones, so an operation that removes another one
    /// removes them, too. They matter only while there is no other, and then one of them is enough.
    pub fn compact(&mut self, stable: &VersionVector) {
        if self.0.iter().all(|dot| dot.is_in(stable)) {
            self.0.truncate(1);
        } else {
            self.take_stable(stable);
        }
    }
}

impl<'de> Deserialize<'de> for Dots {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Dots, D::Error> {
        // Not as a `SmallVec`, which would reserve as much as the bytes claim.
        let dots = Vec::<Dot>::deserialize(deserializer)?;
        if !dots.is_sorted_by(|a, b| a < b) {
            return Err(D::Error::custom("the dots of a value are in order, each once; these are not"));
        }
        Ok(Dots(dots.into()))
    }
}
