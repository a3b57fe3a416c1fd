//! A client's downgrades: it holds a lock shared from the moment at which it sends the call, and states it as
//! shared when it reclaims. The call is sent again on each new session until it is answered.

use crate::replica::call::{Call, Downgrade, IdempotencyKey, Proof, Refusal, Target};
use crate::sim::client::{Client, Order, Out, Pending, Request, State};
use crate::sim::queue::Moment;
use geolock_api::names::{LockName, Mode};

impl Request {
    pub(super) fn new(order: Order, issued: Moment, state: State, shaken: bool) -> Request {
        Request { order, issued, state, shaken, downgrades: Vec::new(), lists: None }
    }
}

impl Client {
    /// Downgrades all exclusive locks of a held request.
    pub fn downgrade(&mut self, key: IdempotencyKey, out: &mut Vec<Out>) {
        let Some(request) = self.requests.get_mut(&key) else { return };
        if !matches!(request.state, State::Held { .. }) {
            return;
        }
        let exclusive = request.order.wants.locks().iter().filter(|(_, mode)| *mode == Mode::Exclusive);
        let locks: Vec<LockName> = exclusive.map(|(lock, _)| lock.clone()).collect();
        for lock in &locks {
            request.order.wants.set_mode(lock, Mode::Shared);
            out.push(Out::Downgrades { key, lock: lock.clone() });
        }
        request.downgrades.extend(locks);
        self.send_downgrades(key, out);
    }

    pub(super) fn send_downgrades(&mut self, key: IdempotencyKey, out: &mut Vec<Out>) {
        let (Some(lease), Some(request)) = (&self.lease, self.requests.get(&key)) else { return };
        let (true, State::Held { id, .. }) = (lease.attached, request.state) else { return };
        let (lease, proof) = (lease.id, Proof::Attached);
        for lock in request.downgrades.clone() {
            let downgrade = Downgrade { lease, proof, target: Target::Id(id), lock };
            self.call(Pending::Downgrade(key), Call::Downgrade(downgrade), out);
        }
    }

    /// The answers come in the order of the calls.
    pub(super) fn on_downgraded(&mut self, key: IdempotencyKey) {
        if let Some(request) = self.requests.get_mut(&key).filter(|request| !request.downgrades.is_empty()) {
            request.downgrades.remove(0);
        }
    }

    /// Handles a refusal: the request is not held at the server. Returns true if that may be.
    pub(super) fn on_downgrade_refused(
        &mut self,
        now: Moment,
        key: IdempotencyKey,
        refusal: &Refusal,
        out: &mut Vec<Out>,
    ) -> bool {
        let Some(Request { state: State::Held { id, .. }, .. }) = self.requests.get(&key) else {
            return true;
        };
        let id = *id;
        match refusal {
            Refusal::NotHeld => self.on_lost(now, &[id], out),
            Refusal::ForceReleased(_) => self.on_force_released(id, out),
            _ => return false,
        }
        true
    }
}
