//! Requests for enough of many locks (`docs/algorithm/ownership.md#29-enough-of-many-locks`).

use super::{AcquireCalls, RETRY_AFTER, not_free};
use crate::leases::LeaseIndex;
use crate::lock_state::{Acquired, NewEnough};
use crate::replica::call::{AcquireEnough, CallId, Limit, Refusal, Wait};
use crate::replica::clients::client_requests::{ClientRequest, weight_of_names};
use geolock_api::names::RequestId;

impl AcquireCalls<'_> {
    pub(super) fn on_acquire_enough(&mut self, call: CallId, acquire: &AcquireEnough) {
        match self.admit_enough(call, acquire) {
            Ok(Some(lease)) => self.start_enough(call, acquire, lease),
            Ok(None) => {}
            Err(refusal) => self.out.refuse(call, refusal),
        }
    }

    /// Returns the lease under which the request may start; `None` if it is a retry that is already handled.
    fn admit_enough(&mut self, call: CallId, acquire: &AcquireEnough) -> Result<Option<LeaseIndex>, Refusal> {
        let now = self.config.lease_time(self.now);
        let lease = self.clients.authorise(now, acquire.lease, acquire.proof, call)?;
        if let Some((key, request)) = self.known_request(call, lease, acquire.key)? {
            let is_same = self.locks.inspect().is_made_for_any(request, &acquire.of, acquire.revision);
            return self.retry(call, request, key, is_same).map(|()| None);
        }
        self.admit_new(lease, &acquire.label)?;
        self.admit_candidates(acquire.of.candidates().len())?;
        Ok(Some(lease))
    }

    /// Returns an error if there is no room for so many further candidates. One costs as much as a further
    /// lock of a request.
    pub(super) fn admit_candidates(&self, further: usize) -> Result<(), Refusal> {
        let counts = self.locks.requests().counts();
        let candidates = self.locks.inspect().candidates() + further;
        if counts.held + counts.further + candidates as u64 > self.config.local.max_held as u64 {
            let limit = Limit::HeldPerServer;
            return Err(Refusal::ResourceExhausted { limit, retry_after: RETRY_AFTER });
        }
        Ok(())
    }

    fn start_enough(&mut self, call: CallId, acquire: &AcquireEnough, lease: LeaseIndex) {
        self.clients.leases.get_mut(lease).finished.begin(acquire.key);
        let members = self.locks.view().members;
        if let Err(refusal) = self.lifecycle.versions.admit_homes(self.config, members, acquire.of.names()) {
            return self.out.refuse(call, refusal);
        }
        let id = RequestId { dc: self.config.dc, n: self.ids.next_number(self.out) };
        let at = self.ids.stamp(self.out);
        let of_lease = self.clients.leases.get(lease).id;
        let new = NewEnough {
            id,
            at,
            of: &acquire.of,
            revision: acquire.revision,
            lease: of_lease,
            label: &acquire.label,
        };
        let if_not_free = self.if_not_free(acquire.wait);
        let acquired = self.locks.local_requests().acquire_enough(&new, if_not_free, self.now.mono);
        let names = weight_of_names(acquire.of.names());
        let client = ClientRequest { call: Some(call), key: acquire.key, names, ..ClientRequest::default() };
        if self.note_started(lease, acquired, acquire.wait, client).is_none() {
            let refusal = match (acquired, acquire.wait) {
                (Acquired::NotEnough(free), Wait::Try) => Refusal::NotEnoughFree { free },
                (_, wait) => not_free(wait),
            };
            self.out.refuse(call, refusal);
        }
    }

    /// Publishes requests again that have to ask for something else, each under a new id.
    #[inline]
    pub(in crate::replica) fn ask_again(&mut self) {
        while let Some(request) = self.locks.next_to_ask_again() {
            let id = RequestId { dc: self.config.dc, n: self.ids.next_number(self.out) };
            let old = self.locks.requests()[request].id;
            self.locks.local_requests().ask_again(request, id, self.now.mono);
            self.clients.descriptions.ahead.rename(old, self.locks.requests()[request].id);
        }
    }
}
