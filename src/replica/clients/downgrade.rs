//! Downgrades: an exclusive hold becomes a shared one in place (`docs/algorithm/grants.md#17-downgrades`).

use super::{AcquireCalls, Clients, Found};
use crate::base::bugs::Bug;
use crate::lock_state::{Downgraded, RequestIndex};
use crate::replica::call::{CallId, Downgrade, Refusal, Reply, Target};
use crate::replica::lend::lend;
use geolock_api::names::{LeaseId, LockName, Mode, Position};

impl AcquireCalls<'_> {
    pub(super) fn on_downgrade(&mut self, call: CallId, downgrade: &Downgrade) {
        match self.downgrade(call, downgrade) {
            Ok(()) => self.out.reply(call, Reply::Downgraded),
            Err(refusal) => self.out.refuse(call, refusal),
        }
    }

    fn downgrade(&mut self, call: CallId, downgrade: &Downgrade) -> Result<(), Refusal> {
        let Downgrade { lease, proof, target, lock } = downgrade;
        let row = self.clients.authorise(self.config.lease_time(self.now), *lease, *proof, call)?;
        if let Some(outcome) = self.clients.downgrade_deferred(*lease, *target, lock) {
            return outcome;
        }
        match self.find_target(row, *target) {
            Found::Request(request) if self.may_downgrade(request) => self.downgrade_held(request, lock),
            Found::Over | Found::Never if let Some(forced) = self.clients.audit.taken(*lease, *target) => {
                Err(Refusal::ForceReleased(forced.clone()))
            }
            Found::Request(_) | Found::Over | Found::Never => Err(Refusal::NotHeld),
        }
    }

    /// Returns true if a client holds the request itself: the locks of a transaction end with it.
    fn may_downgrade(&self, request: RequestIndex) -> bool {
        self.locks.requests()[request].is_held() && self.clients.client_requests.get(request).txn.is_none()
    }

    fn downgrade_held(&mut self, request: RequestIndex, lock: &LockName) -> Result<(), Refusal> {
        match self.locks.local_requests().downgrade(request, lock, self.now.mono) {
            Downgraded::Done if self.config.bugs.has(Bug::DowngradeLetsGo) => {
                lend!(Requests, self).end_held(request, Position::default());
                Ok(())
            }
            Downgraded::Done => {
                lend!(Requests, self).tell_downgraded(request);
                Ok(())
            }
            Downgraded::IsShared => Ok(()),
            Downgraded::NotWanted => {
                let request = self.locks.requests()[request].id;
                Err(Refusal::NotOfRequest { lock: lock.clone(), request })
            }
        }
    }
}

impl Clients {
    /// Downgrades a lock in the deferred reclaim of its lease. Returns `None` if no such request is in it.
    fn downgrade_deferred(
        &mut self,
        lease: LeaseId,
        target: Target,
        lock: &LockName,
    ) -> Option<Result<(), Refusal>> {
        let reclaim = self.deferred.reclaimed_by(lease, target)?;
        if reclaim.wants.set_mode(lock, Mode::Shared) {
            return Some(Ok(()));
        }
        Some(Err(Refusal::NotOfRequest { lock: lock.clone(), request: reclaim.request }))
    }
}
