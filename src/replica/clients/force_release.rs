//! Force release: an operator takes a lock from its holder in this datacenter, and the server remembers the
//! operator and the reason (`docs/algorithm/grants.md#18-force-release`).
//!
//! To the locks it is like the end of a lease: its record is durable before a conflicting grant and the reply
//! to the operator are emitted. A call of the victim may be refused sooner. A request is atomic, so one that
//! loses a lock loses all; a transaction cannot commit any more. The lease lives on.
//!
//! A victim may miss the notice: its stream broke, or the server crashed. So the server remembers the
//! requests that a lease lost as long as the lease lives: it repeats the notice whenever a client attaches
//! the lease, and refuses a reclaim of a lost request after a restart. A lease that lost too many requests
//! ends, which bounds the memory.
//!
//! Other datacenters learn nothing of it. A lock that is held there must be released by force there; the
//! reply names the holders.

use crate::base::bugs::{Bug, Bugs};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::describe::{Describer, Purpose};
use super::lease_calls::LeaseCalls;
use crate::leases::Leases;
use crate::lock_state::Holder;
use crate::replica::call::{CallId, LockDescription, MAX_DESCRIBED, Refusal, Reply, SessionId, Target};
use crate::replica::clients::{ClientCalls, Clients};
use crate::replica::data::transactions::{Death, TxnId};
use crate::replica::effect::{Effect, Notice, Report};
use crate::replica::lend::lend;
use crate::replica::record::Record;
use geolock_api::names::{
    FencingToken, ForceReason, IdempotencyKey, LeaseId, LockName, Mode, Position, RequestId,
};

/// Most force releases that are remembered for operators.
pub const MAX_AUDITED: usize = 1_000;
/// Most holders that one call takes a lock from.
pub const MAX_VICTIMS: usize = 1_000;
/// A lease that lost this many requests ends.
const MAX_OF_LEASE: usize = 1_000;

/// The arguments of a force release.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForceRelease {
    /// The lock to take from its holders in this datacenter, at most [`MAX_VICTIMS`] of them.
    pub lock: LockName,
    /// The operator, as the edge authenticated it.
    pub operator: Arc<str>,
    /// The reason that the operator gave.
    pub reason: ForceReason,
}

/// A request that lost its locks to an operator. Also kept on disk: the order of the fields must not change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ForceReleased {
    /// Serial number in this datacenter, from 1.
    pub number: u64,
    /// Time of the release: ms since the epoch by the wall clock of this datacenter.
    pub at_ms: u64,
    /// The operator, as the edge authenticated it.
    pub operator: Arc<str>,
    /// The reason that the operator gave.
    pub reason: ForceReason,
    /// The lock that the operator named.
    pub lock: LockName,
    /// The mode in which it was held.
    pub mode: Mode,
    /// The lease of the request. It lives on.
    pub lease: LeaseId,
    /// The request.
    pub request: RequestId,
    /// The fencing token of its grant.
    pub token: FencingToken,
    /// Label of the victim.
    pub label: Arc<str>,
    /// Number of locks that the request held; it lost all of them.
    pub locks: u64,
}

impl std::fmt::Display for ForceReleased {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the lock {} was taken away by {}: {}", self.lock, self.operator, self.reason)
    }
}

/// The outcome of a [`ForceRelease`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForceReleaseOutcome {
    /// The requests that lost the lock.
    pub taken: Vec<Arc<ForceReleased>>,
    /// The lock at that moment, with its remaining holders, here (one call takes it from [`MAX_VICTIMS`]) and
    /// elsewhere.
    pub lock: LockDescription,
}

/// A force release whose call is not answered yet.
pub(in crate::replica) struct Taken {
    taken: Vec<Arc<ForceReleased>>,
    /// Journal position of its last record.
    position: Position,
}

/// All remembered force releases.
#[derive(Default)]
pub(in crate::replica) struct Audit {
    /// The latest ones, by number.
    rows: VecDeque<Arc<ForceReleased>>,
    /// Those of living leases.
    of_leases: BTreeMap<LeaseId, BTreeMap<RequestId, Arc<ForceReleased>>>,
    /// Their idempotency keys, as far as this process knows them.
    by_key: BTreeMap<(LeaseId, IdempotencyKey), RequestId>,
    /// Journal position of the latest one.
    position: Position,
}

impl Audit {
    pub fn next_number(&self) -> u64 {
        self.rows.back().map_or(1, |last| last.number + 1)
    }

    /// Returns true if this request lost its locks by force. Known as long as the lease lives.
    pub fn was_forced_out(&self, lease: LeaseId, request: RequestId) -> bool {
        self.of_leases.get(&lease).is_some_and(|requests| requests.contains_key(&request))
    }

    /// Returns the force release of the request that a client names, if there was one. Known as long as the
    /// lease lives; by key until a restart.
    pub fn taken(&self, lease: LeaseId, target: Target) -> Option<&Arc<ForceReleased>> {
        let requests = self.of_leases.get(&lease)?;
        let id = match target {
            Target::Id(id) => id,
            Target::Key(key) => *self.by_key.get(&(lease, key))?,
        };
        requests.get(&id)
    }

    /// Asserts that the releases are in order, and those of each lease end with it.
    pub fn check(&self, leases: &Leases, last: Position) {
        assert!(self.rows.len() <= MAX_AUDITED, "{} force releases are remembered", self.rows.len());
        let numbers = self.rows.iter().map(|forced| forced.number);
        assert!(numbers.is_sorted_by(|a, b| a < b), "force releases are numbered");
        assert!(self.position <= last, "the last force release is at {:?}", self.position);
        for (lease, requests) in &self.of_leases {
            assert!(leases.find(*lease).is_some(), "{lease} lives, and lost {} requests", requests.len());
        }
        for ((lease, key), request) in &self.by_key {
            let is_known = self.of_leases.get(lease).is_none_or(|lost| lost.contains_key(request));
            assert!(is_known, "key {key} of {lease} names {request}, which it lost");
        }
    }

    pub fn end_lease(&mut self, lease: LeaseId) {
        if self.of_leases.remove(&lease).is_some() {
            self.by_key.extract_if((lease, 0)..=(lease, IdempotencyKey::MAX), |_, _| true).for_each(drop);
        }
    }

    /// Returns all of them for a checkpoint, by number.
    pub fn to_keep(&self) -> Vec<Arc<ForceReleased>> {
        let all = self.rows.iter().chain(self.of_leases.values().flat_map(BTreeMap::values));
        let by_number: BTreeMap<u64, &Arc<ForceReleased>> =
            all.map(|forced| (forced.number, forced)).collect();
        by_number.into_values().cloned().collect()
    }
}

impl Clients {
    /// Remembers a force release, in a running server or during recovery.
    pub(in crate::replica) fn note_forced(
        &mut self,
        forced: Arc<ForceReleased>,
        position: Position,
        bugs: Bugs,
    ) {
        self.audit.position = position;
        let is_alive = self.leases.find(forced.lease).is_some();
        let is_alive = is_alive && !bugs.has(Bug::ForceForgotten);
        if is_alive {
            let of_lease = self.audit.of_leases.entry(forced.lease).or_default();
            of_lease.insert(forced.request, forced.clone());
        }
        self.audit.rows.push_back(forced);
        if self.audit.rows.len() > MAX_AUDITED {
            self.audit.rows.pop_front();
        }
    }
}

impl ClientCalls<'_> {
    pub(in crate::replica) fn on_force_release(&mut self, call: CallId, force: &ForceRelease) {
        if let Err(refusal) = self
            .lifecycle
            .versions
            .admit_homes(self.config, self.locks.owners().homes(), [&force.lock])
            .and_then(|()| lend!(LeaseCalls, self).admit_force())
        {
            return self.out.refuse(call, refusal);
        }
        let victims = self.locks.inspect().holders(&force.lock, MAX_VICTIMS);
        let taken: Vec<_> =
            victims.iter().map(|victim| lend!(LeaseCalls, self).force_out(victim, force)).collect();
        let leases: BTreeSet<LeaseId> = taken.iter().map(|forced| forced.lease).collect();
        leases.into_iter().for_each(|lease| lend!(LeaseCalls, self).end_if_crowded(lease));
        let lock = lend!(Describer, self).describe(&force.lock, MAX_DESCRIBED);
        let taken = Taken { taken, position: self.clients.audit.position };
        lend!(Describer, self).explain(call, Purpose::Force(taken), vec![lock]);
    }
}

impl LeaseCalls<'_> {
    fn admit_force(&self) -> Result<(), Refusal> {
        match self.clients.leases.in_grace() {
            0 => self.lifecycle.stalls.admit_write(),
            leases => Err(Refusal::HoldersUnknown(leases)),
        }
    }

    fn force_out(&mut self, victim: &Holder, force: &ForceRelease) -> Arc<ForceReleased> {
        let request = victim.request;
        let row = &self.locks.requests()[request];
        let local = row.local().expect("who holds a lock here is a client of this datacenter");
        assert!(row.is_held(), "{} is taken from who holds it, not from {}", force.lock, row.id);
        let forced = Arc::new(ForceReleased {
            number: self.clients.audit.next_number(),
            at_ms: self.now.wall.0,
            operator: force.operator.clone(),
            reason: force.reason.clone(),
            lock: force.lock.clone(),
            mode: victim.mode,
            lease: local.lease,
            request: row.id,
            token: victim.token.expect("a grant has its token before the next event"),
            label: local.label.clone(),
            locks: row.wants.len() as u64,
        });
        let position = self.out.persist(Record::ForceReleased(forced.clone()));
        self.clients.note_forced(forced.clone(), position, self.config.bugs);
        let client = self.clients.client_requests.get_mut(request);
        let (call, txn) = (client.call.take(), client.txn);
        if let Some(key) = client.key {
            self.clients.audit.by_key.insert((forced.lease, key), forced.request);
        }
        // It was granted, and the reply waited for the journal.
        if let Some(call) = call {
            self.out.refuse(call, Refusal::ForceReleased(forced.clone()));
        }
        if let Some(key) = txn {
            lend!(Requests, self)
                .txn_lost_locks(TxnId { lease: forced.lease, key }, Death::ForceReleased(forced.clone()));
        }
        let ready = if self.config.bugs.has(Bug::ForceNotDurable) { Position::default() } else { position };
        lend!(Requests, self).end_held(request, ready);
        self.out.counts.force_releases += 1;
        self.out.report(Report::ForceReleased(forced.clone()));
        if let Some(session) = self.clients.leases.session_of(forced.lease) {
            self.notify_forced_out(position, session, forced.clone());
        }
        forced
    }

    /// Ends a lease that lost too many requests, to bound the memory.
    fn end_if_crowded(&mut self, lease: LeaseId) {
        let taken = self.clients.audit.of_leases.get(&lease).map_or(0, BTreeMap::len);
        let Some(index) = self.clients.leases.find(lease).filter(|_| taken >= MAX_OF_LEASE) else { return };
        self.clients.audit.position = self.take_lease_away(index);
    }

    /// A client attached its lease and may have missed notices: sends all of them again.
    pub(in crate::replica) fn tell_forced_out(&mut self, lease: LeaseId, session: SessionId) {
        let lost = self.clients.audit.of_leases.get(&lease).into_iter().flat_map(BTreeMap::values);
        for forced in lost.cloned().collect::<Vec<_>>() {
            self.notify_forced_out(self.clients.audit.position, session, forced);
        }
    }

    fn notify_forced_out(&mut self, position: Position, session: SessionId, forced: Arc<ForceReleased>) {
        let effect = Effect::Notify { session, notice: Notice::ForceReleased(forced) };
        self.out.emit_when_durable(position, effect);
    }

    pub(in crate::replica) fn on_audit(&mut self, call: CallId) {
        let reply = Reply::Audited(self.clients.audit.rows.iter().cloned().collect());
        self.out.emit_when_durable(self.clients.audit.position, Effect::Reply { call, reply });
    }
}

impl Describer<'_> {
    /// The other holders of the lock are known, as far as other datacenters reported them: replies to the
    /// operator.
    pub(in crate::replica) fn answer_force(&mut self, call: CallId, taken: Taken, lock: LockDescription) {
        let Taken { taken, position } = taken;
        let reply = Reply::ForceReleased(Box::new(ForceReleaseOutcome { taken, lock }));
        self.out.emit_when_durable(position, Effect::Reply { call, reply });
    }
}
