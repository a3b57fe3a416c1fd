//! Deferred calls: a call that comes too early after a start waits until it can be judged.
//!
//! Calls that need a clock reading wait until the clock may be read. Calls that concern the time before the
//! start wait until this datacenter has all of its own log, as far as any reachable member knows
//! ([`knows_earlier_runs`]): a rolled-back disk believes in parts that it has given away since,
//! lacks parts that came since, and knows nothing of commits that it made since. So reclaims wait, and all
//! calls that may ask for a commit of before (`docs/algorithm/grants.md#15-restart-grace-and-reclaim`,
//! `docs/algorithm/log.md#24-outcomes-at-most-once`).

use std::collections::{BTreeMap, BTreeSet};

use super::deferral::knows_earlier_runs;
use super::early_calls::limit_wait;
use super::lease_calls::LeaseCalls;
use crate::base::time::Instant;
use crate::base::work;
use crate::causal_log::Wants;
use crate::leases::{ClientId, Leases, Proof};
use crate::replica::call::store::TxnRefusal;
use crate::replica::call::{Call, CallId, Limit, Reclaim, Refusal, SessionId, Target};
use crate::replica::clients::{AcquireCalls, ClientCalls, Clients, RETRY_AFTER};
use crate::replica::data::transactions::TxnId;
use crate::replica::lend::lend;
use geolock_api::names::LeaseId;

/// Leases, and locks that they reclaim, which one step processes, approximately: one lease is always
/// processed as a whole.
const RECLAIMED_PER_STEP: usize = 512;
/// Bytes of calls, and of 64 more for each, which one step judges, approximately: one call is always judged
/// as a whole.
const JUDGED_PER_STEP: usize = 16 << 10;
/// Most calls that wait at a time, without reclaims.
const MAX_DEFERRED: usize = 10_000;

/// A call that waits for the clock.
pub(super) struct Deferred {
    pub call: CallId,
    pub request: Call,
    /// Then it is refused.
    until: Option<Instant>,
}

/// The deferred calls.
#[derive(Default)]
pub(in crate::replica) struct DeferredCalls {
    /// By their numbers, in the order of arrival.
    calls: BTreeMap<u64, Deferred>,
    /// The number of the next one.
    next: u64,
    /// Those with lower numbers need to wait no longer. They are judged bit by bit, and until that is done,
    /// further calls wait behind them.
    ready: u64,
    /// The ends of the waits of some of `calls`.
    ends: BTreeSet<(Instant, u64)>,
    /// The bytes that this step has judged, as in [`JUDGED_PER_STEP`].
    judged: usize,
    /// Begins under guards that their leases have not reclaimed yet, in the order of arrival.
    guarded: BTreeMap<LeaseId, Vec<(CallId, Call)>>,
    /// Number of calls in `guarded`.
    guarded_calls: usize,
    /// Approximate size of all these in bytes.
    bytes: usize,
    /// The latest reclaim of each lease.
    reclaims: BTreeMap<LeaseId, (CallId, Vec<Reclaim>)>,
    /// The same by session, so that closing a session examines only its own.
    by_session: BTreeSet<(SessionId, LeaseId)>,
    /// Number of requests in `reclaims`.
    reclaimed: usize,
    /// Waiting transactions whose key has had its turn on arrival: calls with higher keys of their leases
    /// proceed.
    turns: BTreeSet<TxnId>,
    /// Leases with lower numbers were opened before the start.
    first_lease: u64,
}

impl DeferredCalls {
    /// This run hands out numbers from `n`.
    pub fn begin_at(&mut self, n: u64) {
        self.first_lease = n;
    }

    /// Returns true if a lease of this datacenter was opened before the start.
    pub fn is_of_before(&self, lease: LeaseId) -> bool {
        lease.n() < self.first_lease
    }

    /// Drops the calls of a session. A transaction keeps its turn if a copy of its call waits that came on
    /// another session.
    pub fn close_session(&mut self, session: SessionId) {
        let mut gone = Vec::new();
        let looked_at = self.calls.len() + self.guarded_calls;
        let ended = self.calls.iter().filter(|(_, waiting)| waiting.call.session == session);
        let ended: Vec<u64> = ended.map(|(number, _)| *number).collect();
        let mut calls: Vec<Call> = ended.into_iter().map(|number| self.remove(number).request).collect();
        let is_gone = |(call, _): &mut (CallId, Call)| call.session == session;
        let guarded = self.guarded.values_mut().flat_map(|calls| calls.extract_if(.., is_gone));
        let guarded: Vec<Call> = guarded.map(|(_, request)| request).collect();
        self.guarded_calls -= guarded.len();
        self.bytes -= guarded.iter().map(weight).sum::<usize>();
        calls.extend(guarded);
        gone.extend(calls.iter().filter_map(key_of).filter(|id| self.turns.contains(id)));
        if !gone.is_empty() {
            let copies: BTreeSet<TxnId> = self.requests().filter_map(key_of).collect();
            for id in gone.iter().filter(|id| !copies.contains(id)) {
                self.turns.remove(id);
            }
        }
        let (first, last) = (LeaseId::from_raw(0), LeaseId::from_raw(u64::MAX));
        let of_session = self.by_session.range((session, first)..=(session, last));
        let ended: Vec<LeaseId> = of_session.map(|(_, lease)| *lease).collect();
        work::count(looked_at + ended.len());
        ended.into_iter().for_each(|lease| drop(self.take_reclaim(lease)));
    }

    fn take_reclaim(&mut self, lease: LeaseId) -> Option<(CallId, Vec<Reclaim>)> {
        let (call, held) = self.reclaims.remove(&lease)?;
        let was_listed = self.by_session.remove(&(call.session, lease));
        assert!(was_listed, "the reclaim of {lease} is listed under session {:?}", call.session);
        self.reclaimed -= held.len();
        Some((call, held))
    }

    /// Returns true if a reclaim waits.
    #[inline]
    pub fn has_reclaims(&self) -> bool {
        !self.reclaims.is_empty()
    }

    /// Returns the request of a deferred reclaim that a client names.
    pub fn reclaimed_by(&mut self, lease: LeaseId, target: Target) -> Option<&mut Reclaim> {
        self.reclaims.get_mut(&lease)?.1.iter_mut().find(|reclaim| is_named(reclaim, target))
    }

    /// The key of a transaction that waits has its turn on arrival.
    pub fn give_turn(&mut self, id: TxnId) {
        self.turns.insert(id);
    }

    /// Takes the turn that the key of a deferred transaction got on arrival; returns true if it had one. Each
    /// key has one turn: of copies that waited together only the first is begun.
    pub fn take_turn(&mut self, id: TxnId) -> bool {
        self.turns.remove(&id)
    }

    /// Returns true if a call of this weight may wait. `beside`: bytes of other things under the same bound
    /// `most`.
    fn has_room(&self, weight: usize, beside: usize, most: usize) -> bool {
        self.calls.len() + self.guarded_calls < MAX_DEFERRED && self.bytes + weight + beside <= most
    }

    /// Asserts that what waits is counted, and that a reclaim ends with its lease.
    pub fn check(&self, leases: &Leases) {
        let guarded: usize = self.guarded.values().map(Vec::len).sum();
        assert_eq!(self.guarded_calls, guarded, "the begins that wait for a reclaim");
        let calls = self.calls.len() + guarded;
        assert!(calls <= MAX_DEFERRED, "{calls} calls are deferred");
        assert!(self.calls.keys().all(|number| *number < self.next), "{} is the next number", self.next);
        let bytes: usize = self.requests().map(weight).sum();
        assert_eq!(self.bytes, bytes, "the bytes of all deferred calls");
        let reclaimed: usize = self.reclaims.values().map(|(_, held)| held.len()).sum();
        assert_eq!(self.reclaimed, reclaimed, "the requests in all deferred reclaims");
        for (number, waiting) in &self.calls {
            let is_listed = waiting.until.is_some_and(|until| self.ends.contains(&(until, *number)));
            assert_eq!(is_listed, waiting.until.is_some(), "the end of the wait of call {number}");
        }
        let ends = self.calls.values().filter(|waiting| waiting.until.is_some()).count();
        assert_eq!(self.ends.len(), ends, "the ends of waits of calls that wait");
        assert_eq!(self.by_session.len(), self.reclaims.len(), "each reclaim is listed under its session");
        for (lease, (call, _)) in &self.reclaims {
            let is_listed = self.by_session.contains(&(call.session, *lease));
            assert!(is_listed, "the reclaim of {lease} is listed under session {:?}", call.session);
            assert!(leases.find(*lease).is_some(), "a reclaim ends with its lease {lease}");
        }
        for lease in self.guarded.keys() {
            let is_awaited = leases.find(*lease).is_some_and(|index| leases.is_in_grace(index));
            assert!(is_awaited, "{lease} is in grace, as a begin waits for its reclaim");
        }
    }

    fn push(&mut self, call: CallId, request: Call, until: Option<Instant>) {
        self.bytes += weight(&request);
        let are_ready = self.are_ready();
        self.insert(Deferred { call, request, until });
        if are_ready {
            self.ready = self.next;
        }
    }

    fn insert(&mut self, waiting: Deferred) {
        self.ends.extend(waiting.until.map(|until| (until, self.next)));
        self.calls.insert(self.next, waiting);
        self.next += 1;
    }

    /// Returns all that waits, apart from reclaims.
    fn requests(&self) -> impl Iterator<Item = &Call> {
        let guarded = self.guarded.values().flatten().map(|(_, request)| request);
        self.calls.values().map(|waiting| &waiting.request).chain(guarded)
    }

    /// Inserts a begin that waits for the reclaim of its lease.
    fn push_guarded(&mut self, call: CallId, lease: LeaseId, request: Call) {
        self.bytes += weight(&request);
        self.guarded_calls += 1;
        self.guarded.entry(lease).or_default().push((call, request));
    }

    /// The lease has reclaimed, or has ended: its begins can be judged with the other calls.
    pub fn on_reclaimed(&mut self, lease: LeaseId) {
        let calls = self.guarded.remove(&lease).unwrap_or_default();
        self.guarded_calls -= calls.len();
        calls.into_iter().for_each(|(call, request)| self.insert(Deferred { call, request, until: None }));
    }

    /// Forgets the turns of calls that wait no longer.
    fn clear_turns(&mut self) {
        let guarded = &self.guarded;
        self.turns.retain(|id| guarded.contains_key(&id.lease));
    }

    pub(super) fn remove(&mut self, number: u64) -> Deferred {
        let waiting = self.calls.remove(&number).expect("it waits");
        self.bytes -= weight(&waiting.request);
        if let Some(until) = waiting.until {
            self.ends.remove(&(until, number));
        }
        waiting
    }

    /// Returns when the first wait ends; never if none does.
    pub fn next_deadline(&self) -> Instant {
        self.ends.first().map_or(Instant::FAR_FUTURE, |(until, _)| *until)
    }

    /// Returns the number of a call whose wait is over.
    pub(super) fn first_expired(&self, now: Instant) -> Option<u64> {
        self.ends.first().filter(|(until, _)| *until <= now).map(|(_, number)| *number)
    }

    /// Puts a call back to its place, which waits for as long as that takes.
    pub(super) fn put_back(&mut self, number: u64, waiting: Deferred) {
        self.bytes += weight(&waiting.request);
        self.calls.insert(number, Deferred { until: None, ..waiting });
    }

    /// A step begins, which may judge some of the calls that can be judged.
    #[inline]
    pub fn begin_step(&mut self) {
        self.judged = 0;
    }

    /// Returns true if calls wait only until the steps before have judged the earlier ones.
    #[inline]
    pub fn are_ready(&self) -> bool {
        self.calls.first_key_value().is_some_and(|(number, _)| *number < self.ready)
    }

    /// Returns true if no call waits, apart from begins that wait for the reclaim of their lease.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.reclaims.is_empty()
    }
}

/// Returns the lease and key under which the call would begin something new.
pub(super) fn key_of(request: &Call) -> Option<TxnId> {
    match request {
        Call::Begin(begin) => Some(TxnId { lease: begin.lease, key: begin.key }),
        Call::Acquire(acquire) => acquire.key.map(|key| TxnId { lease: acquire.lease, key }),
        Call::AcquireEnough(acquire) => acquire.key.map(|key| TxnId { lease: acquire.lease, key }),
        _ => None,
    }
}

/// Returns the lease under which the call would begin something new, with the proof that the client shows.
pub(super) fn opener_of(request: &Call) -> Option<(LeaseId, Proof)> {
    match request {
        Call::Begin(begin) => Some((begin.lease, begin.proof)),
        Call::Acquire(acquire) => Some((acquire.lease, acquire.proof)),
        Call::AcquireEnough(acquire) => Some((acquire.lease, acquire.proof)),
        _ => None,
    }
}

/// Returns the approximate number of bytes that a call keeps while it waits.
fn weight(request: &Call) -> usize {
    let names =
        |wants: &Wants| wants.locks().iter().map(|(name, _)| 32 + name.as_bytes().len()).sum::<usize>();
    match request {
        Call::Begin(begin) => {
            begin.step.weight()
                + size_of_val(&*begin.under)
                + begin.locks.as_ref().map_or(0, |locks| names(&locks.wants))
        }
        Call::Step(next_step) => next_step.step.weight(),
        Call::Acquire(acquire) => names(&acquire.request.wants),
        Call::AcquireEnough(acquire) => acquire.weight(),
        Call::Amend(amend) => amend.weight(),
        _ => 0,
    }
}

/// Returns true if a client names this request of a reclaim so.
fn is_named(reclaim: &Reclaim, target: Target) -> bool {
    match target {
        Target::Id(id) => reclaim.request == id,
        Target::Key(key) => reclaim.key == Some(key),
    }
}

impl Clients {
    /// Removes a released request from the deferred reclaim of its lease. Returns true if it was there.
    pub(in crate::replica) fn release_deferred(&mut self, lease: LeaseId, target: Target) -> bool {
        let Some((_, held)) = self.deferred.reclaims.get_mut(&lease) else { return false };
        let released: Vec<Reclaim> = held.extract_if(.., |reclaim| is_named(reclaim, target)).collect();
        self.deferred.reclaimed -= released.len();
        if let Some(index) = self.leases.find(lease) {
            let keys = released.iter().filter_map(|reclaim| reclaim.key);
            keys.for_each(|key| self.leases.get_mut(index).finished.finish(key));
        }
        !released.is_empty()
    }
}

impl ClientCalls<'_> {
    /// Defers a call if there is room.
    pub(in crate::replica) fn defer(&mut self, call: CallId, request: Call) {
        let (beside, most) = (self.data.transactions.kept_bytes(), self.config.local.max_transaction_bytes);
        if self.clients.deferred.has_room(weight(&request), beside, most) {
            let deferral = lend!(Deferral, self);
            let is_judged = !deferral.lifecycle.state.is_starting()
                && deferral.may_be_commit_of_before(&request).is_none();
            let lease = deferral.awaits_reclaim(&request).filter(|_| is_judged);
            lend!(Deferral, self).keep_turn(call, &request);
            match lease {
                Some(lease) => self.clients.deferred.push_guarded(call, lease, request),
                None => {
                    let until = lend!(Deferral, self).waits_until(&request);
                    self.clients.deferred.push(call, request, until);
                }
            }
        } else if let Some(id) = lend!(Deferral, self).may_be_commit_of_before(&request) {
            self.out.refuse(call, TxnRefusal::OutcomeUnknown(id.key).into());
        } else {
            // The call is executed now, and refused because it is too early.
            self.execute(call, ClientId::UNKNOWN, request);
        }
    }

    /// Resumes the deferred calls once they can be judged: first the reclaims, then the rest, some per step.
    pub(in crate::replica) fn resume_deferred(&mut self) {
        if self.clients.deferred.are_ready() {
            return self.judge_deferred();
        }
        if self.clients.deferred.is_empty() || !knows_earlier_runs(self.lifecycle, self.log) {
            return;
        }
        let mut looked_at = 0;
        while let Some((lease, (_, held))) = self.clients.deferred.reclaims.first_key_value() {
            let lease = *lease;
            let locks = 1 + held.iter().map(|reclaim| reclaim.wants.locks().len()).sum::<usize>();
            looked_at += locks;
            if looked_at > RECLAIMED_PER_STEP && looked_at > locks {
                return;
            }
            let (call, held) = self.clients.deferred.take_reclaim(lease).expect("it was there just now");
            let index = self.clients.leases.find(lease).expect("a lease's reclaim ends with it");
            work::count(1 + held.len());
            lend!(LeaseCalls, self).reclaim(call, index, held);
        }
        self.run_deferred();
    }

    /// Executes the calls that wait, some per step: of those that waited for the clock, some may have to wait
    /// for something else.
    pub(in crate::replica) fn run_deferred(&mut self) {
        self.clients.deferred.ready = self.clients.deferred.next;
        self.judge_deferred();
    }

    fn judge_deferred(&mut self) {
        // The calls that are executed here have waited, and wait behind no others.
        let ready = std::mem::take(&mut self.clients.deferred.ready);
        while self.clients.deferred.judged < JUDGED_PER_STEP {
            let first = self.clients.deferred.calls.first_key_value().map(|(number, _)| *number);
            let Some(number) = first.filter(|number| *number < ready) else { break };
            let Deferred { call, mut request, until } = self.clients.deferred.remove(number);
            if let Some(until) = until {
                limit_wait(&mut request, until.saturating_since(self.now.mono));
            }
            self.clients.deferred.judged += 64 + weight(&request);
            // The client matters to calls on leases alone, and those do not wait here.
            self.on_client(call, ClientId::UNKNOWN, request);
        }
        self.clients.deferred.ready = ready;
        if self.clients.deferred.is_empty() && knows_earlier_runs(self.lifecycle, self.log) {
            self.clients.deferred.clear_turns();
        }
    }
}

impl LeaseCalls<'_> {
    /// Defers a reclaim, the only one of its lease. All deferred reclaims together name at most `max_held`
    /// requests.
    pub(in crate::replica) fn defer_reclaim(&mut self, call: CallId, lease: LeaseId, held: Vec<Reclaim>) {
        if self.clients.deferred.reclaimed + held.len() > self.config.local.max_held {
            let limit = Limit::HeldPerServer;
            return self.out.refuse(call, Refusal::ResourceExhausted { limit, retry_after: RETRY_AFTER });
        }
        self.clients.deferred.reclaimed += held.len();
        self.clients.deferred.by_session.insert((call.session, lease));
        let before = self.clients.deferred.reclaims.insert(lease, (call, held));
        assert!(before.is_none(), "one reclaim of {lease} waits at a time");
    }

    /// Drops the deferred reclaim of a lease: the lease ends, or reclaims again because the stream of the
    /// first reclaim broke. Were it kept beside a new one, a release would be taken out of the old reclaim
    /// and not out of the locks that are held by then.
    pub(in crate::replica) fn drop_deferred_reclaim(&mut self, lease: LeaseId, why: Refusal) {
        if let Some((call, _)) = self.clients.deferred.take_reclaim(lease) {
            self.out.refuse(call, why);
        }
    }
}

impl AcquireCalls<'_> {
    /// Cancels a deferred acquire by its key, on its own session. Returns true if there was one.
    pub(in crate::replica) fn cancel_deferred(
        &mut self,
        call: CallId,
        lease: LeaseId,
        target: Target,
    ) -> bool {
        let Target::Key(key) = target else { return false };
        let is_it = |waiting: &Deferred| {
            let is_acquire = matches!(waiting.request, Call::Acquire(_) | Call::AcquireEnough(_));
            let is_of_session = waiting.call.session == call.session;
            is_acquire && is_of_session && key_of(&waiting.request) == Some(TxnId { lease, key })
        };
        let found = self.clients.deferred.calls.iter().filter(|(_, waiting)| is_it(waiting));
        let found: Vec<u64> = found.map(|(number, _)| *number).collect();
        let was_there = !found.is_empty();
        for number in found {
            let cancelled = self.clients.deferred.remove(number).call;
            self.out.refuse(cancelled, Refusal::Cancelled);
        }
        if was_there && let Some(index) = self.clients.leases.find(lease) {
            self.clients.leases.get_mut(index).finished.finish(key);
        }
        was_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::call::{Acquire, LockRequest, Wait};
    use geolock_api::names::{LockName, Mode};

    fn acquire(name: &str) -> Call {
        let name = LockName::try_from(name).expect("a valid name");
        let wants = Wants::all(vec![(name, Mode::Exclusive)]).expect("one lock");
        let (lease, label) = (LeaseId::from_raw(1), "".into());
        Call::Acquire(Acquire {
            lease,
            proof: Proof::Attached,
            key: None,
            request: LockRequest { wants, wait: Wait::Forever, label },
        })
    }

    #[test]
    fn what_waits_is_bounded_by_what_it_takes() {
        let mut deferred = DeferredCalls::default();
        let call = |session, tag| CallId { session: SessionId(session), tag };
        deferred.push(call(1, 1), acquire("0123456789"), None);
        deferred.push(call(2, 1), acquire("01234567"), None);
        deferred.push(call(1, 2), acquire("0123456789"), None);
        assert_eq!(deferred.bytes, 3 * 32 + 28);
        assert!(
            deferred.has_room(26, 0, 150) && !deferred.has_room(27, 0, 150) && !deferred.has_room(26, 1, 150)
        );
        deferred.close_session(SessionId(1));
        assert_eq!((deferred.bytes, deferred.remove(1).call), (40, call(2, 1)));
        assert_eq!(deferred.bytes, 0);
        (0..MAX_DEFERRED as u64).for_each(|tag| deferred.push(call(3, tag), acquire("a"), None));
        assert!(!deferred.has_room(0, 0, usize::MAX));
    }
}
