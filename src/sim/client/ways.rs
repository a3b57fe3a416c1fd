//! What clients do that the client library does not: those in other languages prove each call by their secret, do not
//! reclaim, ask twice at once, go on after a refused commit, or go elsewhere when their server is gone.

use std::time::Duration;

use crate::names::{DcId, LeaseId, Secret};
use crate::replica::call::{Call, ClientKey, Proof};
use crate::sim::client::transactions::{Stage, TxnCall};
use crate::sim::client::{Client, HoldEnd, Out, State, Timer};
use crate::sim::queue::Moment;

/// After a refused commit the next attempt comes that much later.
const COMMITS_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// How a client differs from the client library.
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::sim) struct Ways {
    /// Its calls come outside of its stream, each with the secret of the lease, and it hears no notices.
    pub unary: bool,
    /// After a restart of its server it renews and says nothing of what it held, which it counts as lost.
    pub silent: bool,
    /// It goes on with a transaction whose commit was refused.
    pub insists: bool,
    /// When its server is gone it takes a new lease in another datacenter, and counts the old one as lost.
    pub roams: bool,
}

impl Client {
    /// Puts the secret into a call of a client that has no stream. Whether it did.
    pub(super) fn prove_by_secret(&self, call: &mut Call) -> bool {
        let secret = |of: LeaseId| self.lease.as_ref().filter(|l| l.id == of).map(|l| l.secret);
        let (lease, proof) = match call {
            Call::KeepAlive { lease, proof }
            | Call::Release { lease, proof, .. }
            | Call::Cancel { lease, proof, .. }
            | Call::Reclaim { lease, proof, .. } => (*lease, proof),
            Call::Acquire(acquire) => (acquire.lease, &mut acquire.proof),
            Call::Begin(begin) => (begin.lease, &mut begin.proof),
            Call::GoOn(go_on) => (go_on.lease, &mut go_on.proof),
            _ => return false,
        };
        if let (Proof::Attached, Some(secret)) = (*proof, secret(lease)) {
            *proof = Proof::Secret(secret);
        }
        matches!(proof, Proof::Secret(_))
    }

    /// Sends a waiting request a second time while the first call is on its way, beside the stream.
    pub fn send_acquire_beside(&mut self, now: Moment, key: ClientKey, out: &mut Vec<Out>) {
        if self.requests.get(&key).is_none_or(|request| request.state != State::Waiting) {
            return;
        }
        let unary = std::mem::replace(&mut self.manner.ways.unary, true);
        self.send_acquire(now, key, out);
        self.manner.ways.unary = unary;
    }

    /// Its server restarted, and it does not say what it held.
    pub(super) fn give_up_holds(&mut self, out: &mut Vec<Out>) {
        self.released = None;
        self.requests.retain(|key, request| {
            let is_held = matches!(request.state, State::Held { .. });
            if is_held {
                out.push(Out::Ends { key: *key, why: HoldEnd::Told });
            }
            !is_held
        });
    }

    /// A commit was refused and the transaction is as it was: it tries again later, every other one without the changes that
    /// were refused. Whether it does.
    pub(super) fn insist(&mut self, now: Moment, key: ClientKey, call: TxnCall, out: &mut Vec<Out>) -> bool {
        if !self.manner.ways.insists {
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

    /// Whether it would go to another datacenter now: not while it has to know how a transaction ended.
    pub fn may_roam(&self) -> bool {
        self.manner.ways.roams && !self.dead && self.session.is_none() && self.txns.is_empty()
    }

    /// It counts its lease there as lost, and goes on elsewhere.
    pub fn roam(&mut self, to: DcId, out: &mut Vec<Out>) {
        self.forget_lease(HoldEnd::Lapsed, out);
        self.dc = to;
    }

    /// The server has too much to do: the same is asked for later, under another key.
    pub(super) fn ask_later(&mut self, at: Moment, key: ClientKey, out: &mut Vec<Out>) {
        if let Some(request) = self.requests.remove(&key) {
            self.put_off.insert(key, request.order);
            out.push(Out::Over { key });
            out.push(Out::Timer { at, timer: Timer::AskAgain(key) });
        }
    }

    /// See [`Client::ask_later`].
    pub fn ask_again(&mut self, now: Moment, key: ClientKey, out: &mut Vec<Out>) {
        if let Some(order) = self.put_off.remove(&key).filter(|_| self.lease.is_some() && !self.retired) {
            self.acquire(now, order, out);
        }
    }

    /// What it was refused and will ask for again.
    pub fn put_off(&self) -> usize {
        self.put_off.len()
    }

    /// How it proves that the lease is its own, where the lease is not asked.
    pub(super) fn proof(&self) -> Proof {
        let secret =
            |secret: Secret| if self.manner.ways.unary { Proof::Secret(secret) } else { Proof::Attached };
        self.lease.as_ref().map_or(Proof::Attached, |lease| secret(lease.secret))
    }
}
