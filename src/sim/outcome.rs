//! Counts of the events of a run, or of many.

use std::fmt;

use crate::sim::failure::FaultKind;

/// Counts of events in a run, or in many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Virtual time that a cluster ran, in ms.
    pub cluster_ms: u64,
    /// Inputs that replicas handled.
    pub steps: u64,
    /// The most rows, keys, waiters and elements that any one of these steps examined.
    pub most_work: u64,
    /// Datacenters that joined.
    pub joins: u64,
    /// Datacenters that left.
    pub leaves: u64,
    /// Leaves that were taken back.
    pub stays: u64,
    /// Datacenters that were lost and evicted.
    pub evictions: u64,
    /// Servers that joined with the slot of one that had ended.
    pub returns: u64,
    /// Changes of the home of a prefix.
    pub rules: u64,
    /// Servers that were restarted as the next release.
    pub upgrades: u64,
    /// Grants that clients received.
    pub grants: u64,
    /// Grants of a lock in another datacenter than its last.
    pub hand_offs: u64,
    /// Locks whose unused parts went home, by cause: age, number, a shared request of another datacenter.
    /// Those of each server since its last restart.
    pub idle_returns: [u64; 3],
    /// Transactions that changed something and were committed.
    pub commits: u64,
    /// Of these, under locks.
    pub locked_commits: u64,
    /// Transactions that were committed under requests that their clients held.
    pub guarded_commits: u64,
    /// Commits under a lock whose last commit was in another datacenter.
    pub commit_hand_offs: u64,
    /// Transactions that ended without a commit: aborted, refused, lost.
    pub uncommitted: u64,
    /// Calls of transactions that were sent again because the answer was lost.
    pub retried: u64,
    /// Answers that a commit is durable at a majority.
    pub at_majority: u64,
    /// Answers that a commit is not durable at a majority yet.
    pub not_at_majority: u64,
    /// Keys that a commit removed.
    pub removals: u64,
    /// Number of expiries of keys.
    pub keys_expired: u64,
    /// Committed changes of a thousand elements or more, or of 64 KiB or more.
    pub large_changes: u64,
    /// Messages between datacenters.
    pub messages: u64,
    /// Messages that overtook another one.
    pub overtaking: u64,
    /// Entries that arrived at a datacenter which had them durably already.
    pub duplicates: u64,
    /// Reclaims of requests that their client had released before.
    pub stale_reclaims: u64,
    /// Requests that ended without a grant: timed out, cancelled, not free.
    pub ungranted: u64,
    /// Locks that clients got back after a restart of their server.
    pub reclaimed: u64,
    /// Grants that clients had to consider lost.
    pub lapsed: u64,
    /// Grants of enough of many locks.
    pub enough: u64,
    /// Amendments of such requests.
    pub amended: u64,
    /// Exclusive holds that became shared ones.
    pub downgrades: u64,
    /// Requests that lost their locks to a force release.
    pub forced: u64,
    /// Events that watches received from the log.
    pub watched: u64,
    /// Calls that were refused because a server had too much to do.
    pub shed: u64,
    /// Number of times that clients changed to another datacenter.
    pub roamed: u64,
    /// Number of times that a client continued after a refused commit, without the refused changes.
    pub insisted: u64,
    /// Number of times that a datacenter installed the state of another one.
    pub state_transfers_received: u64,
    /// Journal records that crashes lost.
    pub records_lost: u64,
    /// Runs in which a log had two histories.
    pub forks: u64,
    /// Number of times that people chose one of them.
    pub forks_resolved: u64,
    /// By [`FaultKind`].
    pub faults: [u64; FaultKind::COUNT],
    /// Equal for equal seeds and builds.
    pub trace_hash: u64,
}

impl Outcome {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Outcome) {
        self.cluster_ms += other.cluster_ms;
        self.steps += other.steps;
        self.most_work = self.most_work.max(other.most_work);
        self.joins += other.joins;
        self.leaves += other.leaves;
        self.stays += other.stays;
        self.evictions += other.evictions;
        self.returns += other.returns;
        self.rules += other.rules;
        self.upgrades += other.upgrades;
        self.grants += other.grants;
        self.hand_offs += other.hand_offs;
        for (all, more) in self.idle_returns.iter_mut().zip(other.idle_returns) {
            *all += more;
        }
        self.commits += other.commits;
        self.locked_commits += other.locked_commits;
        self.guarded_commits += other.guarded_commits;
        self.commit_hand_offs += other.commit_hand_offs;
        self.uncommitted += other.uncommitted;
        self.retried += other.retried;
        self.at_majority += other.at_majority;
        self.not_at_majority += other.not_at_majority;
        self.removals += other.removals;
        self.keys_expired += other.keys_expired;
        self.large_changes += other.large_changes;
        self.messages += other.messages;
        self.overtaking += other.overtaking;
        self.duplicates += other.duplicates;
        self.stale_reclaims += other.stale_reclaims;
        self.ungranted += other.ungranted;
        self.reclaimed += other.reclaimed;
        self.lapsed += other.lapsed;
        self.enough += other.enough;
        self.amended += other.amended;
        self.downgrades += other.downgrades;
        self.forced += other.forced;
        self.shed += other.shed;
        self.watched += other.watched;
        self.roamed += other.roamed;
        self.insisted += other.insisted;
        self.state_transfers_received += other.state_transfers_received;
        self.records_lost += other.records_lost;
        self.forks += other.forks;
        self.forks_resolved += other.forks_resolved;
        for (total, faults) in self.faults.iter_mut().zip(other.faults) {
            *total += faults;
        }
        self.trace_hash = self.trace_hash.rotate_left(1) ^ other.trace_hash;
    }

    /// Returns the number of faults of a kind.
    pub fn faults_of(&self, kind: FaultKind) -> u64 {
        self.faults[kind as usize]
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}.{:03} cluster-seconds, {} steps that looked at {} things at most, {} messages between datacenters, {} of them overtook others, {} entries came again",
            self.cluster_ms / 1_000,
            self.cluster_ms % 1_000,
            self.steps,
            self.most_work,
            self.messages,
            self.overtaking,
            self.duplicates
        )?;
        writeln!(
            f,
            "{} grants, {} of enough of many, {} amended, {} hand-offs, idle returns by age, number and shared use {:?}, {} ungranted, {} reclaimed, {} stale reclaims, {} lapsed, {} downgraded, {} taken by force, {} went elsewhere, {} went on after a refusal, {} refused for load, {} told to watches, {} records lost, {} states taken over",
            self.grants,
            self.enough,
            self.amended,
            self.hand_offs,
            self.idle_returns,
            self.ungranted,
            self.reclaimed,
            self.stale_reclaims,
            self.lapsed,
            self.downgrades,
            self.forced,
            self.roamed,
            self.insisted,
            self.shed,
            self.watched,
            self.records_lost,
            self.state_transfers_received
        )?;
        writeln!(
            f,
            "{} commits, {} of them under locks, {} under guards, {} in another datacenter than the one before, {} told to be at a majority, {} not yet, {} not committed, {} calls retried, {} removals, {} keys lapsed, {} large changes",
            self.commits,
            self.locked_commits,
            self.guarded_commits,
            self.commit_hand_offs,
            self.at_majority,
            self.not_at_majority,
            self.uncommitted,
            self.retried,
            self.removals,
            self.keys_expired,
            self.large_changes
        )?;
        if self.joins + self.leaves + self.stays + self.evictions + self.rules > 0 {
            let Outcome { joins, leaves, stays, evictions, returns, rules, upgrades, .. } = self;
            write!(f, "datacenters: {joins} joined, {leaves} left, {stays} stayed, {evictions} evicted")?;
            writeln!(f, ", {returns} returned, {rules} rules of homes, {upgrades} upgraded")?;
        }
        f.write_str("faults:")?;
        let kinds = FaultKind::ALL.into_iter().chain(FaultKind::DISKS);
        for (kind, count) in kinds.map(|kind| (kind, self.faults_of(kind))).filter(|(_, count)| *count > 0) {
            write!(f, " {kind:?} {count}")?;
        }
        if self.forks > 0 {
            write!(f, ", {} logs with two histories, {} resolved", self.forks, self.forks_resolved)?;
        }
        write!(f, "\ntrace hash {:016x}", self.trace_hash)
    }
}
