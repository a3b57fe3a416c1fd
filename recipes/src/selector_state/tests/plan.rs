//! The trouble of a run.

use std::time::Duration;

use super::super::bugs::Bug;
use super::super::options::{Backoff, SelectorOptions};

pub const MS: Duration = Duration::from_millis(1);

/// The trouble of a run.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub replicas: usize,
    pub payments: usize,
    /// All payments begin within this time.
    pub begin_within: Duration,
    /// The amounts of the tokens at the beginning.
    pub tokens: Vec<u64>,
    /// A payment is at most so large.
    pub most: u64,
    /// One way between replica and server, at most; also of a query.
    pub delay: Duration,
    /// Between a commit and its news at other replicas, at most.
    pub news: Duration,
    /// Between the steps of a payment, at most.
    pub work: Duration,
    /// A listing may be so old.
    pub lag: Duration,
    /// Percentages, of payments: given up after the selection, and after the reservation.
    pub dropped: u64,
    pub released: u64,
    /// Percentages, of steps of payments, at which the replica dies, loses its lease, or is stopped past it.
    pub dies: u64,
    pub loses: u64,
    pub stops: u64,
    /// Tokens that somebody else adds to the table without a word.
    pub inserted: usize,
    pub backoff: Backoff,
    /// There is enough for all, so all payments are made.
    pub all_pay: bool,
    pub bug: Option<Bug>,
}

pub fn options(plan: &Plan) -> SelectorOptions {
    SelectorOptions {
        linger: Duration::from_secs(2),
        // Longer than a replica is stopped.
        reserve_for: Duration::from_secs(60),
        spent_keep: Duration::from_secs(30),
        backoff: plan.backoff,
        ..SelectorOptions::default()
    }
}

/// Nothing fails.
pub fn calm() -> Plan {
    Plan {
        replicas: 4,
        payments: 24,
        begin_within: 1_000 * MS,
        tokens: vec![1, 2, 3, 5, 8, 13, 40],
        most: 3,
        delay: 20 * MS,
        news: 300 * MS,
        work: 200 * MS,
        ..Plan::default()
    }
}

/// Everything fails now and then.
pub fn trouble() -> Plan {
    Plan { most: 9, lag: 500 * MS, dropped: 10, released: 10, dies: 2, loses: 4, stops: 4, ..calm() }
}
