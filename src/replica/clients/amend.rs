//! Amendments of requests for enough of many locks (`docs/algorithm/ownership.md#29-enough-of-many-locks`).

use std::sync::Arc;

use super::client_requests::weight_of_names;
use super::{AcquireCalls, Found};
use crate::base::bugs::Bug;
use crate::leases::LeaseIndex;
use crate::lock_state::RequestIndex;
use crate::replica::call::{Amend, AnyOf, CallId, Refusal, Reply, Target};

impl AcquireCalls<'_> {
    pub(super) fn on_amend(&mut self, call: CallId, amend: &Amend) {
        match self.amend(call, amend) {
            Ok(()) => self.out.reply(call, Reply::Amended),
            Err(refusal) => self.out.refuse(call, refusal),
        }
    }

    fn amend(&mut self, call: CallId, amend: &Amend) -> Result<(), Refusal> {
        let now = self.config.lease_time(self.now);
        let lease = self.clients.authorise(now, amend.lease, amend.proof, call)?;
        let request = match self.find_target(lease, Target::Key(amend.key)) {
            Found::Request(request) => Some(request),
            Found::Over | Found::Never => None,
        };
        let waits = request.and_then(|request| Some((request, self.locks.inspect().waits_for_any(request)?)));
        let Some((request, (of, revision))) = waits else { return Err(Refusal::NotWaiting(amend.key)) };
        if amend.revision <= revision {
            return Ok(());
        }
        if amend.revision > revision + 1 {
            return Err(Refusal::AmendmentMissing { known: revision, asked: amend.revision });
        }
        let keeps_all = self.config.bugs.has(Bug::AmendKeepsDropped);
        let of = of.amended(&amend.add, if keeps_all { &[] } else { &amend.drop })?;
        self.admit_amended(lease, amend)?;
        self.start_amended(lease, request, Arc::new(of), amend.revision);
        Ok(())
    }

    /// Returns an error if there is no room for the further candidates.
    fn admit_amended(&self, lease: LeaseIndex, amend: &Amend) -> Result<(), Refusal> {
        if amend.add.is_empty() {
            return Ok(());
        }
        let members = self.locks.view().members;
        let names = amend.add.iter().map(|(name, _)| name);
        self.lifecycle.versions.admit_homes(self.config, members, names)?;
        self.admit_candidates(amend.add.len())?;
        self.admit_names(lease)
    }

    fn start_amended(&mut self, lease: LeaseIndex, request: RequestIndex, of: Arc<AnyOf>, revision: u64) {
        let names = weight_of_names(of.names());
        let client = self.clients.client_requests.get_mut(request);
        let before = std::mem::replace(&mut client.names, names);
        self.clients.leases.sub_names(lease, before);
        self.clients.leases.add_names(lease, names);
        self.locks.local_requests().amend(request, &of, revision, self.now.mono);
    }
}
