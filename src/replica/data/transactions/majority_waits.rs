//! Committed transactions whose answers wait until a majority has the commit durably.
//!
//! Own entries become durable at a majority in their order, so the answers wait in the order of their
//! entries: an acknowledgement costs time for each answer that it lets go, and none for those that still
//! wait. A transaction waits at most once; what its answer reads counts as memory of transactions.

use std::collections::BTreeMap;

use super::TxnId;
use crate::base::deadlines::Deadlines;
use crate::base::time::Instant;
use crate::crdt::value::SharedValue;
use crate::replica::call::CallId;
use crate::replica::call::store::Stepped;
use geolock_api::names::{IdempotencyKey, LeaseId, Position};

/// Approximate number of bytes of a waiting answer, without its values.
const BASE: usize = 256;

/// A commit by the number of its entry in the own log. One that was made without an entry, and is known from
/// a checkpoint only, has the number of an entry before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::replica) struct CommitId {
    pub seq: u64,
    pub txn: TxnId,
}

/// An answer that waits.
#[derive(Debug)]
pub(in crate::replica) struct WaitingAnswer {
    pub call: CallId,
    /// The journal position of the commit.
    pub position: Position,
    pub stepped: Stepped,
    pub since: Instant,
    pub until: Instant,
}

impl WaitingAnswer {
    fn bytes(&self) -> usize {
        BASE + self.stepped.values.iter().flatten().map(SharedValue::weight).sum::<usize>()
    }
}

#[derive(Debug, Default)]
pub(in crate::replica) struct MajorityWaits {
    answers: BTreeMap<CommitId, WaitingAnswer>,
    deadlines: Deadlines<CommitId>,
    bytes: usize,
}

impl MajorityWaits {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    pub fn len(&self) -> usize {
        self.answers.len()
    }

    /// Returns the approximate number of bytes of all answers.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline]
    pub fn next_deadline(&self) -> Instant {
        self.deadlines.next_or_never()
    }

    /// Adds an answer. Returns the one to an earlier call for the same commit.
    pub fn insert(&mut self, commit: CommitId, answer: WaitingAnswer) -> Option<WaitingAnswer> {
        let before = self.remove(commit);
        self.bytes += answer.bytes();
        self.deadlines.insert(answer.until, commit);
        self.answers.insert(commit, answer);
        before
    }

    /// Removes and returns an answer to a commit up to own entry `seq`, with the number of its entry.
    pub fn next_reached(&mut self, seq: u64) -> Option<(u64, WaitingAnswer)> {
        let first = self.answers.first_key_value().map(|(commit, _)| *commit);
        let commit = first.filter(|commit| commit.seq <= seq)?;
        self.remove(commit).map(|answer| (commit.seq, answer))
    }

    /// Removes and returns an answer whose wait is over, with the number of its entry.
    pub fn next_expired(&mut self, now: Instant) -> Option<(u64, WaitingAnswer)> {
        let commit = self.deadlines.pop_expired(now)?;
        let answer = self.remove(commit);
        assert!(answer.is_some(), "the answer to {commit:?} waits until its deadline");
        answer.map(|answer| (commit.seq, answer))
    }

    /// Returns the number of the last entry up to `seq` that an answer waits for.
    pub fn last_up_to(&self, seq: u64) -> Option<u64> {
        let last = TxnId { lease: LeaseId::from_raw(u64::MAX), key: IdempotencyKey::MAX };
        let end = CommitId { seq, txn: last };
        self.answers.range(..=end).next_back().map(|(commit, _)| commit.seq)
    }

    /// Asserts that each answer has its deadline and is counted.
    pub fn check(&self) {
        assert_eq!(self.deadlines.len(), self.answers.len(), "every wait for a majority has one end");
        let bytes: usize = self.answers.values().map(WaitingAnswer::bytes).sum();
        assert_eq!(self.bytes, bytes, "the bytes of all answers that wait for a majority");
    }

    fn remove(&mut self, commit: CommitId) -> Option<WaitingAnswer> {
        let answer = self.answers.remove(&commit)?;
        self.deadlines.remove(answer.until, commit);
        self.bytes -= answer.bytes();
        Some(answer)
    }
}
