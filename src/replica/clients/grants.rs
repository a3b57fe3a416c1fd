//! Replies to grants, and the end of requests.

use super::client_requests::ClientRequest;
use crate::base::bugs::Bug;
use crate::base::time::{Instant, Now};
use crate::lock_state::{Local, Locks, RequestIndex, State};
use crate::replica::call::{Acquires, CallId, Chosen, Grant, Refusal, Reply};
use crate::replica::clients::{AcquireCalls, Clients};
use crate::replica::config::ReplicaConfig;
use crate::replica::data::Data;
use crate::replica::data::transactions::{Death, TxnId};
use crate::replica::effect::Effect;
use crate::replica::lend::lend;
use crate::replica::outputs::Outputs;
use crate::replica::outputs::output_commit::Output;
use crate::replica::watches::Watches;
use geolock_api::names::{FencingToken, Position, RequestId};

impl AcquireCalls<'_> {
    /// Takes the results of the schedule: tells grants, publishes requests again, and makes an entry of what
    /// has to be in the log. Not inline: most steps have no results.
    #[inline(never)]
    pub(in crate::replica) fn follow_schedule(&mut self) {
        self.tell_grants();
        self.ask_again();
        let ops = self.locks.take_ops();
        if !ops.is_empty() {
            lend!(Writer, self).make_entries(ops);
        }
    }

    /// Gives new grants their tokens and replies to them, at once or when the journal allows
    /// (`docs/algorithm/grants.md#12-when-a-grant-is-answered`).
    pub(in crate::replica) fn tell_grants(&mut self) {
        while let Some(request) = self.locks.next_granted() {
            let token = self.ids.token(self.out);
            let fresh = self.locks.local_requests().set_token(request, token);
            self.out.counts.grants_local += u64::from(!fresh.was_published);
            self.out.counts.grants += 1;
            let client = self.clients.client_requests.get_mut(request);
            let lease = self.clients.leases.get_mut(client.lease);
            debug_assert!(lease.waiting > 0, "request {} of {} has waited", fresh.id, lease.id);
            debug_assert!(!client.is_told, "request {} is granted once", fresh.id);
            lease.waiting -= 1;
            lend!(Requests, self).end_wait(request);
            let ready = self.ready_for(fresh.id, token, fresh.ready);
            if ready <= self.out.output_commit.durable() {
                lend!(Requests, self).time_wait(fresh.since, fresh.was_published);
                lend!(Requests, self).tell_granted(request);
                self.answer_fresh(request, fresh.id, token);
            } else {
                self.out.output_commit.queue(ready, Output::Grant(fresh.id));
            }
        }
    }

    /// Returns the position that the reply to a grant waits for.
    pub(in crate::replica) fn ready_at(&self, request: RequestIndex) -> Position {
        let row = &self.locks.requests()[request];
        let Some(State::Held { token, ready, .. }) = row.state() else {
            return Position::default();
        };
        self.ready_for(row.id, token, ready)
    }

    /// The same, for a grant with this token whose locks are `ready` at that position.
    fn ready_for(&self, id: RequestId, token: FencingToken, ready: Position) -> Position {
        let ready = if self.config.bugs.has(Bug::GrantBeforeData) { Position::default() } else { ready };
        let stamp = self.ids.stamp_of(token);
        // A lease that ended without having reclaimed may have held these locks.
        let ready = ready.max(self.out.unaccounted_end).max(self.ids.lead.position);
        // A lock that seems to have been here all the time may have been used by commits that this disk had
        // lost.
        let regained = if self.config.bugs.has(Bug::RegainedNotAwaited) {
            Position::default()
        } else {
            self.out.regained
        };
        let ready = ready.max(regained);
        let ready = ready.max(self.ids.reservations.position_of(stamp, id.n));
        let last = self.out.position;
        debug_assert!(ready <= last, "the grant of {id} waits for {ready:?}, {last:?} was the last record");
        ready
    }

    /// Replies to the acquire of a granted request, unless the grant has ended or was answered already.
    pub(in crate::replica) fn answer_grant(&mut self, request: RequestIndex) {
        let row = &self.locks.requests()[request];
        if let (id, Some(State::Held { token, .. })) = (row.id, row.state()) {
            self.answer_fresh(request, id, token);
        }
    }

    fn answer_fresh(&mut self, request: RequestIndex, id: RequestId, token: FencingToken) {
        let client = self.clients.client_requests.get_mut(request);
        debug_assert!(client.is_told, "the watches hear of the grant of {id} before its client");
        if let Some(key) = client.txn {
            client.call = None;
            let lease = self.locks.requests()[request]
                .local()
                .expect("clients hold requests of this datacenter")
                .lease;
            return lend!(TxnCalls, self).on_txn_locks(lease, key, id, token);
        }
        if let Some(call) = client.call.take() {
            let grant = Grant { request: id, token, snapshot: self.log.durable().clone() };
            let reply = match self.locks.inspect().chosen(request) {
                None => Reply::Granted(grant),
                Some((chosen, sum, revision)) => {
                    Reply::Chosen(Box::new(Chosen { grant, chosen, sum, revision }))
                }
            };
            self.out.effects.push_back(Effect::Reply { call, reply });
        }
    }

    /// Replies to the acquire of a held request once more: its client lost the reply.
    pub(in crate::replica) fn answer_grant_again(&mut self, request: RequestIndex) {
        let id = self.locks.requests()[request].id;
        let ready = self.ready_at(request);
        if self.out.output_commit.may_emit(ready) {
            self.answer_grant(request);
        } else {
            self.out.output_commit.queue(ready, Output::GrantAgain(id));
        }
    }
}

/// Ends requests of clients, and the transactions that hold locks by them.
pub(in crate::replica) struct Requests<'a> {
    pub(in crate::replica) config: &'a ReplicaConfig,
    pub(in crate::replica) now: Now,
    pub(in crate::replica) out: &'a mut Outputs,
    pub(in crate::replica) locks: &'a mut Locks,
    pub(in crate::replica) clients: &'a mut Clients,
    pub(in crate::replica) data: &'a mut Data,
    pub(in crate::replica) watches: &'a mut Watches,
}

impl Requests<'_> {
    /// Records how long a request waited, when its reply is emitted.
    pub(in crate::replica) fn time_grant(&mut self, request: RequestIndex) {
        let Some(Local { since, publication, .. }) = self.locks.requests()[request].local() else { return };
        self.time_wait(*since, publication.was_published());
    }

    fn time_wait(&mut self, since: Instant, was_published: bool) {
        let waited = self.now.mono.saturating_since(since);
        let Acquires { local: here, remote } = &mut self.clients.acquires;
        if was_published { remote.record(waited) } else { here.record(waited) }
    }

    /// Ends a held request. `position`: the record of that, if there is one.
    pub(in crate::replica) fn end_held(&mut self, request: RequestIndex, position: Position) {
        self.tell_released(request);
        if let Some(call) = self.forget_client_side(request, false) {
            self.out.refuse(call, Refusal::Cancelled);
        }
        self.out.counts.releases += 1;
        self.locks.local_requests().release(request, position, self.now.mono);
    }

    /// Ends a waiting request; its acquire is refused with `why`.
    pub(in crate::replica) fn end_waiting(&mut self, request: RequestIndex, why: Refusal) {
        if let Some(call) = self.end_waiting_silently(request) {
            self.out.refuse(call, why);
        }
    }

    /// Ends a waiting request. Returns the call that waits for a reply, if there is one.
    pub(in crate::replica) fn end_waiting_silently(&mut self, request: RequestIndex) -> Option<CallId> {
        let call = self.forget_client_side(request, true);
        self.locks.local_requests().cancel(request, self.now.mono);
        call
    }

    /// Removes a request from its lease and from the deadlines. Returns its acquire if that is not answered
    /// yet.
    fn forget_client_side(&mut self, request: RequestIndex, waiting: bool) -> Option<CallId> {
        self.end_wait(request);
        let row = &self.locks.requests()[request];
        debug_assert_eq!(waiting, !row.is_held(), "request {} ends as what it is", row.id);
        let ClientRequest { ref mut call, key, txn, names, lease, place, .. } =
            *self.clients.client_requests.get_mut(request);
        let call = call.take();
        self.clients.leases.sub_names(lease, names);
        let lease = self.clients.leases.get_mut(lease);
        let is_of = row.local().is_some_and(|local| local.lease == lease.id);
        debug_assert!(is_of, "request {} ends in its own lease, not in {}", row.id, lease.id);
        if let Some(moved) = lease.requests.remove(place, request) {
            self.clients.client_requests.get_mut(moved).place = place;
        }
        lease.waiting -= usize::from(waiting);
        if let Some(key) = key {
            lease.keys.remove(key);
            lease.finished.finish(key);
        }
        if let Some(key) = txn {
            let lease = lease.id;
            self.txn_lost_locks(TxnId { lease, key }, Death::LocksLost);
        }
        call
    }
}
