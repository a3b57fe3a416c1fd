//! Force release: an operator takes a lock from whoever holds it in this datacenter, and it is remembered who did, and why.
//!
//! To the locks it is what the end of a lease is: the record of it is on disk before a lock that was taken away is granted in
//! conflict, and before the operator is answered. A call of the victim may be refused sooner. A request is atomic, so whoever
//! loses one of its locks loses all; a transaction cannot commit any more. The lease lives on.
//!
//! A victim may not hear of it: its stream broke, or the server crashed. So what was taken from a lease is remembered as
//! long as the lease lives: it is told again whenever a client attaches the lease, and a reclaim of it after a restart is refused.
//! A lease of which that would become too much ends.
//!
//! Nothing of this is told to other datacenters. A lock that is held there is taken away there: the answer says where.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Replica;
use super::call::{CallId, LockDescription, MAX_DESCRIBED, Refusal, Reply, SessionId, Target};
use super::describe::Purpose;
use super::effect::{Effect, Notice, Report};
use super::gate::Gated;
use super::record::Record;
use super::transactions::{Death, TxnId};
use crate::lock_state::Holder;
use crate::names::{ClientKey, FencingToken, ForceReason, LeaseId, LockName, Mode, Position, RequestId};

/// Forced releases that are remembered for people, at most.
pub const MAX_AUDITED: usize = 1_000;
/// Holders that one call takes a lock from, at most.
pub const MAX_VICTIMS: usize = 1_000;
/// A lease from which that many requests were taken ends.
const MAX_OF_LEASE: usize = 1_000;

/// What an operator wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Force {
    pub lock: LockName,
    /// Who that is, as the edge knows it.
    pub by: Arc<str>,
    pub reason: ForceReason,
}

/// A request that lost its locks to an operator. Also kept on disk: fields keep their order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Forced {
    /// Counts them, from 1, in this datacenter.
    pub number: u64,
    /// When: ms since the epoch by the wall clock of this datacenter.
    pub at_ms: u64,
    pub by: Arc<str>,
    pub reason: ForceReason,
    /// The lock that was named.
    pub lock: LockName,
    /// How it was held.
    pub mode: Mode,
    pub lease: LeaseId,
    pub request: RequestId,
    pub token: FencingToken,
    /// Of the victim.
    pub label: Arc<str>,
    /// How many locks the request held, all of which it lost.
    pub locks: u64,
}

impl std::fmt::Display for Forced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the lock {} was taken away by {}: {}", self.lock, self.by, self.reason)
    }
}

/// What became of a [`Force`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForceOutcome {
    /// From whom the lock was taken.
    pub taken: Vec<Arc<Forced>>,
    /// The lock as it was then: who holds it still, here ([`MAX_VICTIMS`] at a time lose it) and elsewhere.
    pub lock: LockDescription,
}

/// Taken away, and not answered yet.
pub(super) struct Taken {
    taken: Vec<Arc<Forced>>,
    /// Where the journal has it.
    position: Position,
}

/// All that is remembered of forced releases.
#[derive(Default)]
pub(super) struct Audit {
    /// The last ones, by number.
    rows: VecDeque<Arc<Forced>>,
    /// Those of leases that live.
    of_leases: BTreeMap<LeaseId, BTreeMap<RequestId, Arc<Forced>>>,
    /// The keys of those that this process knows the key of.
    by_key: BTreeMap<(LeaseId, ClientKey), RequestId>,
    /// Where the journal has the last one.
    position: Position,
}

impl Audit {
    pub fn next_number(&self) -> u64 {
        self.rows.back().map_or(1, |last| last.number + 1)
    }

    /// Whether a request of this lease lost its locks. Known as long as the lease lives.
    pub fn was_forced_out(&self, lease: LeaseId, request: RequestId) -> bool {
        self.of_leases.get(&lease).is_some_and(|requests| requests.contains_key(&request))
    }

    /// How the request of this lease that a client means lost its locks, if it did. Known as long as the lease lives, by its
    /// key until a restart.
    pub fn taken(&self, lease: LeaseId, target: Target) -> Option<&Arc<Forced>> {
        let requests = self.of_leases.get(&lease)?;
        let id = match target {
            Target::Id(id) => id,
            Target::Key(key) => *self.by_key.get(&(lease, key))?,
        };
        requests.get(&id)
    }

    pub fn end_lease(&mut self, lease: LeaseId) {
        if self.of_leases.remove(&lease).is_some() {
            self.by_key.extract_if((lease, 0)..=(lease, ClientKey::MAX), |_, _| true).for_each(drop);
        }
    }

    /// For a checkpoint, by number.
    pub fn to_keep(&self) -> Vec<Arc<Forced>> {
        let all = self.rows.iter().chain(self.of_leases.values().flat_map(BTreeMap::values));
        let by_number: BTreeMap<u64, &Arc<Forced>> = all.map(|forced| (forced.number, forced)).collect();
        by_number.into_values().cloned().collect()
    }
}

impl Replica {
    pub(super) fn on_force_release(&mut self, call: CallId, force: &Force) {
        if let Err(refusal) = self.admit_force() {
            return self.refuse(call, refusal);
        }
        let victims = self.locks.holders(&force.lock, MAX_VICTIMS);
        let taken: Vec<_> = victims.iter().map(|victim| self.force_out(victim, force)).collect();
        let leases: BTreeSet<LeaseId> = taken.iter().map(|forced| forced.lease).collect();
        leases.into_iter().for_each(|lease| self.end_if_crowded(lease));
        let lock = self.describe(&force.lock, MAX_DESCRIBED);
        let taken = Taken { taken, position: self.audit.position };
        self.explain(call, Purpose::Force(taken), vec![lock]);
    }

    fn admit_force(&self) -> Result<(), Refusal> {
        match self.leases.in_grace() {
            0 => self.admit_write(),
            leases => Err(Refusal::HoldersUnknown(leases)),
        }
    }

    fn force_out(&mut self, victim: &Holder, force: &Force) -> Arc<Forced> {
        let request = victim.request;
        let row = self.locks.get(request);
        let local = row.local().expect("who holds a lock here is a client of this datacenter");
        let forced = Arc::new(Forced {
            number: self.audit.next_number(),
            at_ms: self.now.wall.0,
            by: force.by.clone(),
            reason: force.reason.clone(),
            lock: force.lock.clone(),
            mode: victim.mode,
            lease: local.lease,
            request: row.id,
            token: victim.token,
            label: local.label.clone(),
            locks: row.wants.len() as u64,
        });
        let position = self.persist(Record::Forced(forced.clone()));
        self.note_forced(forced.clone(), position);
        let ticket = self.tickets.get_mut(request);
        let (call, txn) = (ticket.call.take(), ticket.txn);
        if let Some(key) = ticket.key {
            self.audit.by_key.insert((forced.lease, key), forced.request);
        }
        // Granted, and the answer waited for the journal.
        if let Some(call) = call {
            self.refuse(call, Refusal::ForcedOut(forced.clone()));
        }
        if let Some(key) = txn {
            self.txn_lost_locks(TxnId { lease: forced.lease, key }, Death::ForcedOut(forced.clone()));
        }
        #[cfg(test)]
        let ready =
            if self.mutated(crate::sim::Mutation::ForceNotDurable) { Position::default() } else { position };
        #[cfg(not(test))]
        let ready = position;
        self.end_held(request, ready);
        self.counts.forced_releases += 1;
        self.report(Report::Forced(forced.clone()));
        if let Some(session) = self.leases.session_of(forced.lease) {
            self.notify_forced_out(position, session, forced.clone());
        }
        forced
    }

    /// Remembers it, live or from the disk.
    pub(super) fn note_forced(&mut self, forced: Arc<Forced>, position: Position) {
        self.audit.position = position;
        let is_alive = self.leases.find(forced.lease).is_some();
        #[cfg(test)]
        let is_alive = is_alive && !self.mutated(crate::sim::Mutation::ForceForgotten);
        if is_alive {
            let of_lease = self.audit.of_leases.entry(forced.lease).or_default();
            of_lease.insert(forced.request, forced.clone());
        }
        self.audit.rows.push_back(forced);
        if self.audit.rows.len() > MAX_AUDITED {
            self.audit.rows.pop_front();
        }
    }

    /// Keeps bounded what must be remembered of a lease.
    fn end_if_crowded(&mut self, lease: LeaseId) {
        let taken = self.audit.of_leases.get(&lease).map_or(0, BTreeMap::len);
        let Some(index) = self.leases.find(lease).filter(|_| taken >= MAX_OF_LEASE) else { return };
        self.audit.position = self.take_lease_away(index);
    }

    /// A client is back and may not have heard of all that it lost.
    pub(super) fn tell_forced_out(&mut self, lease: LeaseId, session: SessionId) {
        let lost = self.audit.of_leases.get(&lease).into_iter().flat_map(BTreeMap::values);
        for forced in lost.cloned().collect::<Vec<_>>() {
            self.notify_forced_out(self.audit.position, session, forced);
        }
    }

    fn notify_forced_out(&mut self, position: Position, session: SessionId, forced: Arc<Forced>) {
        let effect = Effect::Notify { session, notice: Notice::ForcedOut(forced) };
        self.after(position, Gated::Effect(effect));
    }

    /// Who else holds the lock is known, as far as others said.
    pub(super) fn answer_force(&mut self, call: CallId, taken: Taken, lock: LockDescription) {
        let Taken { taken, position } = taken;
        let reply = Reply::Forced(Box::new(ForceOutcome { taken, lock }));
        self.after(position, Gated::Effect(Effect::Reply { call, reply }));
    }

    pub(super) fn on_audit(&mut self, call: CallId) {
        let reply = Reply::Audited(self.audit.rows.iter().cloned().collect());
        self.after(self.audit.position, Gated::Effect(Effect::Reply { call, reply }));
    }
}
