//! From a grant inside to an answer outside, and the end of requests.

use super::Replica;
use super::call::{Acquires, Grant, Refusal, Reply};
use super::effect::Effect;
use super::gate::Gated;
use super::tickets::Ticket;
use super::transactions::{Death, TxnId};
use crate::lock_state::{RequestIndex, State};
use crate::names::{FencingToken, Position, RequestId};

impl Replica {
    /// Gives fresh grants their tokens and answers them, at once or when the journal allows.
    pub(super) fn tell_grants(&mut self) {
        for request in self.locks.take_granted() {
            let token = FencingToken(self.stamp().raw());
            self.locks.set_token(request, token);
            let id = self.locks.get(request).id;
            if let Some(local) = self.locks.get(request).local() {
                self.counts.grants_local += u64::from(!local.was_published);
                if let Some(lease) = self.leases.find(local.lease) {
                    self.leases.get_mut(lease).waiting -= 1;
                }
            }
            let ticket = self.tickets.get_mut(request);
            if let Some(until) = ticket.wait_until.take() {
                self.waits.remove(until, request);
            }
            self.counts.grants += 1;
            let ready = self.ready_at(request);
            if ready <= self.gate.durable() {
                self.time_grant(request);
            }
            self.after(ready, Gated::Grant(id));
        }
    }

    /// When a grant may be told.
    pub(super) fn ready_at(&self, request: RequestIndex) -> Position {
        let row = self.locks.get(request);
        let Some(State::Held { token, ready, .. }) = self.locks.state(request) else {
            return Position::default();
        };
        #[cfg(test)]
        let ready =
            if self.mutated(crate::sim::Mutation::GrantBeforeData) { Position::default() } else { ready };
        let stamp = crate::time::Timestamp::from_raw(token.0);
        ready.max(self.bounds.position_of(stamp, row.id.n))
    }

    /// Counts how long a request waited for its grant, when that is told.
    pub(super) fn time_grant(&mut self, request: RequestIndex) {
        let Some(local) = self.locks.get(request).local() else { return };
        let waited = self.now.mono.saturating_since(local.since);
        let Acquires { local: here, remote } = &mut self.acquires;
        if local.was_published { remote.record(waited) } else { here.record(waited) }
    }

    /// Answers the acquire of a granted request, unless the grant is over or was answered already.
    pub(super) fn answer_grant(&mut self, id: RequestId) {
        let Some(request) = self.locks.find(id) else { return };
        let Some(State::Held { token, .. }) = self.locks.state(request) else { return };
        if let Some(key) = self.tickets.get_mut(request).txn {
            self.tickets.get_mut(request).call = None;
            let lease =
                self.locks.get(request).local().expect("clients hold requests of this datacenter").lease;
            return self.on_txn_locks(lease, key, id, token);
        }
        if let Some(call) = self.tickets.get_mut(request).call.take() {
            let grant = Grant { request: id, token, snapshot: self.log.durable().clone() };
            self.effects.push_back(Effect::Reply { call, reply: Reply::Granted(grant) });
        }
    }

    /// Answers the acquire of a held request once more: its client lost the answer.
    pub(super) fn answer_grant_again(&mut self, request: RequestIndex) {
        let id = self.locks.get(request).id;
        self.after(self.ready_at(request), Gated::GrantAgain(id));
    }

    /// Ends a held request; `position` as in [`crate::lock_state::Locks::release`].
    pub(super) fn end_held(&mut self, request: RequestIndex, position: Position) {
        self.tell_released(request);
        let ticket = self.forget_client_side(request);
        if let Some(call) = ticket.call {
            self.refuse(call, Refusal::Cancelled);
        }
        self.counts.releases += 1;
        self.locks.release(request, position, self.now.mono);
    }

    /// Ends a waiting request; its acquire is answered with `why`.
    pub(super) fn end_waiting(&mut self, request: RequestIndex, why: Refusal) {
        let ticket = self.end_waiting_silently(request);
        if let Some(call) = ticket.call {
            self.refuse(call, why);
        }
    }

    /// Ends a waiting request; the ticket says whom to answer.
    pub(super) fn end_waiting_silently(&mut self, request: RequestIndex) -> Ticket {
        let ticket = self.forget_client_side(request);
        self.locks.cancel(request, self.now.mono);
        ticket
    }

    /// Takes a request out of its lease and of the deadlines.
    fn forget_client_side(&mut self, request: RequestIndex) -> Ticket {
        let ticket = self.tickets.take(request);
        if let Some(until) = ticket.wait_until {
            self.waits.remove(until, request);
        }
        let row = self.locks.get(request);
        let local = row.local().expect("clients have requests of this datacenter only");
        let lease = self.leases.find(local.lease).expect("a lease ends after its requests");
        let waiting = local.state == State::Waiting;
        let lease = self.leases.get_mut(lease);
        lease.requests.remove(&request);
        lease.waiting -= usize::from(waiting);
        if let Some(key) = ticket.key {
            lease.keys.remove(&key);
        }
        if let Some(key) = ticket.txn {
            let lease = lease.id;
            self.txn_lost_locks(TxnId { lease, key }, Death::LocksLost);
        }
        ticket
    }
}
