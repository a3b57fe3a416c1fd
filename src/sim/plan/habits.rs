//! The choices of one seed about people: operators, and clients that do not behave like the client library.

use std::time::Duration;

use crate::base::rng::Rng;
use crate::sim::plan::MS;

/// Habits, and how often they occur.
#[derive(Clone, Debug)]
pub(in crate::sim) struct Habits {
    /// Average interval of force releases by an operator.
    pub force_every: Option<Duration>,
    /// Number of acquires of one lock that a client now and then sends at once; it cancels at one moment
    /// those that were not granted. 0: never.
    pub crowd: u64,
    /// Percentages of clients without a stream, clients that never reclaim, clients that continue after a
    /// refused commit, clients that change their datacenter.
    pub unary_percent: u64,
    pub silent_percent: u64,
    pub insists_percent: u64,
    pub roams_percent: u64,
    /// Percentage of acquires that are sent twice at once.
    pub twice_percent: u64,
    /// Average interval of overloads of a server; an overload lasts for about a third of that.
    pub overload_every: Option<Duration>,
    /// Maximum number of requests that wait in a server, and of transactions that are open.
    pub most: Option<usize>,
    /// Percentage of grants whose exclusive locks their clients downgrade before they release them.
    pub downgrade_percent: u64,
    /// Percentage of requests that are for enough of many locks.
    pub enough_percent: u64,
    /// Percentage of waiting requests for enough of many locks that are amended, and so often again.
    pub amend_percent: u64,
    /// Number of clients that watch all locks, or all keys.
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
        downgrade_percent: 0,
        enough_percent: 0,
        amend_percent: 0,
        watchers: 0,
    };

    /// Picks some of them, from two random streams of their own, so that no other choice of a seed depends on
    /// them. In every other seed all clients behave like the client library.
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
