//! Outcomes of transactions, for clients that lost the reply
//! (`docs/algorithm/log.md#24-outcomes-at-most-once`).
//!
//! The entry of a commit names its lease and idempotency key, so the journal has the outcomes already. They
//! are kept while the lease lives and for [`KEPT`] after it, or until the client acknowledges them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::content::TxnContent;
use crate::base::deadlines::Deadlines;
use crate::base::time::Instant;
use crate::base::work;
use crate::crdt::VersionVector;
use geolock_api::names::{IdempotencyKey, LeaseId, Position, Secret};

/// How long outcomes are kept after the end of their lease.
const KEPT: Duration = Duration::from_secs(600);
/// Most unacknowledged outcomes of one lease.
const MAX_OUTCOMES: usize = 10_000;
/// Approximate bound of the outcomes of all leases, some 150 bytes each. Above it no lease may have more than
/// its share: remembered outcomes are kept as promised, and a lease with none is not blocked.
const MAX_ALL: usize = if cfg!(test) { 4 * MAX_OUTCOMES } else { 1_000_000 };

/// Most outcomes that one step drops; the rest follow in the next steps.
const FORGOTTEN_PER_STEP: usize = 1_000;

const _: () = assert!(MAX_OUTCOMES <= MAX_ALL, "one lease has no more outcomes than all");

/// Most remembered commits of lost leases. Those of the latest leases are kept, because their clients may
/// still ask.
const MAX_LOST: usize = 100_000;

/// The outcomes of a lease, as a checkpoint keeps them. Disk type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeRow {
    /// The lease.
    pub lease: LeaseId,
    /// Its secret: after its end, the client proves with it that the lease was its own.
    pub secret: Secret,
    /// The lease has ended.
    pub ended: bool,
    /// The committed transactions that the client has not acknowledged, by key, each with the vector of its
    /// commit.
    pub commits: Vec<(IdempotencyKey, VersionVector)>,
}

/// The content of a commit, by its lease and key. Disk type.
pub type CommitContent = (LeaseId, IdempotencyKey, TxnContent);

/// A commit, as it may be reported to its client again.
#[derive(Clone, Debug)]
pub(in crate::replica) struct Outcome {
    pub commit: Arc<VersionVector>,
    pub content: TxnContent,
    /// Reported when the journal is durable up to here.
    pub position: Position,
    /// The number of its entry in the own log; 0 if it changed nothing. Of a checkpoint's commit without
    /// changes: the number of an earlier entry.
    pub seq: u64,
    /// It changed a bucket whose commits wait for a majority, or may have.
    pub needs_majority: bool,
}

#[derive(Debug)]
struct OfLease {
    secret: Secret,
    /// When they are dropped, once the lease has ended.
    until: Option<Instant>,
    commits: BTreeMap<IdempotencyKey, Outcome>,
    /// The client has recorded the outcomes up to this key.
    acknowledged_through: IdempotencyKey,
}

/// All remembered outcomes.
#[derive(Debug, Default)]
pub(in crate::replica) struct Outcomes {
    leases: BTreeMap<LeaseId, OfLease>,
    forgets: Deadlines<LeaseId>,
    /// Number of commits of all leases.
    count: usize,
    /// Own commits that came back after the disk had lost their leases: their secrets are not known any more.
    lost: BTreeSet<(LeaseId, IdempotencyKey)>,
}

impl Outcomes {
    #[inline]
    pub fn next_deadline(&self) -> Instant {
        self.forgets.next_or_never()
    }

    fn row(&mut self, lease: LeaseId, secret: Secret) -> &mut OfLease {
        let row = || OfLease { secret, until: None, commits: BTreeMap::new(), acknowledged_through: 0 };
        self.leases.entry(lease).or_insert_with(row)
    }

    pub fn note(&mut self, lease: LeaseId, secret: Secret, key: IdempotencyKey, outcome: Outcome) {
        let is_new = self.row(lease, secret).commits.insert(key, outcome).is_none();
        self.count += usize::from(is_new);
    }

    /// Returns the number of leases, and that of their commits.
    pub fn counts(&self) -> (usize, usize) {
        (self.leases.len(), self.count)
    }

    /// Returns the secret of a lease with remembered outcomes, also after its end.
    pub fn secret_of(&self, lease: LeaseId) -> Option<Secret> {
        self.leases.get(&lease).map(|row| row.secret)
    }

    /// Returns true if there is no room for one more outcome of this lease.
    pub fn is_full(&self, lease: LeaseId) -> bool {
        let of_lease = self.leases.get(&lease).map_or(0, |row| row.commits.len());
        of_lease >= MAX_OUTCOMES || (self.count >= MAX_ALL && of_lease * self.leases.len() >= MAX_ALL)
    }

    pub fn get(&self, lease: LeaseId, key: IdempotencyKey) -> Option<&Outcome> {
        self.leases.get(&lease)?.commits.get(&key)
    }

    /// Returns an outcome of a lease that has ended, if the secret is right.
    pub fn get_ended(&self, lease: LeaseId, secret: Secret, key: IdempotencyKey) -> Option<&Outcome> {
        let row = self.leases.get(&lease).filter(|row| row.secret.matches(&secret))?;
        row.commits.get(&key)
    }

    pub fn note_lost(&mut self, lease: LeaseId, key: IdempotencyKey) {
        self.lost.insert((lease, key));
        if self.lost.len() > MAX_LOST {
            self.lost.pop_first();
        }
        debug_assert!(self.lost.len() <= MAX_LOST, "{} lost commits are remembered", self.lost.len());
    }

    /// Returns the commits whose leases are not known here.
    pub fn lost(&self) -> Vec<(LeaseId, IdempotencyKey)> {
        self.lost.iter().copied().collect()
    }

    /// Returns true if this was committed under a lease that is not known here.
    pub fn is_lost(&self, lease: LeaseId, key: IdempotencyKey) -> bool {
        self.lost.contains(&(lease, key))
    }

    /// Returns the key up to which the client has acknowledged outcomes.
    pub fn acknowledged_through(&self, lease: LeaseId) -> IdempotencyKey {
        self.leases.get(&lease).map_or(0, |row| row.acknowledged_through)
    }

    /// The client acknowledged the outcomes up to `key`.
    pub fn acknowledge(&mut self, lease: LeaseId, key: IdempotencyKey) {
        if let Some(row) = self.leases.get_mut(&lease)
            && key > row.acknowledged_through
        {
            row.acknowledged_through = key;
            let left = row.commits.split_off(&key.saturating_add(1));
            self.count -= std::mem::replace(&mut row.commits, left).len();
        }
    }

    /// The lease has ended. `secret`: given while commits of it may come back that the disk had lost.
    pub fn end_lease(&mut self, lease: LeaseId, secret: Option<Secret>, now: Instant) {
        if let Some(secret) = secret {
            self.row(lease, secret);
        }
        let Some(row) = self.leases.get_mut(&lease) else { return };
        if row.commits.is_empty() && secret.is_none() {
            self.leases.remove(&lease);
        } else if row.until.is_none() {
            row.until = Some(now + KEPT);
            self.forgets.insert(now + KEPT, lease);
        }
    }

    /// Drops outcomes of leases that ended long ago, [`FORGOTTEN_PER_STEP`] at most.
    pub fn expire(&mut self, now: Instant) {
        let mut left = FORGOTTEN_PER_STEP;
        while left > 0
            && let Some(lease) = self.forgets.pop_expired(now)
        {
            let Some(row) = self.leases.get_mut(&lease) else { continue };
            assert!(
                row.until.is_some_and(|until| until <= now),
                "{lease} keeps its outcomes: {:?}",
                row.until
            );
            let many = row.commits.len().min(left);
            (0..many).for_each(|_| drop(row.commits.pop_first()));
            self.count -= many;
            left -= many.max(1);
            if row.commits.is_empty() {
                self.leases.remove(&lease);
            } else {
                self.forgets.insert(now, lease);
            }
        }
        work::count(FORGOTTEN_PER_STEP - left);
    }

    /// Asserts that all outcomes are counted, and those of leases that ended will be dropped.
    pub fn check(&self) {
        let count: usize = self.leases.values().map(|row| row.commits.len()).sum();
        assert_eq!(self.count, count, "the outcomes of all leases");
        let ended = self.leases.values().filter(|row| row.until.is_some()).count();
        assert!(self.forgets.len() >= ended, "{ended} leases ended, {} are forgotten", self.forgets.len());
    }

    /// Copies about `most` outcomes from one on: those whose journal records are at `at` or before. Returns
    /// the next one to copy, if there is one, and the number of outcomes that were examined.
    ///
    /// The copies may be made in several steps, although outcomes come and go between them. One that goes was
    /// acknowledged by its client, or is as old as any outcome gets. A lease that ended may still be open at
    /// `at`: then [`Outcomes::restore`] is told so.
    pub fn copy(
        &self,
        from: (LeaseId, IdempotencyKey),
        at: Position,
        most: usize,
        (rows, contents): (&mut Vec<OutcomeRow>, &mut Vec<CommitContent>),
    ) -> (Option<(LeaseId, IdempotencyKey)>, usize) {
        let mut examined = 0;
        for (lease, row) in self.leases.range(from.0..) {
            if examined >= most {
                return (Some((*lease, 0)), examined);
            }
            // One without commits counts, too.
            examined += usize::from(row.commits.is_empty());
            if rows.last().is_none_or(|last| last.lease != *lease) {
                let (secret, ended) = (row.secret, row.until.is_some());
                rows.push(OutcomeRow { lease: *lease, secret, ended, commits: Vec::new() });
            }
            let first = if *lease == from.0 { from.1 } else { 0 };
            let commits = &mut rows.last_mut().expect("it was just added").commits;
            for (key, outcome) in row.commits.range(first..) {
                if examined >= most {
                    return (Some((*lease, *key)), examined);
                }
                examined += 1;
                if outcome.position > at {
                    continue;
                }
                commits.push((*key, (*outcome.commit).clone()));
                if outcome.content != TxnContent::Unknown {
                    contents.push((*lease, *key, outcome.content));
                }
            }
        }
        (None, examined)
    }

    /// Restores what a checkpoint knows of the content of a commit that is restored.
    pub fn restore_content(&mut self, lease: LeaseId, key: IdempotencyKey, content: TxnContent) {
        let outcome = self.leases.get_mut(&lease).and_then(|row| row.commits.get_mut(&key));
        if let Some(outcome) = outcome {
            outcome.content = content;
        }
    }

    /// `needs_majority`: of all these commits. Checkpoints do not say which keys they changed. `is_open`: the
    /// lease ended after the position of the checkpoint.
    pub fn restore(&mut self, row: OutcomeRow, needs_majority: bool, is_open: bool, now: Instant) {
        for (key, commit) in row.commits {
            let position = Position::default();
            let seq = row.lease.dc().map_or(0, |dc| commit.get(dc));
            let (commit, content) = (Arc::new(commit), TxnContent::Unknown);
            let outcome = Outcome { commit, content, position, seq, needs_majority };
            self.note(row.lease, row.secret, key, outcome);
        }
        if row.ended && !is_open {
            self.end_lease(row.lease, Some(row.secret), now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use geolock_api::names::DcId;

    #[test]
    fn when_there_are_many_no_lease_has_more_than_its_share() {
        let lease = |n: u64| LeaseId::new(DcId::new(0).expect("a small id"), n + 1);
        let position = Position::default();
        let (commit, content) = (Arc::default(), TxnContent::Unknown);
        let outcome = Outcome { commit, content, position, seq: 0, needs_majority: false };
        let mut outcomes = Outcomes::default();
        let fill = |outcomes: &mut Outcomes, n| {
            let key = 1 + outcomes.leases.get(&lease(n)).map_or(0, |row| row.commits.len() as u64);
            outcomes.note(lease(n), Secret::new([7; 16]), key, outcome.clone());
        };
        for n in 0..4 {
            (0..MAX_OUTCOMES).for_each(|_| fill(&mut outcomes, n));
        }
        assert!(outcomes.is_full(lease(0)) && !outcomes.is_full(lease(4)), "who has none is not held up");
        while !outcomes.is_full(lease(4)) {
            fill(&mut outcomes, 4);
        }
        assert_eq!(outcomes.count, MAX_ALL + MAX_ALL / 5);
        assert!(!outcomes.is_full(lease(5)));
        outcomes.acknowledge(lease(0), 10);
        outcomes.end_lease(lease(3), None, Instant::ZERO);
        assert!(outcomes.get_ended(lease(3), Secret::new([7; 16]), 1).is_some(), "it was promised");
        let mut steps = 0;
        while outcomes.next_deadline() <= Instant::ZERO + KEPT {
            outcomes.expire(Instant::ZERO + KEPT);
            steps += 1;
        }
        assert_eq!(steps, MAX_OUTCOMES / FORGOTTEN_PER_STEP, "no step forgets more than a step may");
        let counted: usize = outcomes.leases.values().map(|row| row.commits.len()).sum();
        assert_eq!((counted, outcomes.count), (3 * MAX_OUTCOMES - 10 + MAX_ALL / 5, counted));
    }
}
