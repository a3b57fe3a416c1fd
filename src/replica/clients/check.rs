//! The invariants of leases and requests, from the client's side.

use super::Clients;
use crate::lock_state::Locks;
use geolock_api::names::{DcSet, Position};

impl Clients {
    /// Asserts them. Walks all requests of clients: for tests and the simulator.
    pub fn check(&self, locks: &Locks, linked: DcSet, last: Position) {
        self.leases.check();
        self.descriptions.check(linked);
        self.descriptions.ahead.check(locks);
        self.deferred.check(&self.leases);
        self.audit.check(&self.leases, last);
        let mut timed = 0;
        for lease in self.leases.iter() {
            let (mut waiting, mut names) = (0, 0);
            for request in lease.requests.sorted() {
                let (row, client) = (&locks.requests()[request], self.client_requests.get(request));
                let (id, of) = (row.id, self.leases.get(client.lease).id);
                assert_eq!(of, lease.id, "{id} is in the lease that lists it");
                assert!(row.local().is_some_and(|local| local.lease == lease.id), "{id} is of {}", lease.id);
                assert!(id.n > lease.id.n(), "{id} is later than its lease {}", lease.id);
                let by_key = client.key.map(|key| lease.keys.get(key) == Some(request));
                assert!(by_key != Some(false), "{id} is found by its key {:?}", client.key);
                assert!(client.key.is_none() || client.txn.is_none(), "{id} has one key");
                names += client.names as usize;
                waiting += usize::from(!row.is_held());
                timed += usize::from(client.wait_until.is_some());
                assert!(client.wait_until.is_none() || !row.is_held(), "{id} is held and times out");
                assert!(row.is_held() || !client.is_told, "{id} waits, and its grant was told");
            }
            assert_eq!(lease.waiting, waiting, "the waiting requests of {}", lease.id);
            if let Some(request) = lease.requests.sorted().first() {
                let (of_lease, _) = self.leases.names(self.client_requests.get(*request).lease);
                assert_eq!(of_lease, names, "the names of the requests of {}", lease.id);
            }
        }
        assert_eq!(self.waits.len(), timed, "each wait has one deadline");
    }

    /// Returns the number of held requests whose grants are not told yet, and of requests of transactions.
    pub fn counts(&self, locks: &Locks) -> (usize, usize) {
        let requests = self.leases.iter().flat_map(|lease| lease.requests.sorted());
        requests.fold((0, 0), |(untold, txns), request| {
            let client = self.client_requests.get(request);
            let is_untold = locks.requests()[request].is_held() && !client.is_told;
            (untold + usize::from(is_untold), txns + usize::from(client.txn.is_some()))
        })
    }
}
