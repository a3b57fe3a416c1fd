//! Client requests: the call that a request answers, its deadline, and its place in its lease.

use std::time::Duration;

use crate::base::tables::{Blocks, RowIndex};
use crate::base::time::Instant;
use crate::causal_log::Wants;
use crate::leases::LeaseIndex;
use crate::lock_state::RequestIndex;
use crate::replica::call::CallId;
use geolock_api::names::{IdempotencyKey, LockName};

/// The client's side of a request of this datacenter.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::replica) struct ClientRequest {
    /// The acquire that is not answered yet.
    pub call: Option<CallId>,
    pub wait_until: Option<Instant>,
    /// The grant may be known outside: its client and the watches were sent it, or will be.
    pub is_told: bool,
    /// How long before `wait_until` the other owners are asked for the holders, in milliseconds; 0: they were
    /// asked, or need not be.
    pub asks_ahead_ms: u32,
    pub key: Option<IdempotencyKey>,
    /// The transaction that wants the locks.
    pub txn: Option<IdempotencyKey>,
    /// Size of the names of its locks, in bytes.
    pub names: u32,
    /// Its lease, and its place among the requests of that lease.
    pub lease: LeaseIndex,
    pub place: u32,
}

impl ClientRequest {
    #[inline]
    pub fn asks_ahead(&self) -> Duration {
        Duration::from_millis(self.asks_ahead_ms.into())
    }
}

/// Returns the approximate size of the names of these locks in bytes, with their entries in the tables.
pub(in crate::replica) fn names_weight(wants: &Wants) -> u32 {
    weight_of_names(wants.locks().iter().map(|(name, _)| name))
}

/// The same for these locks.
pub(in crate::replica) fn weight_of_names<'a>(names: impl Iterator<Item = &'a LockName>) -> u32 {
    const ENTRY: usize = 64;
    let bytes: usize = names.map(|name| ENTRY + name.as_bytes().len()).sum();
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// The client's side of all requests, by the row of the request.
#[derive(Debug, Default)]
pub(in crate::replica) struct ClientRequests(Blocks<ClientRequest, RequestIndex>);

impl ClientRequests {
    pub fn set(&mut self, request: RequestIndex, client: ClientRequest) {
        while self.0.capacity() <= request.row() {
            self.0.grow(ClientRequest::default);
        }
        self.0[request] = client;
    }

    /// There are no requests: frees some of the memory.
    pub fn give_back(&mut self) {
        self.0.give_back(0);
    }

    pub fn get(&self, request: RequestIndex) -> &ClientRequest {
        &self.0[request]
    }

    pub fn get_mut(&mut self, request: RequestIndex) -> &mut ClientRequest {
        &mut self.0[request]
    }
}
