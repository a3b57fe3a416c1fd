//! Counts of events in runs of a sequence.

/// Counts of events in a run: a run in which nothing happens tests nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Happened {
    pub steps: u64,
    pub delivered: u64,
    pub forged: u64,
    pub damaged: u64,
    pub refused: u64,
    pub applied: u64,
    pub grants: u64,
    /// Requests that lost their locks to an operator.
    pub forced: u64,
    pub commits: u64,
    pub state_transfers_received: u64,
    pub restarts: u64,
    pub checkpoints: u64,
}

impl Happened {
    /// Adds the counts of another run.
    #[cfg(test)]
    pub(super) fn add(&mut self, other: &Happened) {
        self.steps += other.steps;
        self.delivered += other.delivered;
        self.forged += other.forged;
        self.damaged += other.damaged;
        self.refused += other.refused;
        self.applied += other.applied;
        self.grants += other.grants;
        self.forced += other.forced;
        self.commits += other.commits;
        self.state_transfers_received += other.state_transfers_received;
        self.restarts += other.restarts;
        self.checkpoints += other.checkpoints;
    }
}
