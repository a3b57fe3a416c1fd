//! Virtual time, and the queue of future events: a heap in which equal times keep the order of insertion.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::ops::Add;
use std::time::Duration;

use slab::Slab;

/// A point of the world's own time, in nanoseconds since its beginning. Nodes never see it; they see the
/// readings of [`super::clock::NodeClock`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(super) struct Moment(pub u64);

impl Moment {
    pub const START: Moment = Moment(0);

    pub fn from_millis(millis: u64) -> Moment {
        Moment(millis * 1_000_000)
    }

    /// Returns zero if `earlier` is later.
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, duration: Duration) -> Moment {
        Moment(self.0 + duration.as_nanos() as u64)
    }
}

/// Seconds to the microsecond.
impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>4}.{:06}", self.0 / 1_000_000_000, self.0 / 1_000 % 1_000_000)
    }
}

/// Events by time.
#[derive(Debug)]
pub(super) struct Queue<T> {
    /// By time, then by order of insertion; with the index in `things`.
    heap: BinaryHeap<Reverse<(Moment, u64, usize)>>,
    /// The events are not moved, so that the heap has little to move.
    things: Slab<T>,
    pushed: u64,
}

impl<T> Queue<T> {
    pub fn new() -> Queue<T> {
        Queue { heap: BinaryHeap::new(), things: Slab::new(), pushed: 0 }
    }

    pub fn push(&mut self, at: Moment, what: T) {
        self.pushed += 1;
        self.heap.push(Reverse((at, self.pushed, self.things.insert(what))));
    }

    pub fn next_at(&self) -> Option<Moment> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    pub fn pop(&mut self) -> Option<(Moment, T)> {
        self.heap.pop().map(|Reverse((at, _, place))| (at, self.things.remove(place)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_first_and_equal_times_in_the_order_pushed() {
        let mut queue = Queue::new();
        for (millis, what) in [(2, 'c'), (1, 'a'), (2, 'd'), (1, 'b')] {
            queue.push(Moment::from_millis(millis), what);
        }
        assert_eq!(queue.next_at(), Some(Moment::from_millis(1)));
        let order: String = std::iter::from_fn(|| queue.pop()).map(|(_, what)| what).collect();
        assert_eq!(order, "abcd");
    }

    #[test]
    fn a_moment_reads_as_seconds() {
        assert_eq!((Moment::from_millis(12_034) + Duration::from_micros(7)).to_string(), "  12.034007");
    }
}
