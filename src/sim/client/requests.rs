//! A client's calls about its requests for locks, for the first time and again.

use std::sync::Arc;
use std::time::Duration;

use crate::causal_log::Wants;
use crate::replica::call::{
    Acquire, AcquireEnough, AnyOf, Call, IdempotencyKey, LockRequest, Proof, Reclaim, Target, Wait,
};
use crate::sim::client::amendments::Lists;
use crate::sim::client::{Client, HoldEnd, Out, Pending, transactions};
use crate::sim::queue::Moment;
use geolock_api::names::{FencingToken, LockName, RequestId};

/// A wish for locks.
#[derive(Clone, Debug)]
pub(in crate::sim) struct Order {
    pub wants: Wants,
    pub wait: Wait,
    /// Time after the grant at which it releases by itself.
    pub hold: Option<Duration>,
}

#[derive(Clone, Debug)]
pub(in crate::sim) struct Request {
    pub order: Order,
    pub issued: Moment,
    pub state: State,
    /// The server may not know it any more: it restarted, or the lease ran out.
    pub(super) shaken: bool,
    /// Locks whose downgrade was not answered yet.
    pub(super) downgrades: Vec<LockName>,
    /// It wants enough of these locks; `order` has all of them until it is granted some.
    pub lists: Option<Lists>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sim) enum State {
    Waiting,
    Held {
        id: RequestId,
        token: FencingToken,
    },
    /// Released or cancelled; the answer is outstanding.
    Ending {
        id: Option<RequestId>,
    },
}

impl Client {
    /// Acquires these locks. The call is sent at once if the lease is attached, else as soon as it is.
    pub fn acquire(&mut self, now: Moment, order: Order, out: &mut Vec<Out>) -> IdempotencyKey {
        let key = self.next_key;
        self.next_key += 1;
        self.requests.insert(key, Request::new(order, now, State::Waiting, self.is_lapsed()));
        self.send_acquire(now, key, out);
        key
    }

    /// Acquires enough of these locks.
    pub fn acquire_enough(
        &mut self,
        now: Moment,
        (order, of): (Order, Arc<AnyOf>),
        out: &mut Vec<Out>,
    ) -> IdempotencyKey {
        let key = self.next_key;
        self.next_key += 1;
        let request = Request::new(order, now, State::Waiting, self.is_lapsed());
        self.requests.insert(key, Request { lists: Some(Lists::new(of)), ..request });
        self.send_acquire(now, key, out);
        key
    }

    /// Sends the call of a waiting request, perhaps again.
    pub fn send_acquire(&mut self, now: Moment, key: IdempotencyKey, out: &mut Vec<Out>) {
        if self.requests.get(&key).is_some_and(|request| request.state == State::Waiting) {
            self.call_acquire(now, key, out);
            self.send_amendment(key, out);
        }
    }

    /// Acquires locks and cancels at once, as a client whose calls have no order among each other: the cancel
    /// overtakes the acquire.
    pub fn acquire_and_cancel(&mut self, now: Moment, order: Order, out: &mut Vec<Out>) {
        if !self.is_ready() {
            return;
        }
        let key = self.next_key;
        self.next_key += 1;
        let state = State::Ending { id: None };
        self.requests.insert(key, Request::new(order, now, state, self.is_lapsed()));
        self.send_end(key, out);
        self.call_acquire(now, key, out);
    }

    fn call_acquire(&mut self, now: Moment, key: IdempotencyKey, out: &mut Vec<Out>) {
        let (Some(lease), Some(request)) = (&self.lease, self.requests.get(&key)) else { return };
        if !lease.attached {
            return;
        }
        let wait = match request.order.wait {
            Wait::AtMost(limit) => Wait::AtMost(limit.saturating_sub(now.since(request.issued))),
            other => other,
        };
        if let Some(lists) = &request.lists {
            let (lease, label, proof) = (lease.id, self.label.clone(), Proof::Attached);
            let (of, revision) = (Arc::clone(lists.known().0), lists.known().1);
            let acquire = AcquireEnough { lease, proof, key: Some(key), of, revision, wait, label };
            return self.call(Pending::Acquire(key), Call::AcquireEnough(Box::new(acquire)), out);
        }
        let acquire = Acquire {
            lease: lease.id,
            proof: Proof::Attached,
            key: Some(key),
            request: LockRequest { wants: request.order.wants.clone(), wait, label: self.label.clone() },
        };
        self.call(Pending::Acquire(key), Call::Acquire(acquire), out);
    }

    /// Releases a held request, cancels a waiting one. The client does not hold it from here on.
    pub fn end(&mut self, key: IdempotencyKey, out: &mut Vec<Out>) {
        let Some(request) = self.requests.get_mut(&key) else { return };
        match request.state {
            State::Waiting => request.state = State::Ending { id: None },
            State::Held { id, token } => {
                request.state = State::Ending { id: Some(id) };
                if self.manner.forgetful {
                    let (wants, label) = (request.order.wants.clone(), self.label.clone());
                    self.released = Some(Reclaim { request: id, key: None, wants, token, label });
                }
                out.push(Out::Ends { key, why: HoldEnd::Released });
            }
            State::Ending { .. } => return,
        }
        self.send_end(key, out);
    }

    pub(super) fn send_end(&mut self, key: IdempotencyKey, out: &mut Vec<Out>) {
        let (Some(lease), Some(request)) = (&self.lease, self.requests.get(&key)) else { return };
        let (true, State::Ending { id }) = (lease.attached, request.state) else { return };
        let (lease, proof) = (lease.id, Proof::Attached);
        let call = match id {
            Some(id) => Call::Release { lease, proof, target: Target::Id(id) },
            None => Call::Cancel { lease, proof, target: Target::Key(key) },
        };
        self.call(Pending::End(key), call, out);
    }

    /// Closes the lease for good, if it is attached.
    pub fn retire(&mut self, out: &mut Vec<Out>) {
        let Some(lease) = self.lease.as_ref().filter(|lease| lease.attached) else { return };
        self.retired = true;
        let (id, valid_until) = (lease.id, lease.valid_until);
        let call = Call::CloseLease { lease: id, proof: self.proof() };
        self.forget_lease(HoldEnd::Released, out);
        self.call(Pending::Close { lease: id, valid_until }, call, out);
    }

    /// Sends everything that has to be repeated on a new session.
    pub(super) fn resend(&mut self, now: Moment, out: &mut Vec<Out>) {
        // In the order of their keys: the server takes a key that is not above the last one for one that is
        // over.
        let mut keys: Vec<IdempotencyKey> = self.requests.keys().chain(self.txns.keys()).copied().collect();
        keys.sort_unstable();
        for key in keys {
            if self.txns.get(&key).is_some_and(|txn| txn.stage != transactions::Stage::InDoubt) {
                self.resend_txn(key, out);
            }
            self.send_downgrades(key, out);
            self.send_end(key, out);
            let given_up = self.requests.get(&key).is_some_and(|request| {
                let limit = match request.order.wait {
                    Wait::Try => Duration::ZERO,
                    Wait::AtMost(limit) => limit,
                    Wait::Forever => return false,
                };
                request.state == State::Waiting && now.since(request.issued) > limit
            });
            match given_up {
                true => self.end(key, out),
                false => self.send_acquire(now, key, out),
            }
        }
    }
}
