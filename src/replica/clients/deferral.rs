//! Which calls have to wait after a start, and until when (`deferred_calls.rs` keeps them).

use super::Clients;
use super::deferred_calls::{key_of, opener_of};
use crate::base::bugs::Bug;
use crate::base::time::Now;
use crate::causal_log::Log;
use crate::replica::call::store::Then;
use crate::replica::call::{Call, CallId};
use crate::replica::config::ReplicaConfig;
use crate::replica::data::Data;
use crate::replica::data::transactions::TxnId;
use crate::replica::lifecycle::Lifecycle;
use geolock_api::names::LeaseId;

/// Decides which calls have to wait after a start.
pub(in crate::replica) struct Deferral<'a> {
    pub(in crate::replica) config: &'a ReplicaConfig,
    pub(in crate::replica) now: Now,
    pub(in crate::replica) log: &'a Log,
    pub(in crate::replica) lifecycle: &'a Lifecycle,
    pub(in crate::replica) clients: &'a mut Clients,
    pub(in crate::replica) data: &'a Data,
}

impl Deferral<'_> {
    /// Returns true if a call must be deferred.
    pub(in crate::replica) fn must_defer(&self, request: &Call) -> bool {
        let needs_clock = match request {
            Call::Acquire(_) | Call::AcquireEnough(_) | Call::Begin(_) | Call::Step(_) => true,
            // Its request may wait for the clock.
            Call::Amend(_) => true,
            _ => false,
        };
        (needs_clock && (self.lifecycle.state.is_starting() || self.clients.deferred.are_ready()))
            || self.may_be_commit_of_before(request).is_some()
            || self.awaits_reclaim(request).is_some()
    }

    /// Returns the lease that has to reclaim before its begin can be judged: the server does not know yet
    /// which of its requests are held.
    pub(super) fn awaits_reclaim(&self, request: &Call) -> Option<LeaseId> {
        let Call::Begin(begin) = request else { return None };
        if begin.under.is_empty() || self.config.bugs.has(Bug::GuardsNotAwaited) {
            return None;
        }
        let is_in_grace = self.clients.leases.is_in_grace(self.clients.leases.find(begin.lease)?);
        let is_known = || self.data.transactions.knows(TxnId { lease: begin.lease, key: begin.key });
        (is_in_grace && !is_known()).then_some(begin.lease)
    }

    /// Returns the transaction whose outcome the call may ask for, if it may have been committed before the
    /// start without being known here.
    pub(super) fn may_be_commit_of_before(&self, request: &Call) -> Option<TxnId> {
        let (lease, key) = match request {
            Call::Begin(begin) if begin.step.then == Then::Commit && !begin.step.changes.is_empty() => {
                (begin.lease, begin.key)
            }
            // Also one that does not commit: it must not overtake one that does.
            Call::Step(next_step) => (next_step.lease, next_step.key),
            _ => return None,
        };
        let id = TxnId { lease, key };
        let is_of_before = lease.dc() == Some(self.config.dc) && self.clients.deferred.is_of_before(lease);
        // Nor before earlier deferred calls, which resume when all reclaims are judged.
        let is_judged = knows_earlier_runs(self.lifecycle, self.log) && !self.clients.deferred.has_reclaims();
        (is_of_before && !is_judged && !self.data.transactions.knows(id)).then_some(id)
    }

    /// Takes the turn of a key on arrival. The keys of a lease begin in rising order, and calls with higher
    /// keys proceed while a transaction waits. Until the clock may be read, and the calls that waited for
    /// that are judged, all that begins waits in order. Cancels do not wait, and many of them end all lower
    /// keys, so such keys are marked as waiting.
    pub(super) fn keep_turn(&mut self, call: CallId, request: &Call) {
        let (Some((lease, proof)), Some(id)) = (opener_of(request), key_of(request)) else { return };
        let Ok(index) = self.clients.authorise(self.config.lease_time(self.now), lease, proof, call) else {
            return;
        };
        let in_order = self.lifecycle.state.is_starting() || self.clients.deferred.are_ready();
        let finished = &mut self.clients.leases.get_mut(index).finished;
        match request {
            _ if finished.is_over(id.key) => {}
            _ if in_order => finished.wait(id.key),
            Call::Begin(_) => {
                finished.begin(Some(id.key));
                self.clients.deferred.give_turn(id);
            }
            _ => {}
        }
    }
}

/// Returns true if calls that concern the time before the start can be judged. Reclaims renew leases, which
/// only a member may do that is backed.
pub(in crate::replica) fn knows_earlier_runs(lifecycle: &Lifecycle, log: &Log) -> bool {
    !lifecycle.state.is_starting()
        && lifecycle.own_log.is_whole(log.applied())
        && lifecycle.member_lease.is_backed()
}
