//! Behaviour that the client library does not have. Clients in other languages prove each call by their
//! secret, do not reclaim, acquire twice at once, continue after a refused commit, or change to another
//! datacenter when their server is gone.

use std::time::Duration;

use crate::replica::call::{Call, IdempotencyKey, Proof};
use crate::sim::client::transactions::{Stage, TxnCall};
use crate::sim::client::{Client, HoldEnd, Out, State, Timer};
use crate::sim::queue::Moment;
use geolock_api::names::{DcId, LeaseId, Secret};

/// Pause before the next attempt after a refused commit.
const COMMITS_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Differences of a client from the client library.
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::sim) struct Behaviour {
    /// Its calls come outside of its stream, each with the secret of the lease, and it gets no notices.
    pub unary: bool,
    /// After a restart of its server it renews without a reclaim, and counts its locks as lost.
    pub silent: bool,
    /// It continues a transaction whose commit was refused.
    pub insists: bool,
    /// When its server is gone it opens a new lease in another datacenter, and counts the old one as lost.
    pub roams: bool,
}

impl Client {
    /// Puts the secret into a call of a client that has no stream. Returns true if it did.
    pub(super) fn prove_by_secret(&self, call: &mut Call) -> bool {
        let secret = |of: LeaseId| self.lease.as_ref().filter(|l| l.id == of).map(|l| l.secret);
        let (lease, proof) = match call {
            Call::KeepAlive { lease, proof }
            | Call::Release { lease, proof, .. }
            | Call::Cancel { lease, proof, .. }
            | Call::Reclaim { lease, proof, .. } => (*lease, proof),
            Call::Acquire(acquire) => (acquire.lease, &mut acquire.proof),
            Call::AcquireEnough(acquire) => (acquire.lease, &mut acquire.proof),
            Call::Amend(amend) => (amend.lease, &mut amend.proof),
            Call::Downgrade(downgrade) => (downgrade.lease, &mut downgrade.proof),
            Call::Begin(begin) => (begin.lease, &mut begin.proof),
            Call::Step(next_step) => (next_step.lease, &mut next_step.proof),
            _ => return false,
        };
        if let (Proof::Attached, Some(secret)) = (*proof, secret(lease)) {
            *proof = Proof::Secret(secret);
        }
        matches!(proof, Proof::Secret(_))
    }

    /// Sends a waiting request a second time while the first call is under way, outside of the stream.
    pub fn send_acquire_beside(&mut self, now: Moment, key: IdempotencyKey, out: &mut Vec<Out>) {
        if self.requests.get(&key).is_none_or(|request| request.state != State::Waiting) {
            return;
        }
        let unary = std::mem::replace(&mut self.manner.behaviour.unary, true);
        self.send_acquire(now, key, out);
        self.manner.behaviour.unary = unary;
    }

    /// Its server restarted, and it does not reclaim.
    pub(super) fn give_up_holds(&mut self, out: &mut Vec<Out>) {
        self.released = None;
        self.unwanted.clear();
        self.requests.retain(|key, request| {
            let is_held = matches!(request.state, State::Held { .. });
            if is_held {
                out.push(Out::Ends { key: *key, why: HoldEnd::Told });
            }
            !is_held
        });
    }

    /// Handles a refused commit that left the transaction as it was: the client tries again later, in every
    /// other case without the refused changes. Returns true if it does.
    pub(super) fn insist(
        &mut self,
        now: Moment,
        key: IdempotencyKey,
        call: TxnCall,
        out: &mut Vec<Out>,
    ) -> bool {
        if !self.manner.behaviour.insists {
            return false;
        }
        let Some(txn) = self.txns.get_mut(&key) else { return false };
        let next = txn.next;
        if txn.stage != Stage::Asked || call != TxnCall::Step(next) || !txn.ends_by_commit() {
            return false;
        }
        if key.is_multiple_of(2) {
            txn.order.steps[next].changes.clear();
            out.push(Out::Intends { key });
        }
        txn.stage = Stage::Thinking;
        out.push(Out::Timer { at: now + COMMITS_AGAIN_AFTER, timer: Timer::Step(key) });
        true
    }

    /// Returns true if it would change its datacenter now: not while it has to know the outcome of a
    /// transaction.
    pub fn may_roam(&self) -> bool {
        self.manner.behaviour.roams && !self.dead && self.session.is_none() && self.txns.is_empty()
    }

    /// It counts its lease there as lost, and changes to `to`.
    pub fn roam(&mut self, to: DcId, out: &mut Vec<Out>) {
        self.forget_lease(HoldEnd::Expired, out);
        self.dc = to;
    }

    /// The server is overloaded: the client acquires the same later, under another key.
    pub(super) fn ask_later(&mut self, at: Moment, key: IdempotencyKey, out: &mut Vec<Out>) {
        if let Some(request) = self.requests.remove(&key) {
            self.deferred.insert(key, request.order);
            out.push(Out::Over { key });
            out.push(Out::Timer { at, timer: Timer::AskAgain(key) });
        }
    }

    /// See [`Client::ask_later`].
    pub fn ask_again(&mut self, now: Moment, key: IdempotencyKey, out: &mut Vec<Out>) {
        if let Some(order) = self.deferred.remove(&key).filter(|_| self.lease.is_some() && !self.retired) {
            self.acquire(now, order, out);
        }
    }

    /// Returns the number of refused orders that it will send again.
    pub fn deferred(&self) -> usize {
        self.deferred.len()
    }

    /// Returns the proof for the current lease: its secret if the client has no stream.
    pub(super) fn proof(&self) -> Proof {
        let secret = |secret: Secret| {
            if self.manner.behaviour.unary { Proof::Secret(secret) } else { Proof::Attached }
        };
        self.lease.as_ref().map_or(Proof::Attached, |lease| secret(lease.secret))
    }
}
