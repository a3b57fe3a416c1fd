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
    /// Clients without a stream, such that never reclaim, that go on after a refused commit, that go elsewhere: in percent.
    pub unary_percent: u64,
    pub silent_percent: u64,
    pub insists_percent: u64,
    pub roams_percent: u64,
    /// Acquires that are sent twice at once.
    pub twice_percent: u64,
    /// How often a server has more to do than it can, on average, for about a third of that.
    pub overload_every: Option<Duration>,
    /// Most requests that wait in a server, and transactions that are open.
    pub most: Option<usize>,
    /// Who follows all locks, or all keys.
    pub watchers: usize,
}

impl Habits {
    pub const NONE: Habits = Habits {
        force_every: None,
        crowd: 0,
        unary_percent: 0,
        silent_percent: 0,
        insists_percent: 0,
        roams_percent: 0,
        twice_percent: 0,
        overload_every: None,
        most: None,
        watchers: 0,
    };

    /// Some of them, by two streams of their own: no other choice of a seed depends on them. Every other seed has only clients that
    /// are like the client library.
    pub fn general(operators: &mut Rng, others: &mut Rng) -> Habits {
        let force_every = operators.percent(40).then(|| *operators.pick(&[150 * MS, 600 * MS]));
        let habits = Habits { force_every, ..Habits::NONE };
        if others.percent(50) {
            return habits;
        }
        Habits {
            unary_percent: *others.pick(&[0, 0, 40]),
            silent_percent: *others.pick(&[0, 0, 30]),
            insists_percent: *others.pick(&[0, 80]),
            roams_percent: *others.pick(&[0, 0, 50]),
            twice_percent: *others.pick(&[0, 10]),
            overload_every: others.percent(30).then(|| *others.pick(&[500 * MS, 2_000 * MS])),
            most: others.percent(20).then(|| *others.pick(&[2, 5])),
            watchers: *others.pick(&[0, 0, 2]),
            ..habits
        }
    }
}
