//! Pure. One datacenter as one deterministic state machine, composed of the modules below.
//!
//! The edge passes in events with the time ([`Replica::handle`]), performs the effects
//! ([`Replica::poll_effect`]) and calls again at [`Replica::next_deadline`]. Every other decision is made
//! here, in production and in the simulator alike (`docs/algorithm.md#21-the-machine`).
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod anti_entropy;
pub mod call;
mod check;
mod checkpoint_builder;
mod client_requests;
mod clients;
mod clock_skew;
mod config;
mod counter_escrow;
mod deferred_calls;
mod describe;
mod effect;
mod entries;
mod event;
mod expiry;
pub mod force_release;
mod grants;
mod heartbeats;
mod id_reservation;
mod lease_calls;
mod lifecycle;
mod links;
mod majority;
mod members;
mod message;
mod output_commit;
mod reachability;
mod record;
mod recover;
mod round_trips;
mod stability;
mod status;
mod step;
pub mod store_call;
mod sums;
mod terms;
#[cfg(test)]
mod tests;
mod timeouts;
mod tokens;
mod top;
mod transactions;
mod transfer;
mod v1;
mod v2;
mod wall_clock;
pub mod watch_call;
mod watches;

pub use anti_entropy::Summed;
pub use config::{AgreedConfig, BucketPattern, CLOCK_RESERVATION, LocalConfig, MIN_LEASE_TTL, ReplicaConfig};
pub use effect::{Effect, Notice, Report};
pub use event::Event;
pub use geolock_api::names::Position;
pub use lifecycle::{Fork, NotServing};
pub use members::{JoinState, MembersState};
pub use message::{Heartbeat, Message, Urgency};
pub use record::{Checkpoint, LeaseRecord, Record, RequestRow};
pub use recover::RecoveryError;
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

use crate::base::bugs::Bug;
use crate::base::deadlines::Deadlines;
use crate::base::histogram::Histogram;
use crate::base::hybrid_clock::HybridClock;
use crate::base::time::{Instant, Now};
use crate::base::work;
use crate::causal_log::{Inbox, Log};
use crate::crdt::{Ownership, VersionVector};
use crate::leases::Leases;
use crate::lock_state::{Locks, RequestIndex};
use crate::replica::call::{Acquires, Counts, Phase};
use crate::store_state::Store;
use geolock_api::names::{DcId, DcSet};

/// The state machine of one datacenter.
///
/// The caller owns the clocks, the disk and the network. It drives the machine with three methods:
///
/// - [`handle`](Replica::handle) is one step: it passes in the time and one event. All timers that expired by
///   then fire first, however late it is: no timer has to be delivered in time, and there is nothing to
///   cancel. Monotonic time never goes back; the wall clock may jump.
/// - [`poll_effect`](Replica::poll_effect) returns the outputs of the steps so far, oldest first. Perform
///   them in this order, and all of them before waiting for the next event. The next `handle` does not
///   require it: effects of several steps queue up behind each other, and nothing but memory and latency is
///   lost.
/// - [`next_deadline`](Replica::next_deadline) returns when to call `handle` again if no event comes first.
///   Only `handle` changes it, in either direction, so read it after each step. If it is not after `now`,
///   more work is left than one step may do: call again without delay. A call that comes early does no harm.
///
/// The order of effects matters within each destination: records are appended to the journal by position,
/// messages to one peer are queued in order, and replies and notices to one session stay in order. Between
/// destinations it does not matter. No effect waits for another: the machine keeps back what must not leave
/// before a record is durable (`docs/algorithm.md#43-output-commit`). Only a checkpoint is stored later, once
/// the journal is durable up to its position.
///
/// The caller owes the machine the events that follow from effects. [`Event::Durable`] names positions that
/// were persisted and are on disk. The link of a peer is up between [`Event::LinkUp`] and
/// [`Event::LinkDown`]: messages of one [`Urgency`] come in the order in which the peer sent them, and each
/// message that is sent is either flushed or lost with the link.
///
/// A machine begins with [`Replica::recover`]. [`Replica::begin_restored`] and [`Replica::resolve_fork`] come
/// before the first step, if at all. It has no end: drop it, and recover another one from its journal.
pub struct Replica {
    config: ReplicaConfig,
    members: members::Members,
    now: Now,
    clock: HybridClock,
    reservations: id_reservation::Reservations,
    /// The next request number to hand out.
    next_n: u64,
    /// The position of the last record that was emitted to the journal.
    position: Position,
    output_commit: output_commit::OutputCommit,
    /// The journal's last announced durable position; steps process it in portions.
    durable_to: Position,
    /// How far fencing tokens are ahead of the clock.
    lead: tokens::Lead,
    log: Log,
    inbox: Inbox,
    locks: Locks,
    leases: Leases,
    /// Position of the last end of a lease that, since the restart, never said which locks it held. Any grant
    /// may conflict with it, so every grant waits for it.
    unaccounted_end: Position,
    /// Position of the last record that this disk had lost and regained, mostly own entries. Any lock may
    /// have been used under it, so every grant waits for it (`docs/algorithm.md#95-regained-entries`).
    regained: Position,
    reachability: reachability::Reachability,
    links: links::Links,
    round_trips: round_trips::RoundTrips,
    client_requests: client_requests::ClientRequests,
    waits: Deadlines<RequestIndex>,
    descriptions: describe::Descriptions,
    lifecycle: lifecycle::Lifecycle,
    deferred: deferred_calls::DeferredCalls,
    store: Store,
    transactions: transactions::Transactions,
    stability: stability::Stability,
    anti_entropy: anti_entropy::AntiEntropy,
    watches: watches::Watches,
    transfers: transfer::Transfers,
    expiry: expiry::Expiry,
    counter_escrow: counter_escrow::CounterEscrow,
    audit: force_release::Audit,
    heartbeat_at: Instant,
    renew_reservation_at: Instant,
    /// Entries may have become sendable.
    pump: bool,
    /// The log may have more entries to truncate than one step does.
    truncates: bool,
    /// The store has more to fold or to compact than one step does.
    store_backlog: bool,
    checkpoint_builder: Option<checkpoint_builder::CheckpointBuilder>,
    counts: Counts,
    acquires: Acquires,
    /// How long answers waited for a majority that has their commits now.
    majority_waits: Histogram,
    acknowledgements: majority::Acknowledgements,
    effects: VecDeque<Effect>,
}

impl Replica {
    /// Fires all timers that had expired by `now`, then applies the event, then all consequences of both.
    ///
    /// # Panics
    /// If an invariant that mutual exclusion rests on is broken: no server is better than a second owner.
    pub fn handle(&mut self, now: Now, event: Event) {
        self.advance(now);
        match event {
            Event::Tick => {}
            Event::Durable { position } => self.on_durable(position),
            Event::Disk { room } => self.on_disk_space(room),
            Event::Load { load } => self.lifecycle.on_load(load),
            Event::LinkUp { peer, version } => self.on_link_up(peer, version),
            Event::LinkDown { peer } => self.on_link_down(peer),
            Event::Received { peer, message } => self.on_received(peer, message),
            Event::Flushed { peer, messages, batches } => self.on_flushed(peer, messages, batches),
            Event::Client { call, request } => self.on_client(call, request),
            Event::SessionClosed { session } => self.on_session_closed(session),
            Event::Decided { index, proposal } => self.on_decided(index, *proposal),
            Event::Propose { command } => self.on_propose(*command),
            Event::Checkpoint => self.on_checkpoint_wanted(),
            Event::Drain => self.lifecycle.on_drain(),
        }
        self.finish_step();
    }

    /// Returns the next effect, in the order in which to perform them. Call it after each
    /// [`Replica::handle`] until it returns `None`.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        let effect = self.effects.pop_front();
        if effect.is_none() {
            work::give_back(&mut self.effects);
        }
        effect
    }

    /// Returns the time at which to call [`Replica::handle`] with [`Event::Tick`] if no other event comes
    /// first. There always is one, because heartbeats never end.
    #[inline]
    pub fn next_deadline(&self) -> Instant {
        // Every step asks for it, so only remembered deadlines are read.
        let mut next = self.heartbeat_at.min(self.renew_reservation_at).min(self.anti_entropy.next_at);
        next = next.min(self.locks.next_deadline()).min(self.leases.next_deadline());
        next = next.min(self.waits.next_or_never()).min(self.descriptions.next_deadline());
        next = next.min(self.transactions.next_deadline());
        next = next.min(self.lifecycle.next_deadline(self.log.linked()));
        let mut sooner = |at: Option<Instant>| next = at.map_or(next, |at| at.min(next));
        sooner(self.reachability.next_deadline());
        sooner(self.links.retry_at());
        sooner(self.next_expiry());
        sooner(self.has_work().then_some(self.now.mono));
        next
    }

    /// Returns true if work that is spread over several steps is not finished.
    fn has_work(&self) -> bool {
        let is_asked = self.transfers.has_work(self.output_commit.durable());
        let is_busy = self.store_backlog
            || self.checkpoint_builder.is_some()
            || self.watches.are_scanning()
            || is_asked;
        let goes_on = self.pump
            || self.is_naming()
            || self.has_more_durable()
            || self.truncates
            || self.has_majority_news()
            || (self.deferred.has_reclaims() && self.knows_earlier_runs());
        is_busy || goes_on || self.locks.has_work(self.now.mono)
    }

    /// Returns the datacenter that this machine is.
    pub fn dc(&self) -> DcId {
        self.config.dc
    }

    /// Returns the owner of a part of a lock, as known here.
    pub fn owner_of(&self, lock: &geolock_api::names::LockName, part: DcId) -> DcId {
        self.locks.owners().map().owner(lock, part)
    }

    /// Returns the ownership of all parts, as known here.
    pub fn ownership(&self) -> &Ownership {
        self.locks.owners().map()
    }

    /// Returns the vector of the entries that are applied here.
    pub fn applied(&self) -> &VersionVector {
        self.log.applied()
    }

    /// Returns the members that are unreachable, as seen from here.
    pub fn unreachable(&self) -> DcSet {
        self.reachability.unreachable()
    }

    /// Returns the members that are away, as seen from here: unreachable, or reachable and not serving. While
    /// this datacenter makes no entries, or holds those of the others back because its clock is behind, all
    /// others are away: no part can move between it and them.
    pub fn away(&self) -> DcSet {
        match self.locks.is_alone() || self.lifecycle.clock_behind_ms().is_some() {
            true => self.peers(),
            false => self.reachability.away(),
        }
    }

    /// Returns the phase of the lifecycle.
    pub fn phase(&self) -> Phase {
        self.lifecycle.phase()
    }

    /// Returns true if there may be a link to `dc`: it is a member as far as is known here, or this server
    /// joins and does not know the members yet.
    pub fn may_link(&self, dc: DcId) -> bool {
        self.peers().contains(dc) || self.members.awaits_state()
    }

    /// Returns true unless this server joins and has no state yet: then it knows nothing of locks.
    pub fn has_state(&self) -> bool {
        !self.members.awaits_state()
    }

    /// Returns the members after the decisions that are known here; `None` if there are none.
    pub fn decided_members(&self) -> Option<&crate::membership::Config> {
        self.members.are_decided().then(|| self.members.config())
    }

    /// Returns the last epoch that a member has entered, as the entries that are applied here say.
    pub fn entered_by(&self, dc: DcId) -> crate::membership::Epoch {
        self.members.entered_by(dc)
    }

    /// Returns the other members.
    fn peers(&self) -> DcSet {
        self.members.peers()
    }

    /// Returns true if this machine is to have a deliberate bug.
    fn faulty(&self, bug: Bug) -> bool {
        self.config.bugs.has(bug)
    }
}
