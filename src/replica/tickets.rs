//! What a client waits for, beside the request itself: whom to answer, until when.

use std::time::Duration;

use crate::causal_log::Wants;
use crate::leases::LeaseIndex;
use crate::lock_state::RequestIndex;
use crate::names::ClientKey;
use crate::replica::call::CallId;
use crate::tables::Blocks;
use crate::time::Instant;

/// The client's side of a request of this datacenter.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ticket {
    /// The acquire that is not answered yet.
    pub call: Option<CallId>,
    pub wait_until: Option<Instant>,
    /// The world may know of the grant: its client was answered, or will be, and watches were told.
    pub is_told: bool,
    /// That long before, the other owners are asked who holds what it waits for; 0: they were, or need not be.
    pub asks_ahead_ms: u32,
    pub key: Option<ClientKey>,
    /// The transaction that wants the locks.
    pub txn: Option<ClientKey>,
    /// What the names of its locks take, in bytes.
    pub names: u32,
    /// Whose it is, and its place among the requests of that lease.
    pub lease: LeaseIndex,
    pub place: u32,
}

impl Ticket {
    #[inline]
    pub fn asks_ahead(&self) -> Duration {
        Duration::from_millis(self.asks_ahead_ms.into())
    }
}

/// About what the names of these locks take, in bytes: each with its entry in the tables.
pub(super) fn names_weight(wants: &Wants) -> u32 {
    const ENTRY: usize = 64;
    let bytes: usize = wants.locks().iter().map(|(name, _)| ENTRY + name.as_bytes().len()).sum();
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// The tickets, by the row of their request.
#[derive(Debug, Default)]
pub(super) struct Tickets(Blocks<Ticket>);

impl Tickets {
    pub fn set(&mut self, request: RequestIndex, ticket: Ticket) {
        let index = request.0 as usize;
        while self.0.capacity() <= index {
            self.0.grow(Ticket::default);
        }
        self.0[index] = ticket;
    }

    /// There are no requests: gives some of the memory back.
    pub fn give_back(&mut self) {
        self.0.give_back(0);
    }

    pub fn get(&self, request: RequestIndex) -> &Ticket {
        &self.0[request.0 as usize]
    }

    pub fn get_mut(&mut self, request: RequestIndex) -> &mut Ticket {
        &mut self.0[request.0 as usize]
    }
}
