//! What one seed decides about people: operators, and clients that are not like the client library.

use std::time::Duration;

use crate::rng::Rng;
use crate::sim::plan::MS;

/// Which habits there are, and how often they show.
#[derive(Clone, Debug)]
pub(in crate::sim) struct Habits {
    /// How often an operator takes a lock from its holder, on average.
    pub force_every: Option<Duration>,
    /// Now and then a client wants one lock so many times at once, and gives up at one moment what it did not get; 0: never.
    pub crowd: u64,
}

impl Habits {
    pub const NONE: Habits = Habits { force_every: None, crowd: 0 };

    /// Some of them, by a stream of their own: no other choice of a seed depends on them.
    pub fn general(rng: &mut Rng) -> Habits {
        let force_every = rng.percent(40).then(|| *rng.pick(&[150 * MS, 600 * MS]));
        Habits { force_every, ..Habits::NONE }
    }
}
