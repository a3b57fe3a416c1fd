//! The invariants of the leases of a datacenter.

use std::collections::BTreeMap;

use super::lease::ClientId;
use super::table::Leases;

impl Leases {
    /// Asserts that what is counted for each client is what its leases have, and that nothing is kept of
    /// others.
    fn check_clients(&self) {
        let mut counted: BTreeMap<ClientId, (usize, usize)> = BTreeMap::new();
        for (_, lease) in self.rows.iter() {
            let of = counted.entry(self.clients.get(lease.client).client).or_default();
            *of = (of.0 + 1, of.1 + lease.names);
        }
        let kept = self.clients.rows.iter().map(|(_, row)| (row.client, (row.leases, row.names)));
        assert_eq!(kept.collect::<BTreeMap<_, _>>(), counted, "leases and names of each client");
        assert_eq!(self.clients.rows.len(), counted.len(), "a client has one row");
        assert_eq!(self.clients.by_client.len(), counted.len(), "every client is found by its id");
    }

    /// Asserts the invariants that hold after every step. Walks all leases: for tests and the simulator.
    pub fn check(&self) {
        self.check_clients();
        assert_eq!(self.expiries.len(), self.rows.len(), "the expiry of every lease is scheduled once");
        for (index, lease) in self.rows.iter() {
            let id = lease.id;
            assert_eq!(self.find(id), Some(index), "lease {id} is found by its id");
            assert!(lease.waiting <= lease.requests.len(), "waiting requests of lease {id} are requests");
            assert!(!lease.requests.is_empty() || lease.names == 0, "names of lease {id} are of requests");
            assert!(!lease.requests.is_empty() || lease.keys.is_empty(), "keys of lease {id} name requests");
            let listed = lease.session.and_then(|session| self.by_session.get(&session));
            assert_eq!(
                lease.session.is_some(),
                listed.is_some_and(|leases| leases.contains(&index)),
                "the session of lease {id} lists it"
            );
            if let Some(grace) = &lease.grace {
                assert!(grace.ends <= grace.latest, "the grace period of lease {id} has a latest end");
                assert!(lease.unaccounted, "lease {id} has not reclaimed");
            }
        }
        let in_grace = self.rows.iter().filter(|(_, lease)| lease.grace.is_some()).count();
        assert_eq!(in_grace, self.graces.len(), "the end of every grace period is scheduled once");
        let attached: usize = self.by_session.values().map(|leases| leases.len()).sum();
        let with_session = self.rows.iter().filter(|(_, lease)| lease.session.is_some()).count();
        assert_eq!(attached, with_session, "sessions list leases that are attached to them");
        assert!(self.by_session.values().all(|leases| !leases.is_empty()), "a listed session has leases");
    }
}
