//! Transactions of a client: intent, progress, and the reaction to a lost answer.
//!
//! A step that may be repeated is sent again on the next session: the begin (under its key the server
//! continues it, or answers with its outcome), a step that only reads, and the last one. A step in between
//! that changes something is not repeated: its outcome is unknown, so the transaction is aborted. When the
//! lease is over and the last step was sent, the client is **in doubt**: it asks with the lease's secret,
//! until it knows the outcome.

use std::sync::Arc;
use std::time::Duration;

use crate::causal_log::{Change, Wants};
use crate::crdt::VersionVector;
use crate::replica::call::store::{
    AtLeast, Begin, Durability, NextStep, Read, Step, Stepped, Then, TxnRefusal, TxnState,
};
use crate::replica::call::{Call, IdempotencyKey, LockRequest, Proof, Refusal, Wait};
use crate::sim::client::{Client, HoldEnd, Out, Pending, State, Timer};
use crate::sim::failure::FailureKind;
use crate::sim::oracle::{AskedStep, Guard, Intent, TxnKey};
use crate::sim::queue::Moment;
use geolock_api::keys::Key;
use geolock_api::names::{FencingToken, LeaseId, Secret};

/// The intent of a client for a transaction.
#[derive(Clone, Debug)]
pub(in crate::sim) struct TxnOrder {
    pub locks: Option<(Wants, Wait)>,
    /// Requests that it holds, and under which the transaction runs.
    pub under: Vec<Guard>,
    pub at_least: AtLeast,
    pub steps: Vec<TxnStep>,
    /// [`Then::Commit`] or [`Then::Abort`].
    pub end: Then,
    /// Of the commit.
    pub durability: Durability,
    /// Pause between the steps.
    pub think: Duration,
    /// It is refused as an overflow, unless a removal that it has not seen takes the counter away.
    pub overflows: bool,
    /// The server keeps no transaction open for longer than this.
    pub max_open: Duration,
    /// Logs are so short that its datacenter may have to install the state of another.
    pub may_be_replaced: bool,
}

#[derive(Clone, Debug)]
pub(in crate::sim) struct TxnStep {
    pub changes: Vec<Change>,
    pub reads: Vec<Key>,
}

/// A transaction that is not over.
#[derive(Clone, Debug)]
pub(in crate::sim) struct Txn {
    pub order: TxnOrder,
    pub issued: Moment,
    lease: LeaseId,
    secret: Secret,
    /// The step that is to be answered next.
    pub(super) next: usize,
    pub(super) stage: Stage,
    told: Option<(Arc<VersionVector>, Option<FencingToken>)>,
    /// The oracle counts it as a holder.
    holds: bool,
    /// The server may not know it any more.
    pub(super) shaken: bool,
    /// The next step was sent before.
    pub(super) resent: bool,
    /// The answer to a copy of one of its calls has said that it is over: the server need not remember it
    /// after that.
    pub(super) is_told_over: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The answer to the next step is outstanding.
    Asked,
    Thinking,
    /// The answer to the abort is outstanding.
    Aborting,
    /// The lease is over; the outcome of the transaction is not known.
    InDoubt,
}

/// A call for a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sim) enum TxnCall {
    Step(usize),
    Abort,
    /// The next step once more, with the secret of a lease that is over.
    Ask,
}

impl Txn {
    fn is_last(&self, step: usize) -> bool {
        step + 1 == self.order.steps.len()
    }

    /// Returns true if its next step is the last one, and commits.
    pub(super) fn ends_by_commit(&self) -> bool {
        self.is_last(self.next) && self.order.end == Then::Commit
    }

    /// Returns true if it may be committed by now, as far as the client knows.
    fn may_be_committed(&self) -> bool {
        self.stage == Stage::Asked && self.ends_by_commit()
    }

    /// Returns true if the call of its next step can be repeated.
    fn is_repeatable(&self) -> bool {
        self.next == 0 || self.is_last(self.next) || self.order.steps[self.next].changes.is_empty()
    }

    fn changes_up_to(&self, step: usize) -> Vec<Change> {
        self.order.steps[..=step].iter().flat_map(|step| step.changes.clone()).collect()
    }

    pub fn intent(&self) -> Intent {
        Intent {
            under: self.order.under.clone(),
            wants: self.order.locks.as_ref().map(|(wants, _)| wants.clone()),
            changes: self.changes_up_to(self.order.steps.len() - 1),
            commits: self.order.end == Then::Commit,
        }
    }
}

impl Client {
    pub fn txns(&self) -> &std::collections::BTreeMap<IdempotencyKey, Txn> {
        &self.txns
    }

    /// Returns the requests that it holds, as guards.
    pub fn held(&self) -> Vec<Guard> {
        let held = self.requests.values().filter_map(|request| match request.state {
            State::Held { id, .. } => Some(Guard { request: id, wants: request.order.wants.clone() }),
            _ => None,
        });
        held.collect()
    }

    /// Returns true if it holds all guards of a transaction, as far as it knows.
    pub(super) fn holds_guards(&self, key: IdempotencyKey) -> bool {
        let held = |guard: &Guard| {
            self.requests
                .values()
                .any(|request| matches!(request.state, State::Held { id, .. } if id == guard.request))
        };
        self.txns.get(&key).is_some_and(|txn| txn.order.under.iter().all(held))
    }

    /// Returns the number of transactions and reads that are not answered.
    pub fn unfinished_txns(&self) -> usize {
        self.txns.len() + self.reads.len()
    }

    /// Returns the step that a call of the current session asked for.
    pub fn asked_step(&self, tag: u64) -> Option<AskedStep> {
        match self.pending.get(&tag)? {
            Pending::Read => {
                let read = self.reads.get(&tag)?;
                let (reads, at_least) = (read.reads.clone(), read.at_least.snapshot.clone());
                Some(AskedStep { txn: None, reads, own: Vec::new(), at_least, resent: false })
            }
            Pending::Txn(key, call) => {
                let txn = self.txns.get(key)?;
                let step = match call {
                    TxnCall::Step(step) => step,
                    TxnCall::Ask => &txn.next,
                    TxnCall::Abort => return None,
                };
                Some(AskedStep {
                    txn: Some((txn.lease, *key)),
                    reads: txn.order.steps[*step].reads.clone(),
                    own: txn.changes_up_to(*step),
                    at_least: txn.order.at_least.snapshot.clone(),
                    resent: txn.resent,
                })
            }
            _ => None,
        }
    }

    /// Returns the intent of the transaction that begins with this key.
    pub fn intent_of(&self, (lease, key): TxnKey) -> Option<Intent> {
        self.txns.get(&key).filter(|txn| txn.lease == lease).map(Txn::intent)
    }

    /// Returns the present intent of a transaction.
    pub fn intent(&self, key: IdempotencyKey) -> Option<(TxnKey, Intent)> {
        self.txns.get(&key).map(|txn| ((txn.lease, key), txn.intent()))
    }

    /// Begins a transaction, if there is a lease for it.
    pub fn begin(&mut self, now: Moment, order: TxnOrder, out: &mut Vec<Out>) -> Option<IdempotencyKey> {
        let lease = self.lease.as_ref().filter(|lease| !lease.lapsed)?;
        let key = self.next_key;
        self.next_key += 1;
        let txn = Txn {
            order,
            issued: now,
            lease: lease.id,
            secret: lease.secret,
            next: 0,
            stage: Stage::Asked,
            told: None,
            holds: false,
            shaken: self.is_lapsed(),
            resent: false,
            is_told_over: false,
        };
        self.txns.insert(key, txn);
        self.send_txn(key, out);
        Some(key)
    }

    pub fn read(&mut self, read: Read, out: &mut Vec<Out>) {
        if self.session.is_some() && !self.dead {
            self.reads.insert(self.next_tag, read.clone());
            self.call(Pending::Read, Call::Read(read), out);
        }
    }

    /// Sends the call whose answer the transaction waits for, perhaps again.
    pub fn send_txn(&mut self, key: IdempotencyKey, out: &mut Vec<Out>) {
        let Some(txn) = self.txns.get(&key).filter(|_| self.session.is_some() && !self.dead) else { return };
        let attached = self.lease.as_ref().is_some_and(|lease| lease.attached && lease.id == txn.lease);
        let (lease, proof) = match txn.stage {
            Stage::InDoubt => (txn.lease, Proof::Secret(txn.secret)),
            Stage::Asked | Stage::Aborting if attached => (txn.lease, Proof::Attached),
            _ => return,
        };
        let (call, step) = match txn.stage {
            Stage::Aborting => {
                let (changes, reads, durability) = (Vec::new(), Vec::new(), Durability::Local);
                (TxnCall::Abort, Step { changes, reads, then: Then::Abort, durability })
            }
            _ => {
                let TxnStep { changes, reads } = txn.order.steps[txn.next].clone();
                let then = if txn.is_last(txn.next) { txn.order.end } else { Then::Continue };
                let call = if txn.stage == Stage::InDoubt { TxnCall::Ask } else { TxnCall::Step(txn.next) };
                let durability = txn.order.durability;
                (call, Step { changes, reads, then, durability })
            }
        };
        let ends = step.then != Then::Continue;
        let request = if txn.next == 0 && call != TxnCall::Abort {
            let locks = txn.order.locks.clone().map(|(wants, wait)| LockRequest {
                wants,
                wait,
                label: self.label.clone(),
            });
            let at_least = txn.order.at_least.clone();
            let under = txn.order.under.iter().map(|guard| guard.request).collect();
            let acknowledged_through = self.acknowledged_through(lease);
            Call::Begin(Begin { lease, proof, key, locks, under, at_least, acknowledged_through, step })
        } else {
            let made = match call {
                TxnCall::Abort => 0,
                _ => txn.order.steps[..txn.next].iter().map(|step| step.changes.len()).sum(),
            };
            Call::Step(NextStep { lease, proof, key, after: made, step })
        };
        if ends {
            self.end_txn_hold(key, out);
        }
        self.call(Pending::Txn(key, call), request, out);
    }

    /// Returns the highest key of the lease up to which all transactions are over.
    fn acknowledged_through(&self, lease: LeaseId) -> IdempotencyKey {
        let mut open = self.txns.iter().filter(|(_, txn)| txn.lease == lease).map(|(key, _)| *key);
        open.next().unwrap_or(self.next_key) - 1
    }

    /// Sends a begin once more on the same session.
    pub fn repeat_begin(&mut self, key: IdempotencyKey, out: &mut Vec<Out>) {
        if self.txns.get(&key).is_some_and(|txn| txn.stage == Stage::Asked && txn.next == 0) {
            self.resend_txn(key, out);
        }
    }

    /// Sends its call again on a new session.
    pub(super) fn resend_txn(&mut self, key: IdempotencyKey, out: &mut Vec<Out>) {
        let Some(txn) = self.txns.get_mut(&key) else { return };
        if txn.stage == Stage::Asked && !txn.is_repeatable() {
            txn.stage = Stage::Aborting;
        }
        if txn.stage != Stage::Thinking {
            txn.resent = true;
            out.push(Out::Retries);
            self.send_txn(key, out);
        }
    }

    /// Asks for the outcome of the transactions that are in doubt.
    pub(super) fn ask_doubts(&mut self, out: &mut Vec<Out>) {
        let doubts = self.txns.iter().filter(|(_, txn)| txn.stage == Stage::InDoubt);
        let keys: Vec<IdempotencyKey> = doubts.map(|(key, _)| *key).collect();
        keys.into_iter().for_each(|key| self.resend_txn(key, out));
    }

    /// The lease is over, by the client's count.
    pub(super) fn forget_txns_of(&mut self, lease: LeaseId, out: &mut Vec<Out>) {
        let of_lease = self.txns.iter().filter(|(_, txn)| txn.lease == lease);
        let keys: Vec<IdempotencyKey> = of_lease.map(|(key, _)| *key).collect();
        for key in keys {
            self.end_txn_hold(key, out);
            let Some(txn) = self.txns.get_mut(&key) else { continue };
            if txn.may_be_committed() {
                txn.stage = Stage::InDoubt;
                self.resend_txn(key, out);
            } else if txn.stage != Stage::InDoubt {
                self.finish_txn(key, "its lease is over", out);
            }
        }
    }

    /// It did not commit and will not.
    pub(super) fn finish_txn(&mut self, key: IdempotencyKey, why: &'static str, out: &mut Vec<Out>) {
        self.end_txn_hold(key, out);
        if let Some(txn) = self.txns.remove(&key) {
            out.push(Out::NotCommitted { txn: (txn.lease, key), why });
        }
    }

    /// The client does not count on its locks any more.
    pub fn end_txn_hold(&mut self, key: IdempotencyKey, out: &mut Vec<Out>) {
        if let Some(txn) = self.txns.get_mut(&key)
            && std::mem::take(&mut txn.holds)
        {
            out.push(Out::Ends { key, why: HoldEnd::Released });
        }
    }

    pub fn end_txn_holds(&mut self, out: &mut Vec<Out>) {
        let keys: Vec<IdempotencyKey> = self.txns.keys().copied().collect();
        keys.into_iter().for_each(|key| self.end_txn_hold(key, out));
    }

    /// A pause between two steps is over.
    pub fn on_step_timer(&mut self, key: IdempotencyKey, out: &mut Vec<Out>) {
        if let Some(txn) = self.txns.get_mut(&key).filter(|txn| txn.stage == Stage::Thinking) {
            txn.stage = Stage::Asked;
            txn.resent = false;
            self.send_txn(key, out);
        }
    }

    /// The client cancels the transaction, if it still waits to begin.
    pub fn give_up(&mut self, key: IdempotencyKey, out: &mut Vec<Out>) {
        if let Some(txn) = self.txns.get_mut(&key)
            && txn.stage == Stage::Asked
            && txn.next == 0
            && !txn.is_last(0)
        {
            txn.stage = Stage::Aborting;
            self.send_txn(key, out);
        }
    }

    pub(super) fn lease_of_txn(&self, key: IdempotencyKey) -> Option<LeaseId> {
        self.txns.get(&key).map(|txn| txn.lease)
    }

    pub(super) fn on_read_refused(&mut self, tag: u64, refusal: &Refusal, out: &mut Vec<Out>) {
        self.reads.remove(&tag);
        let may_be = match refusal {
            Refusal::Transaction(TxnRefusal::SnapshotNotReached { .. } | TxnRefusal::NoState) => true,
            Refusal::Transaction(TxnRefusal::SnapshotAhead { .. }) => self.disks_forget,
            Refusal::Transaction(TxnRefusal::SnapshotLost { .. }) => self.homes_may_end,
            Refusal::ResourceExhausted { .. } => self.may_be_refused,
            _ => false,
        };
        if !may_be {
            let what = format!("client {} was refused a read: {refusal}", self.number);
            out.push(Out::Fails { kind: FailureKind::Contract, what });
        }
    }

    /// A step is answered.
    pub(super) fn on_stepped(
        &mut self,
        now: Moment,
        (key, call): (IdempotencyKey, TxnCall),
        stepped: &Stepped,
        out: &mut Vec<Out>,
    ) {
        let lease_valid = self.lease.as_ref().is_some_and(|lease| !lease.lapsed && lease.valid_until > now);
        let Some(txn) = self.txns.get_mut(&key) else { return };
        let is_next = call == TxnCall::Step(txn.next) || call == TxnCall::Ask;
        let ends_with = |end| txn.order.end == end && txn.is_last(txn.next) && is_next;
        match &stepped.state {
            TxnState::Committed(vector) if ends_with(Then::Commit) => {
                self.last_commit = (**vector).clone();
                out.push(Out::Committed { vector: vector.clone() });
                self.txns.remove(&key);
            }
            TxnState::Aborted if call == TxnCall::Abort || ends_with(Then::Abort) => {
                self.finish_txn(key, "aborted", out);
            }
            // An answer to a step that was sent twice, or that the client does not wait for any more.
            TxnState::Open if txn.stage != Stage::Asked || !is_next => {}
            TxnState::Open if !txn.is_last(txn.next) => {
                let told = (stepped.snapshot.clone(), stepped.token);
                if txn.told.as_ref().is_some_and(|before| *before != told) {
                    let what = format!("transaction {key} was told {:?}, now {told:?}", txn.told);
                    out.push(Out::Fails { kind: FailureKind::Contract, what });
                }
                let first = txn.told.replace(told).is_none() && !txn.resent && lease_valid;
                txn.next += 1;
                txn.stage = Stage::Thinking;
                out.push(Out::Timer { at: now + txn.order.think, timer: Timer::Step(key) });
                // The server counts from later.
                let over = txn.issued + super::usable(txn.order.max_open);
                if let (true, Some(token)) = (first && over > now, stepped.token) {
                    txn.holds = true;
                    out.push(Out::Timer { at: over, timer: Timer::HoldOver(key) });
                    out.push(Out::HoldsInTxn { key, token, snapshot: stepped.snapshot.clone() });
                }
            }
            _ => {
                let what = format!("client {} got {stepped:?} to {call:?} of {txn:?}", self.number);
                out.push(Out::Fails { kind: FailureKind::Contract, what });
            }
        }
    }
}
