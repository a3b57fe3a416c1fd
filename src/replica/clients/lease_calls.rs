//! Leases: opened, renewed, ended, and reclaimed after a restart.

use crate::base::bugs::Bug;
use std::time::Duration;

use super::client_requests::{ClientRequest, names_weight};
use super::deferral::knows_earlier_runs;
use super::grants::Requests;
use crate::base::time::{DEFAULT_LEASE_TTL, Instant, Now};
use crate::base::work;
use crate::causal_log::Log;
use crate::leases::{ClientId, LeaseError, LeaseIndex, OnDisconnect, Proof, SessionId};
use crate::lock_state::{HeldRequest, Locks, NewRequest};
use crate::replica::call::{CallId, Limit, Reclaim, Refusal, Reply};
use crate::replica::clients::{Clients, admit_load};
use crate::replica::config::{MIN_LEASE_TTL, ReplicaConfig};
use crate::replica::data::Data;
use crate::replica::effect::{Effect, Notice, Report};
use crate::replica::ids::Ids;
use crate::replica::lend::lend;
use crate::replica::lifecycle::Lifecycle;
use crate::replica::outputs::Outputs;
use crate::replica::record::{LeaseRecord, Record};
use crate::replica::watches::Watches;
use geolock_api::names::{LeaseId, LockName, Position, RequestId, Secret};

/// Leases and their requests that one step ends because their time is over, approximately: one lease always
/// ends as a whole. The rest follow in the next steps. Until then they keep their locks, the grace period
/// waits for those that may hold any, and no client can use them (`docs/algorithm/grants.md#14-leases`).
const ENDED_PER_STEP: usize = 256;
/// Most leases that one step examines for that. After a restart all expire at one instant, and most were
/// renewed since.
const EXPIRIES_PER_STEP: usize = 4_096;

impl From<LeaseError> for Refusal {
    #[cold]
    fn from(error: LeaseError) -> Refusal {
        match error {
            LeaseError::Unknown(lease) => Refusal::UnknownLease(lease),
            LeaseError::Foreign { lease, dc } => Refusal::ForeignLease { lease, dc },
            LeaseError::WrongSecret(lease) => Refusal::WrongSecret(lease),
            LeaseError::NotAttached(lease) => Refusal::NotAttached(lease),
        }
    }
}

/// Calls on leases, and the end of leases.
pub(in crate::replica) struct LeaseCalls<'a> {
    pub(in crate::replica) config: &'a ReplicaConfig,
    pub(in crate::replica) now: Now,
    pub(in crate::replica) out: &'a mut Outputs,
    pub(in crate::replica) ids: &'a mut Ids,
    pub(in crate::replica) log: &'a Log,
    pub(in crate::replica) locks: &'a mut Locks,
    pub(in crate::replica) lifecycle: &'a mut Lifecycle,
    pub(in crate::replica) clients: &'a mut Clients,
    pub(in crate::replica) data: &'a mut Data,
    pub(in crate::replica) watches: &'a mut Watches,
}

impl LeaseCalls<'_> {
    pub(in crate::replica) fn on_open_lease(
        &mut self,
        call: CallId,
        client: ClientId,
        (secret, ttl, on_disconnect): (Secret, Option<Duration>, OnDisconnect),
    ) {
        let (min, max) = (MIN_LEASE_TTL, self.longest_lease());
        let ttl = ttl.unwrap_or(DEFAULT_LEASE_TTL.min(max));
        if ttl < min || ttl > max {
            return self.out.refuse(call, Refusal::TtlOutOfRange { asked: ttl, min, max });
        }
        if self.lifecycle.admission.is_draining() {
            return self.out.refuse(call, Refusal::Draining);
        }
        if let Err(refusal) = self
            .lifecycle
            .stalls
            .admit_write()
            .and_then(|()| self.admit_backed())
            .and_then(|()| admit_load(self.lifecycle.admission.load(), self.out.counts.calls_shed))
        {
            return self.out.refuse(call, refusal);
        }
        if self.clients.leases.len() >= self.config.local.max_leases {
            let retry_after = Duration::from_secs(1);
            return self.out.refuse(call, Refusal::ResourceExhausted { limit: Limit::Leases, retry_after });
        }
        let lease = LeaseId::new(self.config.dc, self.ids.next_number(self.out));
        let now = self.config.lease_time(self.now);
        let record = LeaseRecord { lease, secret, ttl, on_disconnect };
        let index = self.clients.leases.open(record, client, now);
        self.lifecycle.member_lease.note_told(now + ttl);
        self.clients.leases.attach(index, call.session);
        let position = self.out.persist(Record::LeaseOpened(record));
        let reply = Reply::LeaseOpened { lease, ttl };
        self.out.emit_when_durable(position, Effect::Reply { call, reply });
    }

    pub(in crate::replica) fn on_attach_lease(
        &mut self,
        call: CallId,
        client: ClientId,
        lease: LeaseId,
        secret: Secret,
    ) {
        match self.clients.authorise(self.config.lease_time(self.now), lease, Proof::Secret(secret), call) {
            Ok(index) if self.lifecycle.admission.has_ended() => self.end_of_ended(call, index),
            Ok(index) => {
                let Some(ttl) = self.renew(index, knows_earlier_runs(self.lifecycle, self.log)) else {
                    return self.out.refuse(call, self.not_backed());
                };
                self.clients.leases.adopt(index, client);
                self.clients.leases.attach(index, call.session);
                let reclaim = self.clients.leases.is_in_grace(index);
                self.out.reply(call, Reply::LeaseAttached { ttl, reclaim });
                self.tell_forced_out(lease, call.session);
            }
            Err(refusal) => self.out.refuse(call, refusal),
        }
    }

    pub(in crate::replica) fn on_keep_alive(&mut self, call: CallId, lease: LeaseId, proof: Proof) {
        match self.clients.authorise(self.config.lease_time(self.now), lease, proof, call) {
            Ok(index) if self.lifecycle.admission.has_ended() => self.end_of_ended(call, index),
            Ok(index) => {
                let can_be_judged = knows_earlier_runs(self.lifecycle, self.log);
                let can_be_judged = can_be_judged && !self.config.bugs.has(Bug::GraceRenewed);
                match self.renew(index, can_be_judged) {
                    Some(ttl) => self.out.reply(call, Reply::Renewed { ttl }),
                    None => self.out.refuse(call, self.not_backed()),
                }
            }
            Err(refusal) => self.out.refuse(call, refusal),
        }
    }

    /// Renews a lease, unless this member may be evicted: then the client gets what is left of the time that
    /// it was told before; `None` if it was told none in this run, or the clock has stood still since.
    /// Returns the time for which the lease is valid.
    fn renew(&mut self, index: LeaseIndex, can_be_judged: bool) -> Option<Duration> {
        let (now, most) = (self.config.lease_time(self.now), self.longest_lease());
        let backing = &self.lifecycle.member_lease;
        // A client may hold a lock under it that others were granted since. A new lease holds none.
        let may_be_lost =
            backing.may_be_over() && self.clients.deferred.is_of_before(self.clients.leases.get(index).id);
        if (backing.is_backed() && !may_be_lost) || self.config.bugs.has(Bug::RenewsUnbacked) {
            let valid_for = self.clients.leases.renew(index, can_be_judged, most, now);
            self.lifecycle.member_lease.note_told(now + valid_for);
            return Some(valid_for);
        }
        let lease = self.clients.leases.get(index);
        let may_tell = lease.is_told && self.lifecycle.member_lease.may_tell_rest();
        may_tell.then(|| lease.expires.saturating_since(now))
    }

    /// Ends a lease, which a client of a server that is no member any more wants to keep.
    fn end_of_ended(&mut self, call: CallId, index: LeaseIndex) {
        let lease = self.clients.leases.get(index).id;
        self.take_lease_away(index);
        self.out.refuse(call, Refusal::UnknownLease(lease));
    }

    /// If this server is no member any more, ends the leases of its clients: others may be granted what they
    /// hold.
    fn end_all_leases(&mut self) {
        let (mut ended, mut looks) = (0, EXPIRIES_PER_STEP);
        while ended < ENDED_PER_STEP
            && self.lifecycle.admission.has_ended()
            && let Some(index) = self.clients.leases.next_expired(Instant::FAR_FUTURE, &mut looks)
        {
            ended += 1 + self.clients.leases.get(index).requests.len();
            self.take_lease_away(index);
        }
    }

    fn longest_lease(&self) -> Duration {
        self.lifecycle.member_lease.longest_lease(self.config.local.max_lease_ttl)
    }

    fn admit_backed(&self) -> Result<(), Refusal> {
        let is_backed = self.lifecycle.member_lease.is_backed() || self.config.bugs.has(Bug::RenewsUnbacked);
        if is_backed { Ok(()) } else { Err(self.not_backed()) }
    }

    fn not_backed(&self) -> Refusal {
        Refusal::NotBacked { retry_after: self.config.agreed.heartbeat }
    }

    pub(in crate::replica) fn on_close_lease(&mut self, call: CallId, lease: LeaseId, proof: Proof) {
        match self.clients.authorise(self.config.lease_time(self.now), lease, proof, call) {
            Ok(index) => {
                let position = self.end_lease(index);
                self.out.emit_when_durable(position, Effect::Reply { call, reply: Reply::LeaseClosed });
            }
            Err(refusal) => self.out.refuse(call, refusal),
        }
    }

    pub(in crate::replica) fn on_session_closed(&mut self, session: SessionId) {
        self.clients.deferred.close_session(session);
        self.watches.close_session(session);
        for index in self.clients.leases.close_session(session) {
            self.end_lease(index);
        }
    }

    /// Ends a lease with all its requests. Its end is durable before a conflicting grant of its locks is
    /// answered.
    pub(in crate::replica) fn end_lease(&mut self, index: LeaseIndex) -> Position {
        let lease = self.clients.leases.get(index).id;
        let position = self.out.persist(Record::LeaseEnded { lease });
        let ready =
            if self.config.bugs.has(Bug::LeaseEndNotDurable) { Position::default() } else { position };
        if self.clients.leases.get(index).unaccounted {
            self.out.unaccounted_end = self.out.unaccounted_end.max(ready);
        }
        lend!(Requests, self).end_transactions_of(lease);
        let secret = self.clients.secret_while_joining(index, self.lifecycle);
        self.data.transactions.outcomes.end_lease(lease, secret, self.now.mono);
        work::count(1 + self.clients.leases.get(index).requests.len());
        for request in self.clients.leases.get(index).requests.sorted() {
            if self.locks.requests()[request].is_held() {
                // It was granted, and the reply waited for the journal.
                if let Some(call) = self.clients.client_requests.get_mut(request).call.take() {
                    self.out.refuse(call, Refusal::LeaseEnded);
                }
                lend!(Requests, self).end_held(request, ready);
            } else {
                lend!(Requests, self).end_waiting(request, Refusal::LeaseEnded);
            }
        }
        self.drop_deferred_reclaim(lease, Refusal::UnknownLease(lease));
        self.clients.deferred.on_reclaimed(lease);
        self.clients.leases.end(index);
        self.lifecycle.on_leases_in_grace(self.clients.leases.in_grace());
        self.clients.audit.end_lease(lease);
        position
    }

    pub(in crate::replica) fn expire_leases(&mut self) {
        self.end_all_leases();
        let now = self.config.lease_time(self.now);
        let (mut ended, mut looks) = (0, EXPIRIES_PER_STEP);
        while ended < ENDED_PER_STEP
            && let Some(index) = self.clients.leases.next_expired(now, &mut looks)
        {
            if self.config.bugs.has(Bug::AbandonedLeaseStays) && self.clients.leases.is_in_grace(index) {
                self.clients.leases.renew(index, false, self.longest_lease(), now);
                continue;
            }
            let row = self.clients.leases.get(index);
            let (lease, waiting) = (row.id, row.waiting);
            assert!(row.expires <= now, "lease {lease} lives until {:?}", row.expires);
            let held = row.requests.len() - waiting;
            ended += 1 + row.requests.len();
            self.out.counts.leases_expired += 1;
            self.out.report(Report::LeaseExpired { lease, held, waiting });
            self.take_lease_away(index);
        }
    }

    /// Ends a lease without a call of its client, and notifies the client when the end is durable.
    pub(in crate::replica) fn take_lease_away(&mut self, index: LeaseIndex) -> Position {
        let row = self.clients.leases.get(index);
        let (lease, session) = (row.id, row.session);
        let position = self.end_lease(index);
        if let Some(session) = session {
            let effect = Effect::Notify { session, notice: Notice::LeaseEnded { lease } };
            self.out.emit_when_durable(position, effect);
        }
        position
    }

    pub(in crate::replica) fn on_reclaim(
        &mut self,
        call: CallId,
        client: ClientId,
        (lease, proof): (LeaseId, Proof),
        held: Vec<Reclaim>,
    ) {
        let index = match self.clients.authorise(self.config.lease_time(self.now), lease, proof, call) {
            Ok(index) => index,
            Err(refusal) => return self.out.refuse(call, refusal),
        };
        self.clients.leases.adopt(index, client);
        self.drop_deferred_reclaim(lease, Refusal::NoReclaimExpected(lease));
        let expected = self.clients.leases.is_in_grace(index);
        let expected = expected || self.config.bugs.has(Bug::StaleReclaim);
        if !expected {
            self.out.refuse(call, Refusal::NoReclaimExpected(lease));
        } else if knows_earlier_runs(self.lifecycle, self.log) {
            self.reclaim(call, index, held);
        } else {
            self.defer_reclaim(call, lease, held);
        }
    }

    pub(in crate::replica) fn reclaim(&mut self, call: CallId, index: LeaseIndex, held: Vec<Reclaim>) {
        let is_judged = knows_earlier_runs(self.lifecycle, self.log);
        assert!(is_judged, "locks are reclaimed when this datacenter knows its own log");
        let was_awaited = self.clients.leases.end_grace(index);
        let was_awaited = was_awaited || self.config.bugs.has(Bug::StaleReclaim);
        assert!(was_awaited, "lease {} reclaims once", self.clients.leases.get(index).id);
        self.clients.deferred.on_reclaimed(self.clients.leases.get(index).id);
        self.lifecycle.on_leases_in_grace(self.clients.leases.in_grace());
        self.clients.leases.get_mut(index).unaccounted = false;
        let _valid_for = self.renew(index, true);
        let (mut kept, mut lost) = (Vec::new(), Vec::new());
        for reclaim in held {
            let list = if self.reclaim_one(index, &reclaim) { &mut kept } else { &mut lost };
            list.push(reclaim.request);
        }
        self.out.reply(call, Reply::Reclaimed { kept, lost });
    }

    fn reclaim_one(&mut self, index: LeaseIndex, reclaim: &Reclaim) -> bool {
        let lease = self.clients.leases.get(index);
        let id = reclaim.request;
        // No reading above the reservation and no number at or above the next one was ever used.
        let known = id.dc == self.config.dc && id.n > lease.id.n() && id.n < self.ids.next_n;
        let over =
            self.locks.requests().find(id).is_some() || self.clients.audit.was_forced_out(lease.id, id);
        let token = self.ids.stamp_of(reclaim.token);
        let is_taken = |key| lease.keys.get(key).is_some() || lease.finished.is_over_by_itself(key);
        let key_taken = reclaim.key.is_some_and(is_taken);
        let has_homes = self
            .lifecycle
            .versions
            .admit_homes(
                self.config,
                self.locks.owners().homes(),
                reclaim.wants.locks().iter().map(|(lock, _)| lock),
            )
            .is_ok();
        if !known || !has_homes || key_taken || over || token > self.ids.reservations.recorded().clock {
            return false;
        }
        let request =
            NewRequest { id, at: token, wants: &reclaim.wants, lease: lease.id, label: &reclaim.label };
        let held = HeldRequest { request, token: reclaim.token };
        let Some(rivals) = self.locks.local_requests().conflicts_of(&held, self.now.mono) else {
            return false;
        };
        for rival in rivals {
            lend!(Requests, self).lose(rival);
        }
        // A rolled-back disk does not know that its clock was ever that far.
        self.ids.clock.observe(token);
        let request = self.locks.local_requests().reclaim(&held, self.now.mono);
        self.clients.note_client_side(
            index,
            request,
            ClientRequest {
                key: reclaim.key,
                names: names_weight(&reclaim.wants),
                ..ClientRequest::default()
            },
        );
        lend!(Requests, self).tell_granted(request);
        true
    }
}

impl Requests<'_> {
    /// The lock was not here when its holders were granted it or reclaimed it: they lose it.
    pub(in crate::replica) fn take_from_holders(&mut self, lock: &LockName) {
        let holders = self.locks.inspect().holders(lock, self.config.local.max_held);
        let ids: Vec<RequestId> =
            holders.iter().map(|holder| self.locks.requests()[holder.request].id).collect();
        work::count(holders.len());
        ids.into_iter().for_each(|id| self.lose(id));
    }

    /// A reclaimed request conflicts with one that has a higher token, or its parts were not here: it loses
    /// its locks.
    fn lose(&mut self, request: RequestId) {
        let Some(row) = self.locks.requests().find(request) else { return };
        let lease = self.locks.requests()[row].local().map(|local| local.lease);
        let session = lease.and_then(|lease| self.clients.leases.session_of(lease));
        self.end_held(row, Position::default());
        if let (Some(lease), Some(session)) = (lease, session) {
            self.out
                .effects
                .push_back(Effect::Notify { session, notice: Notice::LockLost { lease, request } });
        }
    }
}
