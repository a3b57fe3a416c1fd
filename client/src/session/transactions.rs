//! Transactions: their states, the calls of their callers, the calls that have to be repeated.
//!
//! ```text
//!  begin --> Queued --> Beginning --answer--> Open --steps, one at a time--> over
//!              |            |                  |
//!              |            '--- given up -----'--> GivenUp: aborted until that is answered
//!              '-- a lease is lost: it goes to the next one
//! ```
//!
//! A broken stream changes nothing here either: an unanswered call is repeated, under the same idempotency
//! key. The server makes no change twice (`docs/algorithm/log.md#24-outcomes-at-most-once`): a repeated begin
//! resumes where it stood, and every further step states how many changes came before it.
//!
//! **A commit without an answer** outlives its lease. While the lease lives it is repeated like any other
//! call. When the lease is lost the transaction is an *orphan*: the client asks for its outcome on any
//! stream, with the secret of that lease, which the server remembers for long after the end of the lease. If
//! the server then knows no such lease, the transaction did not commit. The outcome is unknown only if no
//! server answers in time.
//!
//! **A begin whose key the server has passed** (it answers that there is no such transaction) did not commit
//! and never will: it failed and its answer was lost, or a restarted server learned of higher keys first. It
//! begins again, with a fresh key.
//!
//! **Acknowledged through** (`settled`): the server may discard the outcomes of all transactions below the
//! first one that has not ended here.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use super::{Lease, Lifecycle, Output, Session};
use crate::error::{AcquireError, LostReason};
use crate::request::Wait;
use crate::tag::Tag;
use crate::txn_error::{CommitError, TxnError};
use crate::txn_request::NewTxn;
use geolock_api::proto::client_message::Call;
use geolock_api::proto::{self, Step, Then};
use geolock_api::time::Instant;

/// A transaction, with its unanswered steps.
#[derive(Debug)]
pub(super) struct Txn {
    pub key: u64,
    pub new: NewTxn,
    /// The end of its caller's wait for locks. Without locks: until then it is asked for while no server
    /// answers.
    pub deadline: Option<Instant>,
    pub stage: TxnStage,
    /// How many times it was begun under this key.
    pub asked: u32,
    /// How many of its changes were answered.
    pub made: usize,
    /// Numbers and steps in the order made. The first one is in flight, or will be.
    pub steps: VecDeque<(u64, Step)>,
    /// How many times the first one was sent.
    pub step_asked: u32,
    /// The lease under which it was begun, with its secret.
    pub lease: (u64, Bytes),
}

/// The state of a transaction, as far as the client knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TxnStage {
    /// The server does not know it.
    Queued,
    Beginning,
    Open,
    /// Its handle is gone.
    GivenUp,
    /// Its lease is lost and its commit unanswered.
    Orphan,
    /// It ended with its lease. Kept until its handle is gone, to report the reason.
    Lost(LostReason),
}

impl Txn {
    /// Returns true if the server may have committed it and the client does not know.
    pub fn may_have_committed(&self) -> bool {
        let commits = |step: &Step| step.then() == Then::Commit;
        match self.stage {
            TxnStage::Beginning => commits(&self.new.step),
            TxnStage::Open => self.steps.front().is_some_and(|(_, step)| commits(step)),
            TxnStage::Orphan => true,
            TxnStage::Queued | TxnStage::GivenUp | TxnStage::Lost(_) => false,
        }
    }

    /// Returns how long the server may wait for a majority before it answers the present step.
    fn majority_wait(&self) -> Duration {
        let step = self.steps.front().map_or(&self.new.step, |(_, step)| step);
        Duration::from_millis(step.majority_wait_ms)
    }
}

impl Session {
    /// Begins a transaction. An [`Output::Stepped`] with its number will report the outcome.
    pub(crate) fn begin(&mut self, now: Instant, mut new: NewTxn) -> Result<u64, TxnError> {
        if self.lifecycle != Lifecycle::Running {
            return Err(TxnError::Closed);
        }
        let number = self.number();
        if new.label.is_empty() {
            new.label.clone_from(&self.settings.name);
        }
        let deadline = match new.wait {
            _ if new.locks.is_empty() => None,
            Wait::Try => Some(now),
            Wait::AtMost(wait) => Some(now + wait),
            Wait::Forever => None,
        };
        let txn = Txn {
            key: number,
            new,
            deadline,
            stage: TxnStage::Queued,
            asked: 0,
            made: 0,
            steps: VecDeque::new(),
            step_asked: 0,
            lease: (0, Bytes::new()),
        };
        self.txns.insert(number, txn);
        if self.is_ready() {
            self.ask_begin(now, number);
        } else {
            self.watch_deadline(now, number);
            self.lease_wanted = true;
            self.open_if_wanted(now);
        }
        Ok(number)
    }

    /// Starts a further step. An [`Output::Stepped`] with the number of the step will report the outcome.
    pub(crate) fn step(&mut self, txn: u64, step: Step) -> Result<u64, TxnError> {
        let number = self.number();
        let ready = self.is_ready();
        let closed = self.lifecycle != Lifecycle::Running;
        match self.txns.get_mut(&txn) {
            Some(Txn { stage: TxnStage::Open, steps, .. }) => {
                steps.push_back((number, step));
                if ready && steps.len() == 1 {
                    self.ask_step(txn);
                }
                Ok(number)
            }
            Some(Txn { stage: TxnStage::Lost(reason), .. }) => Err(TxnError::LeaseLost(reason.clone())),
            _ if closed => Err(TxnError::Closed),
            _ => {
                let message = "the server has reported this before".to_owned();
                Err(TxnError::Over(proto::Reason::TransactionUnknown, message))
            }
        }
    }

    /// Ends a transaction whose handle is gone, whatever its state.
    pub(crate) fn give_up(&mut self, number: u64) {
        let Some(txn) = self.txns.get_mut(&number) else { return };
        match txn.stage {
            TxnStage::Beginning | TxnStage::Open => {
                let waited = txn.stage == TxnStage::Beginning;
                txn.stage = TxnStage::GivenUp;
                let steps = std::mem::take(&mut txn.steps);
                let told =
                    waited.then_some(number).into_iter().chain(steps.into_iter().map(|(step, _)| step));
                self.outputs.extend(told.map(closed));
                if self.is_ready() {
                    self.send_abort(number);
                }
            }
            TxnStage::Queued | TxnStage::Orphan | TxnStage::Lost(_) => {
                self.end_txn(number, || TxnError::Closed.into());
            }
            TxnStage::GivenUp => {}
        }
    }

    /// Sends the begin of a transaction, or repeats it.
    pub(super) fn ask_begin(&mut self, now: Instant, number: u64) {
        let (Lease::Open(lease), acknowledged_through) = (&self.lease, self.acknowledged_through()) else {
            return;
        };
        let Some(txn) = self.txns.get_mut(&number) else { return };
        txn.stage = TxnStage::Beginning;
        txn.asked += 1;
        txn.lease = (lease.id, lease.secret.clone());
        let left = txn.deadline.map_or(Duration::ZERO, |deadline| deadline.saturating_since(now));
        let begin = begin_request(txn, txn.new.wait.to_begin(left), Bytes::new(), acknowledged_through);
        let (tag, call) = (Tag::Begin(number), Call::Begin(begin));
        match self.not_understood(&call) {
            Some(refusal) => self.on_refused(now, tag, refusal),
            None => self.send(tag, call),
        }
    }

    /// Sends the first unanswered step of a transaction, or repeats it.
    pub(super) fn ask_step(&mut self, number: u64) {
        let Some(txn) = self.txns.get_mut(&number) else { return };
        if let Some(step) = step_request(txn, Bytes::new()) {
            txn.step_asked = txn.step_asked.saturating_add(1);
            self.send(Tag::Step(number), Call::Step(step));
        }
    }

    pub(super) fn send_abort(&mut self, number: u64) {
        let Some(txn) = self.txns.get(&number) else { return };
        let step =
            Step { changes: Vec::new(), reads: Vec::new(), then: Then::Abort.into(), ..Default::default() };
        let (lease, secret) = (txn.lease.0, Bytes::new());
        let abort = proto::StepRequest {
            lease,
            secret,
            idempotency_key: txn.key,
            applied_changes: 0,
            step: Some(step),
        };
        self.send(Tag::Abort(number), Call::Step(abort));
    }

    /// Asks for the outcome of a commit whose lease is lost. Its locks are lost too, so it waits for none.
    /// Acknowledges no outcomes of that lease, because other orphans may need theirs.
    pub(super) fn ask_orphan(&mut self, number: u64) {
        let Some(txn) = self.txns.get(&number) else { return };
        let secret = txn.lease.1.clone();
        let call = match step_request(txn, secret.clone()) {
            Some(step) => Call::Step(step),
            None => {
                let at_once = Wait::Try.to_begin(Duration::ZERO);
                Call::Begin(begin_request(txn, at_once, secret, 0))
            }
        };
        // Until its time is over another server may answer that understands it.
        if self.not_understood(&call).is_none() {
            self.send(Tag::Outcome(number), call);
        }
    }

    /// Returns the highest key up to which every transaction has ended, or belongs to a lease that has ended:
    /// a handle that outlives its lease must not keep the server from discarding the outcomes of this lease.
    fn acknowledged_through(&self) -> u64 {
        let mut first: Option<u64> = None;
        for (number, txn) in &self.txns {
            // A key is its transaction's number, or a higher one assigned later: all further keys are higher.
            if first.is_some_and(|first| first < *number) {
                break;
            }
            if !matches!(txn.stage, TxnStage::Lost(_) | TxnStage::Orphan) {
                first = Some(first.map_or(txn.key, |first| first.min(txn.key)));
            }
        }
        first.map_or(0, |first| first - 1)
    }

    /// The lease of all transactions that the server may know is gone.
    pub(super) fn end_transactions(&mut self, now: Instant, reason: &LostReason) {
        let numbers: Vec<u64> = self.txns.keys().copied().collect();
        for number in numbers {
            let Some(txn) = self.txns.get_mut(&number) else { continue };
            match txn.stage {
                // The next lease does not hold its guards.
                TxnStage::Queued if !txn.new.under.is_empty() => {
                    self.end_txn(number, || lease_lost(reason).into());
                }
                TxnStage::Queued if *reason != LostReason::Closed => {}
                TxnStage::Orphan if *reason != LostReason::Closed => {}
                TxnStage::Lost(_) => {}
                _ if txn.may_have_committed() && *reason != LostReason::Closed => {
                    txn.stage = TxnStage::Orphan;
                    let until = now + self.last_ttl + self.settings.connect_timeout + txn.majority_wait();
                    self.orphans.insert((until, number));
                    self.ask_orphan(number);
                }
                _ if txn.may_have_committed() => {
                    let why = "the client was closed before the answer came";
                    self.end_txn(number, || CommitError::OutcomeUnknown(why.to_owned()));
                }
                TxnStage::Open => {
                    txn.stage = TxnStage::Lost(reason.clone());
                    for (step, _) in std::mem::take(&mut txn.steps) {
                        let outcome = Err(TxnError::LeaseLost(reason.clone()).into());
                        self.outputs.push(Output::Stepped { number: step, outcome });
                    }
                }
                TxnStage::Queued | TxnStage::Beginning | TxnStage::Orphan | TxnStage::GivenUp => {
                    self.end_txn(number, || lease_lost(reason).into());
                }
            }
        }
    }

    /// Ends a begin because no server answers.
    pub(super) fn end_wait_of_begin(&mut self, number: u64, error: &dyn Fn() -> AcquireError) {
        let Some(txn) = self.txns.get_mut(&number) else { return };
        match txn.stage {
            TxnStage::Queued => self.end_txn(number, || TxnError::NotBegun(error()).into()),
            TxnStage::Beginning => {
                let unknown = txn.may_have_committed();
                txn.stage = TxnStage::GivenUp;
                let error = if unknown {
                    CommitError::OutcomeUnknown(error().to_string())
                } else {
                    TxnError::NotBegun(error()).into()
                };
                self.outputs.push(Output::Stepped { number, outcome: Err(error) });
            }
            TxnStage::Open | TxnStage::GivenUp | TxnStage::Orphan | TxnStage::Lost(_) => {}
        }
    }

    /// Returns the numbers of the transactions in some stages.
    pub(super) fn txns_that(&self, of: impl Fn(&TxnStage) -> bool) -> Vec<u64> {
        self.txns.iter().filter(|(_, txn)| of(&txn.stage)).map(|(number, _)| *number).collect()
    }

    pub(super) fn give_up_orphans(&mut self, now: Instant) {
        while let Some((until, number)) = self.orphans.first().copied()
            && until <= now
        {
            self.orphans.remove(&(until, number));
            let why = "no endpoint answered in time after its lease was lost";
            self.end_txn(number, || CommitError::OutcomeUnknown(why.to_owned()));
        }
    }

    /// Ends a transaction, and reports the reason to the callers that wait for its steps.
    pub(super) fn end_txn(&mut self, number: u64, why: impl Fn() -> CommitError) {
        let Some(txn) = self.forget_txn(number) else { return };
        let begin_waits = match txn.stage {
            TxnStage::Queued | TxnStage::Beginning => true,
            TxnStage::Orphan => txn.steps.is_empty(),
            TxnStage::Open | TxnStage::GivenUp | TxnStage::Lost(_) => false,
        };
        let told = begin_waits.then_some(number).into_iter().chain(txn.steps.iter().map(|(step, _)| *step));
        self.outputs.extend(told.map(|number| Output::Stepped { number, outcome: Err(why()) }));
    }

    /// Removes a transaction whose callers all have their outcomes.
    pub(super) fn forget_txn(&mut self, number: u64) -> Option<Txn> {
        let txn = self.txns.remove(&number)?;
        if txn.stage == TxnStage::Orphan {
            self.orphans.retain(|(_, orphan)| *orphan != number);
        }
        if let Some(deadline) = txn.deadline {
            self.overdue.remove(&(deadline + self.settings.connect_timeout, number));
        }
        Some(txn)
    }
}

fn closed(number: u64) -> Output {
    Output::Stepped { number, outcome: Err(TxnError::Closed.into()) }
}

fn lease_lost(reason: &LostReason) -> TxnError {
    match reason {
        LostReason::Closed => TxnError::Closed,
        reason => TxnError::LeaseLost(reason.clone()),
    }
}

fn begin_request(
    txn: &Txn,
    wait: proto::begin_locks::Wait,
    secret: Bytes,
    acknowledged_through: u64,
) -> proto::BeginRequest {
    let locks = &txn.new.locks;
    let locks = (!locks.is_empty()).then(|| proto::BeginLocks {
        locks: locks.clone(),
        wait: Some(wait),
        label: txn.new.label.clone(),
    });
    proto::BeginRequest {
        lease: txn.lease.0,
        secret,
        idempotency_key: txn.key,
        locks,
        under: txn.new.under.clone(),
        at_least: txn.new.at_least.clone(),
        acknowledged_through: acknowledged_through.min(txn.key.saturating_sub(1)),
        step: Some(txn.new.step.clone()),
    }
}

/// Returns `None` if no step waits for an answer.
fn step_request(txn: &Txn, secret: Bytes) -> Option<proto::StepRequest> {
    let (_, step) = txn.steps.front()?;
    Some(proto::StepRequest {
        lease: txn.lease.0,
        secret,
        idempotency_key: txn.key,
        // A transaction has at most 100 000 changes.
        applied_changes: u32::try_from(txn.made).unwrap_or(u32::MAX),
        step: Some(step.clone()),
    })
}
