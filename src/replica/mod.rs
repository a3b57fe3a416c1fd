//! Pure. One datacenter as one state machine: the rooms below composed.
//!
//! The shell hands in events with the time ([`Replica::handle`]), performs the effects
//! ([`Replica::poll_effect`]) and calls again at [`Replica::next_deadline`]. Everything else is decided here,
//! the same way in production and in the simulator.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod anti_entropy;
mod bounds;
pub mod call;
mod check;
mod clients;
mod config;
mod describe;
mod early;
mod effect;
mod entries;
mod event;
mod expiry;
mod export;
pub mod forced;
mod fork;
mod gate;
mod grants;
mod heartbeats;
mod joining;
mod lease_calls;
mod links;
mod message;
mod phase;
mod reach;
mod record;
mod recover;
mod rights;
mod round_trips;
mod serving;
mod stability;
mod status;
mod step;
pub mod store_call;
mod sums;
mod terms;
#[cfg(test)]
mod tests;
mod tickets;
mod timeouts;
mod tokens;
mod top;
mod transactions;
mod transfer;
mod v1;
mod wall_clock;
pub mod watch_call;
mod watches;

pub use crate::names::Position;
pub use anti_entropy::Summed;
pub use config::{AgreedConfig, CLOCK_BOUND, LocalConfig, MIN_LEASE_TTL, ReplicaConfig};
pub use effect::{Effect, Notice, Report};
pub use event::Event;
pub use fork::Fork;
pub use message::{Heartbeat, Message, Urgency};
pub use record::{Checkpoint, LeaseRecord, Record, RequestRow};
pub use recover::RecoveryError;
pub use serving::NotServing;
pub use stability::Floor;
pub use sums::SumAt;
pub use terms::Terms;
pub use transactions::OutcomeRow;
pub use transfer::StatePiece;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use transfer::fuzz;
pub use v1::CheckpointV1;
pub use watches::Past;
pub(crate) use watches::SAY_TAKEN_AT;

use std::collections::VecDeque;

use crate::causal_log::{Inbox, Log};
use crate::crdt::{Ownership, VersionVector};
use crate::deadlines::Deadlines;
use crate::hybrid_clock::HybridClock;
use crate::leases::Leases;
use crate::lock_state::{Locks, RequestIndex};
use crate::names::{DcId, DcSet};
use crate::replica::call::{Acquires, Counts, Phase};
use crate::store_state::Store;
use crate::time::{Instant, Now};
use crate::work;

/// One datacenter.
pub struct Replica {
    config: ReplicaConfig,
    now: Now,
    clock: HybridClock,
    bounds: bounds::Bounds,
    /// The next request number.
    next_n: u64,
    /// The last record handed to the journal.
    position: Position,
    gate: gate::Gate,
    /// Up to where the journal is durable, as it said.
    durable_to: Position,
    /// By how much tokens are ahead of the clock.
    lead: tokens::Lead,
    log: Log,
    inbox: Inbox,
    locks: Locks,
    leases: Leases,
    /// The last end of a lease that never said after a restart what it held: every grant may be in conflict with it.
    unaccounted_end: Position,
    /// The last record of what this disk had lost and has got back, own entries above all: any lock may have been used in it.
    regained: Position,
    reach: reach::Reach,
    links: links::Links,
    round_trips: round_trips::RoundTrips,
    tickets: tickets::Tickets,
    waits: Deadlines<RequestIndex>,
    descriptions: describe::Descriptions,
    life: phase::Life,
    joining: joining::Joining,
    early: early::Early,
    store: Store,
    transactions: transactions::Transactions,
    stability: stability::Stability,
    anti_entropy: anti_entropy::AntiEntropy,
    watches: watches::Watches,
    transfers: transfer::Transfers,
    expiry: expiry::Expiry,
    rights: rights::Rights,
    audit: forced::Audit,
    heartbeat_at: Instant,
    renew_bound_at: Instant,
    /// Entries may have become sendable.
    pump: bool,
    /// There may be more entries of the log to forget than one step does.
    truncates: bool,
    /// The store has more to fold or to settle than one step does.
    store_backlog: bool,
    export: Option<export::Export>,
    counts: Counts,
    acquires: Acquires,
    effects: VecDeque<Effect>,
}

impl Replica {
    /// First fires whatever had expired by `now`, then the event. `now.mono` never goes back.
    ///
    /// # Panics
    /// When an invariant is broken on which mutual exclusion rests: better no server than a second owner.
    pub fn handle(&mut self, now: Now, event: Event) {
        self.advance(now);
        match event {
            Event::Tick => {}
            Event::Durable { position } => self.on_durable(position),
            Event::Disk { room } => self.on_room(room),
            Event::Load { load } => self.life.load = load,
            Event::LinkUp { peer } => self.on_link_up(peer),
            Event::LinkDown { peer } => self.on_link_down(peer),
            Event::Received { peer, message } => self.on_received(peer, message),
            Event::Flushed { peer, messages, batches } => self.on_flushed(peer, messages, batches),
            Event::Client { call, request } => self.on_client(call, request),
            Event::SessionClosed { session } => self.on_session_closed(session),
            Event::Checkpoint => self.on_checkpoint_wanted(),
            Event::Drain => self.life.draining = true,
        }
        self.finish_step();
    }

    /// The next effect, to be performed in this order, after each [`Replica::handle`] until there is none.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        let effect = self.effects.pop_front();
        if effect.is_none() {
            work::give_back(&mut self.effects);
        }
        effect
    }

    /// When to call [`Replica::handle`] with [`Event::Tick`] if nothing else happens before.
    pub fn next_deadline(&self) -> Option<Instant> {
        Some(self.wakes_at())
    }

    /// The same; every step asks, so it looks at nothing but what is remembered.
    #[inline]
    fn wakes_at(&self) -> Instant {
        let mut next = self.heartbeat_at.min(self.renew_bound_at).min(self.anti_entropy.next_at);
        next = next.min(self.locks.next_deadline()).min(self.leases.next_deadline());
        next = next.min(self.waits.next_or_never()).min(self.descriptions.next_deadline());
        next = next.min(self.transactions.next_deadline());
        let mut sooner = |at: Option<Instant>| next = at.map_or(next, |at| at.min(next));
        sooner(self.reach.next_deadline());
        sooner(self.links.retry_at());
        sooner(self.life.quiet_until);
        sooner(self.asks_until());
        sooner(self.life.joins_after);
        sooner(self.next_expiry());
        sooner(self.has_work().then_some(self.now.mono));
        next
    }

    /// Whether something goes on bit by bit.
    fn has_work(&self) -> bool {
        let is_asked = self.transfers.has_work(self.gate.durable());
        let is_busy = self.store_backlog || self.export.is_some() || self.watches.are_scanning() || is_asked;
        let goes_on = self.pump
            || self.has_more_durable()
            || self.truncates
            || self.locks.is_sweeping()
            || self.locks.is_going_home()
            || (self.early.has_reclaims() && self.has_past());
        is_busy || goes_on || self.locks.has_idle(self.now.mono)
    }

    /// Who this is.
    pub fn dc(&self) -> DcId {
        self.config.dc
    }

    /// Whom this datacenter believes to own a part of a lock.
    pub fn owner_of(&self, lock: &crate::names::LockName, part: DcId) -> DcId {
        self.locks.ownership().owner(lock, part)
    }

    /// Who owns what, as far as is known here.
    pub fn ownership(&self) -> &Ownership {
        self.locks.ownership()
    }

    /// The entries of the causal log that were applied here.
    pub fn applied(&self) -> &VersionVector {
        self.log.applied()
    }

    /// The members that cannot be reached, as seen from here.
    pub fn unreachable(&self) -> DcSet {
        self.reach.unreachable()
    }

    /// The members that hand nothing over, as seen from here: they cannot be reached, or are there and do not serve.
    pub fn away(&self) -> DcSet {
        self.reach.away()
    }

    /// What it does at this moment.
    pub fn phase(&self) -> Phase {
        self.current_phase()
    }

    /// The other members.
    fn peers(&self) -> DcSet {
        self.config.agreed.members.difference(DcSet::only(self.config.dc))
    }

    #[cfg(test)]
    fn mutated(&self, mutation: crate::sim::Mutation) -> bool {
        self.config.mutation == Some(mutation)
    }
}
