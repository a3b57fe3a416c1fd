//! Sums over the data of a replica at earlier vectors.
//!
//! Under load two replicas are hardly ever at the same vector at the same time, but each passes vectors that
//! the other passed, too. So each remembers the sums at some of them, sends the latest from time to time, and
//! compares those of its peers (`docs/algorithm/log.md#35-comparing-replicas`).

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use crate::crdt::VersionVector;
use geolock_api::names::Position;

/// Number of points kept: those of one second at a thousand steps a second, so a peer may be that far behind.
const KEPT: usize = 1024;
/// Most points in one message.
pub(in crate::replica) const TOLD: usize = 64;

const _: () = assert!(TOLD <= KEPT, "what is told is kept");

/// The sum over the data of a replica at a vector. Wire type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SumAt {
    /// A hash of the vector.
    pub vector: u128,
    /// The sum, equal in replicas with equal data.
    pub sum: u128,
}

/// The latest points.
#[derive(Debug, Default)]
pub(in crate::replica) struct Points(VecDeque<(Position, SumAt)>);

impl Points {
    /// The records up to `position` amount to `vector`, and this is the sum there. Positions rise.
    pub fn note(&mut self, position: Position, vector: &VersionVector, sum: u128) {
        let before = self.0.back().map(|(position, _)| *position);
        assert!(before < Some(position), "the sum at {position:?} follows that at {before:?}");
        let vector = hash(vector);
        if self.0.back().is_some_and(|(_, last)| last.vector == vector) {
            return;
        }
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back((position, SumAt { vector, sum }));
    }

    /// Returns the latest durable points. After a crash, other entries may have the numbers of those that are
    /// not durable.
    pub fn to_tell(&self, durable: Position) -> Vec<SumAt> {
        let is_durable = |(position, _): &&(Position, SumAt)| *position <= durable;
        self.0.iter().rev().filter(is_durable).take(TOLD).map(|(_, point)| *point).collect()
    }

    /// Returns true if the sums are equal at all points that both passed; `None` if there is no such point.
    pub fn agree(&self, theirs: &[SumAt]) -> Option<bool> {
        let mut theirs: Vec<SumAt> = theirs.iter().take(TOLD).copied().collect();
        theirs.sort_unstable_by_key(|point| point.vector);
        let both = self.0.iter().filter_map(|(_, ours)| {
            let found = theirs.binary_search_by_key(&ours.vector, |point| point.vector).ok()?;
            Some(theirs[found].sum == ours.sum)
        });
        both.reduce(|all, this| all && this)
    }
}

fn hash(vector: &VersionVector) -> u128 {
    let mut bytes = smallvec::SmallVec::<[u8; 64]>::new();
    for (dc, seq) in vector.iter() {
        bytes.push(dc.get());
        bytes.extend_from_slice(&seq.to_le_bytes());
    }
    xxh3_128(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use geolock_api::names::DcId;

    fn at(seqs: [u64; 2]) -> VersionVector {
        (0_u8..).zip(seqs).filter_map(|(dc, seq)| Some((DcId::new(dc)?, seq))).collect()
    }

    fn points(seqs: impl IntoIterator<Item = [u64; 2]>, sum: impl Fn([u64; 2]) -> u128) -> Points {
        let mut points = Points::default();
        for (position, seqs) in (1..).zip(seqs) {
            points.note(Position(position), &at(seqs), sum(seqs));
        }
        points
    }

    fn both([a, b]: [u64; 2]) -> u128 {
        u128::from(7 * a + 11 * b)
    }

    #[test]
    fn points_that_both_passed_are_compared() {
        let one = points([[1, 0], [2, 0], [2, 1], [3, 1]], both);
        let other = points([[0, 1], [1, 1], [2, 1], [2, 2]], both);
        let told = other.to_tell(Position(9));
        assert_eq!(one.agree(&told), Some(true));
        let broken = points([[1, 1], [2, 1]], |seqs| both(seqs) + 1);
        assert_eq!(broken.agree(&told), Some(false));
        assert_eq!(points([[5, 5]], both).agree(&told), None);
    }

    #[test]
    fn points_that_are_not_durable_are_not_told() {
        let all = points([[1, 0], [2, 0]], both);
        assert_eq!(all.to_tell(Position(1)), points([[1, 0]], both).to_tell(Position(1)));
        assert!(all.to_tell(Position(0)).is_empty());
    }

    #[test]
    fn the_oldest_points_make_room() {
        let all = points((0..5_000).map(|n| [n + 1, 0]), both);
        assert_eq!((all.0.len(), all.to_tell(Position(5_000)).len()), (KEPT, TOLD));
    }
}
