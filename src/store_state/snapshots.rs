//! The open snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::crdt::VersionVector;
use geolock_api::names::Position;

/// By position: the vector of the snapshot, and its number of readers.
#[derive(Debug, Default)]
pub(super) struct Snapshots(BTreeMap<Position, (Arc<VersionVector>, usize)>);

impl Snapshots {
    pub fn open(&mut self, at: Position, vector: &Arc<VersionVector>) {
        let (kept, readers) = self.0.entry(at).or_insert_with(|| (vector.clone(), 0));
        debug_assert_eq!(kept, vector, "a position has one vector");
        *readers += 1;
    }

    pub fn close(&mut self, at: Position) {
        let (_, readers) = self.0.get_mut(&at).expect("an open snapshot is closed once");
        *readers -= 1;
        if *readers == 0 {
            self.0.remove(&at);
        }
    }

    pub fn oldest(&self) -> Option<(Position, &Arc<VersionVector>)> {
        self.0.first_key_value().map(|(at, (vector, _))| (*at, vector))
    }

    pub fn len(&self) -> usize {
        self.0.values().map(|(_, readers)| readers).sum()
    }
}
