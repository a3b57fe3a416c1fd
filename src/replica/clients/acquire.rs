//! Acquires: retries, limits, and the start of a request.

use super::client_requests::{ClientRequest, names_weight};
use super::{AcquireCalls, RETRY_AFTER, admit_load, not_free};
use crate::base::bugs::Bug;
use crate::base::capacity::DiskSpace;
use crate::leases::LeaseIndex;
use crate::lock_state::{Acquired, IfNotFree, NewRequest, RequestIndex};
use crate::replica::call::{Acquire, CallId, Limit, LockRequest, Refusal, Wait};
use geolock_api::names::{IdempotencyKey, MAX_LABEL, RequestId};

impl AcquireCalls<'_> {
    pub(in crate::replica) fn on_acquire(&mut self, call: CallId, acquire: &Acquire) {
        match self.admit_acquire(call, acquire) {
            Ok(Some(lease)) => self.start_acquire(call, acquire, lease),
            Ok(None) => {}
            Err(refusal) => {
                #[cfg(test)]
                self.do_refused(call, acquire, &refusal);
                self.out.refuse(call, refusal);
            }
        }
    }

    #[cfg(test)]
    fn do_refused(&mut self, call: CallId, acquire: &Acquire, refusal: &Refusal) {
        let exhausted = matches!(refusal, Refusal::ResourceExhausted { .. });
        if exhausted
            && self.config.bugs.has(Bug::RefusedIsDone)
            && let Ok(lease) =
                self.clients.authorise(self.config.lease_time(self.now), acquire.lease, acquire.proof, call)
        {
            let client = ClientRequest { key: acquire.key, ..ClientRequest::default() };
            self.start_request(lease, &acquire.request, client);
        }
    }

    /// Returns the lease under which an acquire may start; `None` if it is a retry that is already handled.
    fn admit_acquire(&mut self, call: CallId, acquire: &Acquire) -> Result<Option<LeaseIndex>, Refusal> {
        let lease =
            self.clients.authorise(self.config.lease_time(self.now), acquire.lease, acquire.proof, call)?;
        if let Some((key, request)) = self.known_request(call, lease, acquire.key)? {
            debug_assert!(self.is_of(request, acquire.lease), "key {key} of {}", acquire.lease);
            let is_same = self.locks.inspect().is_made_for(request, &acquire.request.wants);
            return self.retry(call, request, key, is_same).map(|()| None);
        }
        self.admit_new(lease, &acquire.request.label)?;
        Ok(Some(lease))
    }

    /// Returns the request that a client has made with this key; an error if that is over.
    #[inline]
    pub(super) fn known_request(
        &self,
        call: CallId,
        lease: LeaseIndex,
        key: Option<IdempotencyKey>,
    ) -> Result<Option<(IdempotencyKey, RequestIndex)>, Refusal> {
        let Some(key) = key else { return Ok(None) };
        let row = self.clients.leases.get(lease);
        let before = row.keys.get(key);
        let before =
            before.filter(|_| row.session == Some(call.session) || !self.config.bugs.has(Bug::KeyOfSession));
        match before {
            Some(request) => Ok(Some((key, request))),
            None if row.finished.is_over(key) => Err(Refusal::IdempotencyKeyFinished(key)),
            None => Ok(None),
        }
    }

    /// Returns an error if no request may begin now, or none with this label.
    #[inline]
    pub(super) fn admit_new(&mut self, lease: LeaseIndex, label: &str) -> Result<(), Refusal> {
        if self.lifecycle.admission.is_draining() {
            return Err(Refusal::Draining);
        }
        admit_load(self.lifecycle.admission.load(), self.out.counts.calls_shed)?;
        if label.len() > MAX_LABEL {
            return Err(Refusal::LabelTooLong { len: label.len(), max: MAX_LABEL });
        }
        self.admit_request(lease)
    }

    /// Returns an error if there is no room for one more request.
    #[inline]
    pub(in crate::replica) fn admit_request(&self, lease: LeaseIndex) -> Result<(), Refusal> {
        // A full disk cannot even reserve a clock reading.
        if self.lifecycle.stalls.disk() == DiskSpace::Full {
            return Err(Refusal::DiskFull);
        }
        let (local, counts) = (&self.config.local, self.locks.requests().counts());
        if self.lifecycle.state.is_starting() || counts.waiting >= local.max_waiting as u64 {
            return exhausted(Limit::WaitingPerServer);
        }
        // A further lock of a request costs as much as a further request.
        if counts.held + counts.further >= local.max_held as u64 {
            return exhausted(Limit::HeldPerServer);
        }
        if self.clients.leases.get(lease).waiting >= local.max_waiting_per_lease {
            return exhausted(Limit::WaitingPerLease);
        }
        self.admit_names(lease)
    }

    /// Returns an error if a lease, or all leases of its client, have as many names as they may.
    #[inline]
    pub(super) fn admit_names(&self, lease: LeaseIndex) -> Result<(), Refusal> {
        let (local, (of_lease, of_client)) = (&self.config.local, self.clients.leases.names(lease));
        if of_lease >= local.max_names_per_lease {
            return exhausted(Limit::NamesPerLease);
        }
        if of_client >= local.max_names_per_client {
            return exhausted(Limit::NamesPerClient);
        }
        Ok(())
    }

    fn start_acquire(&mut self, call: CallId, acquire: &Acquire, lease: LeaseIndex) {
        self.clients.leases.get_mut(lease).finished.begin(acquire.key);
        // This uses up the key, or another copy of the call might be granted after the refusal.
        if let Err(refusal) = self.lifecycle.versions.admit_homes(
            self.config,
            self.locks.view().members,
            acquire.request.wants.locks().iter().map(|(lock, _)| lock),
        ) {
            return self.out.refuse(call, refusal);
        }
        let client = ClientRequest { call: Some(call), key: acquire.key, ..ClientRequest::default() };
        if self.start_request(lease, &acquire.request, client).is_none() {
            let refusal = not_free(acquire.request.wait);
            self.out.refuse(call, refusal);
        }
    }

    /// Starts an admitted request: it is granted at once, or waits. Returns `None` if it would have to wait,
    /// and does not want to or must not, because publishing it would need the disk.
    pub(in crate::replica) fn start_request(
        &mut self,
        lease: LeaseIndex,
        new: &LockRequest,
        client: ClientRequest,
    ) -> Option<RequestIndex> {
        let id = RequestId { dc: self.config.dc, n: self.ids.next_number(self.out) };
        let at = self.ids.stamp(self.out);
        let of_lease = self.clients.leases.get(lease).id;
        debug_assert!(id.n > of_lease.n(), "request {id} of {of_lease} is later than its lease");
        let request = NewRequest { id, at, wants: &new.wants, lease: of_lease, label: &new.label };
        let if_not_free = self.if_not_free(new.wait);
        let acquired = self.locks.local_requests().acquire(&request, if_not_free, self.now.mono);
        let client = ClientRequest { names: names_weight(&new.wants), ..client };
        self.note_started(lease, acquired, new.wait, client)
    }

    /// A request that must not wait gives up: its client wants that, or publishing it would need the disk.
    #[inline]
    pub(super) fn if_not_free(&self, wait: Wait) -> IfNotFree {
        match wait != Wait::Try && self.lifecycle.stalls.admit_write().is_ok() {
            true => IfNotFree::Wait,
            false => IfNotFree::GiveUp,
        }
    }

    /// Enters the client's side of a request that has started. Returns `None` if it has given up.
    #[inline]
    pub(super) fn note_started(
        &mut self,
        lease: LeaseIndex,
        acquired: Acquired,
        wait: Wait,
        client: ClientRequest,
    ) -> Option<RequestIndex> {
        let (request, wait) = match (acquired, wait) {
            (Acquired::NotFree | Acquired::NotEnough(_), _) => return None,
            (Acquired::Waiting(request), Wait::AtMost(wait)) => (request, Some(wait)),
            (Acquired::Waiting(request) | Acquired::Granted(request), _) => (request, None),
        };
        self.clients.leases.get_mut(lease).waiting += 1;
        self.clients.note_client_side(lease, request, client);
        if let Some(wait) = wait {
            self.begin_wait(request, wait);
        }
        Some(request)
    }

    /// The same acquire again: its client lost the reply, or reconnected on another stream.
    /// `is_same`: it asks for the same locks.
    pub(super) fn retry(
        &mut self,
        call: CallId,
        request: RequestIndex,
        key: IdempotencyKey,
        is_same: bool,
    ) -> Result<(), Refusal> {
        if !is_same {
            return Err(Refusal::IdempotencyKeyReused(key));
        }
        self.clients.client_requests.get_mut(request).call = Some(call);
        if self.locks.requests()[request].is_held() {
            self.answer_grant_again(request);
        }
        Ok(())
    }
}

#[cold]
fn exhausted(limit: Limit) -> Result<(), Refusal> {
    Err(Refusal::ResourceExhausted { limit, retry_after: RETRY_AFTER })
}
