//! The grants that a node answered to its clients, and has not been told to end.

use std::collections::BTreeMap;

use crate::replica::call::{IdempotencyKey, Target};
use geolock_api::names::{LeaseId, LockName, Mode, RequestId};

/// A grant that was answered to a client.
#[derive(Debug)]
pub(super) struct Told {
    pub key: IdempotencyKey,
    pub wants: Vec<(LockName, Mode)>,
}

/// The grants that were answered, by lease.
#[derive(Debug, Default)]
pub(super) struct ToldGrants(BTreeMap<LeaseId, OfLease>);

/// A crowd has thousands of grants under one lease, so a release by key finds its own by an index.
#[derive(Debug, Default)]
struct OfLease {
    grants: BTreeMap<RequestId, Told>,
    keys: BTreeMap<IdempotencyKey, Vec<RequestId>>,
}

impl ToldGrants {
    /// Notes a grant, perhaps again.
    pub fn insert(&mut self, lease: LeaseId, request: RequestId, told: Told) {
        self.0.entry(lease).or_default().insert(request, told);
    }

    /// Returns true if a request is one of them.
    pub fn contains(&self, request: RequestId) -> bool {
        self.0.values().any(|of_lease| of_lease.grants.contains_key(&request))
    }

    /// Removes the grant of a request.
    pub fn remove(&mut self, lease: LeaseId, request: RequestId) -> Option<Told> {
        self.0.get_mut(&lease)?.remove(request)
    }

    /// A client holds one lock of a grant shared, and no more exclusively.
    pub fn downgrade(&mut self, lease: LeaseId, target: Target, lock: &LockName) {
        let Target::Id(request) = target else { return };
        let told = self.0.get_mut(&lease).and_then(|of_lease| of_lease.grants.get_mut(&request));
        if let Some((_, mode)) = told.and_then(|told| told.wants.iter_mut().find(|(name, _)| name == lock)) {
            *mode = Mode::Shared;
        }
    }

    /// Removes the grants that a client names.
    pub fn remove_target(&mut self, lease: LeaseId, target: Target) {
        let Some(of_lease) = self.0.get_mut(&lease) else { return };
        let requests = match target {
            Target::Id(request) => vec![request],
            Target::Key(key) => of_lease.keys.get(&key).cloned().unwrap_or_default(),
        };
        for request in requests {
            of_lease.remove(request);
        }
    }

    /// Removes all grants of a lease.
    pub fn remove_lease(&mut self, lease: LeaseId) -> impl Iterator<Item = Told> {
        self.0.remove(&lease).unwrap_or_default().grants.into_values()
    }
}

impl OfLease {
    fn insert(&mut self, request: RequestId, told: Told) {
        self.remove(request);
        self.keys.entry(told.key).or_default().push(request);
        self.grants.insert(request, told);
    }

    fn remove(&mut self, request: RequestId) -> Option<Told> {
        let told = self.grants.remove(&request)?;
        if let Some(requests) = self.keys.get_mut(&told.key) {
            requests.retain(|other| *other != request);
            if requests.is_empty() {
                self.keys.remove(&told.key);
            }
        }
        Some(told)
    }
}
