//! The invariants that one datacenter can check by itself (`docs/algorithm/model.md#4-invariants`).

use std::collections::BTreeSet;

use super::Replica;
use crate::base::bugs::Bug;
use crate::base::capacity::DiskSpace;
use geolock_api::names::RequestId;

impl Replica {
    /// Asserts the invariants. Examines the whole state: for tests and the simulator.
    ///
    /// # Panics
    /// If an invariant is broken; the message names it.
    pub fn check(&self) {
        self.lifecycle.check(self.log.applied(), self.clients.leases.in_grace());
        self.log.check();
        let (linked, last) = (self.log.peers().linked(), self.out.position);
        self.out.check();
        self.ids.check(last);
        self.locks.check();
        self.clients.check(&self.locks, linked, last);
        self.watches.check();
        let may_apply = self.lifecycle.stalls.disk() != DiskSpace::Full && !self.lifecycle.state.is_forked();
        self.peers.check(self.members.peers(), &self.log, &self.lifecycle, may_apply);
        self.copies.transfers.check(linked);
        check_data(self);
        self.data.store.check_invariants();
        self.data.store.expiring_keys().for_each(|(key, _)| self.data.expiry.check(key));
        let (durable, applied) = (self.log.durable(), self.log.applied());
        assert!(applied.covers(durable), "durable {durable} is applied {applied}");
        assert_eq!(
            self.locks.inspect().readers(),
            self.copies.readers(),
            "readers are closed when they are done"
        );
        assert_eq!(self.ids.may_stamp, !self.lifecycle.state.is_starting(), "nothing is stamped in a start");
        let by_lease: usize = self.clients.leases.iter().map(|lease| lease.requests.len()).sum();
        let counts = self.locks.requests().counts();
        assert_eq!(
            by_lease as u64,
            counts.held + counts.waiting,
            "every request of a client belongs to a lease"
        );
        self.members.check();
        assert!(
            !self.members.entered.has_left(self.config.dc) || self.locks.owners().are_home_here(),
            "a member that has left has no parts of others"
        );
        let waiting: usize = self.clients.leases.iter().map(|lease| lease.waiting).sum();
        assert_eq!(waiting as u64, counts.waiting, "what leases count as waiting");
        assert!(self.clients.waits.len() as u64 <= counts.waiting, "only waiting requests time out");
        assert!(
            self.clients.descriptions.asked_ahead() <= self.clients.waits.len(),
            "what is asked ahead of time is for who waits"
        );
    }

    /// A fault, as by a bug or by broken memory: a key loses its value here and nowhere else.
    #[cfg(test)]
    pub(super) fn corrupt_store(&mut self, key: &geolock_api::keys::Key) {
        self.data.store.corrupt(key);
    }

    /// The same: a part of a lock that is not used here moves without an entry.
    #[cfg(test)]
    pub(super) fn corrupt_ownership(&mut self, lock: geolock_api::names::LockName) {
        let parts = vec![(self.config.dc, 1)];
        let to = self.members.peers().iter().next().expect("there is a peer");
        self.locks.corrupt_ownership(to, &crate::causal_log::LockParts { lock, parts });
    }
}

/// Asserts what the data, the requests and the outputs say of each other.
fn check_data(replica: &Replica) {
    replica.data.transactions.check(&replica.locks);
    replica.data.expiry.check_lists();
    replica.data.acknowledgements.check(replica.config.dc, &replica.log);
    let (untold, of_txns) = replica.clients.counts(&replica.locks);
    let grants: BTreeSet<RequestId> = replica.out.output_commit.grants().collect();
    let awaited = grants.iter().filter(|id| replica.locks.requests().find(**id).is_some());
    assert_eq!(awaited.count(), untold, "each grant is told, or waits for the journal");
    assert_eq!(of_txns, replica.data.transactions.with_locks(), "each transaction with locks has a request");
    let Some(builder) = &replica.copies.checkpoint_builder else { return };
    let (kept, first) = (replica.log.entries().numbers().start, builder.first_entry());
    let is_kept = first >= kept || replica.config.bugs.has(Bug::EntriesNotKept);
    assert!(is_kept, "a checkpoint needs entries from {first} on, those from {kept} on are kept");
}
