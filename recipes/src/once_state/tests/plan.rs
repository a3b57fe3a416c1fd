//! The trouble of a run, and what to count at its end.

use std::time::Duration;

use super::super::events::{Bug, LastSeen, Verdict};
use super::super::options::{OnceOptions, Takeover};

pub const MS: Duration = Duration::from_millis(1);
/// The trouble of a run.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub instances: usize,
    /// All begin within this time.
    pub begin_within: Duration,
    /// One way to the store, at most; also between a commit and its news.
    pub delay: Duration,
    pub job: Duration,
    /// Percentages, of runs.
    pub fails: u64,
    pub dies: u64,
    pub loses: u64,
    /// It is stopped past its lease, and goes on afterwards.
    pub stops: u64,
    /// Percentage of grants after which the instance dies before it claims.
    pub dies_early: u64,
    /// Percentage of sections after whose effect the instance dies, before it can say so.
    pub dies_late: u64,
    /// The first runs that are done leave the job undone.
    pub in_vain: u32,
    pub takeover: Takeover,
    pub bug: Option<Bug>,
    /// Commits are not checked against the lock.
    pub without_guards: bool,
}

pub fn options(plan: &Plan) -> OnceOptions {
    OnceOptions {
        wait: Duration::from_secs(1),
        takeover: plan.takeover,
        watermark: Duration::from_secs(10),
        ..OnceOptions::default()
    }
}

/// Counts the instances that ran it.
pub fn ran(verdicts: &[Verdict]) -> usize {
    verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Ran { .. })).count()
}

/// Counts the instances that lost the lock while they ran.
pub fn lost(verdicts: &[Verdict]) -> usize {
    let is_lost = |verdict: &&Verdict| {
        matches!(verdict, Verdict::GaveUp { last: LastSeen::LostWhileRunning { .. }, .. })
    };
    verdicts.iter().filter(is_lost).count()
}
