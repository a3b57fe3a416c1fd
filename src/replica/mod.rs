//! Pure. One datacenter as one deterministic state machine, composed of the modules below.
//!
//! The edge passes in events with the time ([`Replica::handle`]), performs the effects
//! ([`Replica::poll_effect`]) and calls again at [`Replica::next_deadline`]. Every other decision is made
//! here, in production and in the simulator alike (`docs/algorithm/model.md#2-the-machine`).
//!
//! # Decisions
//!
//! - **A sub-machine borrows the parts that it may use** (`lend.rs`). Rejected: one context that every
//!   sub-machine may change, which is one large struct again; and sub-machines that own everything they
//!   need, because a lock, its lease and its transaction change in one step. `Replica` itself has the
//!   steps, and the few operations that touch all state: held-back entries, the installation of a state,
//!   the end of a link.
//! - **A step costs what it touches, never more for more waiting requests**
//!   (`docs/algorithm/model.md#2-the-machine`). Work on many rows, such as the end of a lease, is done in
//!   pieces, and `next_deadline` asks for the next step at once. One request with up to 10 000 locks is
//!   handled whole when it begins, is published, is granted and ends (`benches/many_locks.rs`). Rejected:
//!   beginning it in pieces, because every rule would have to count a request that is in some of its queues
//!   as absent.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(missing_docs)]

pub mod call;
mod check;
mod clients;
mod config;
mod data;
mod deadline;
mod dispatch;
mod effect;
mod entries;
mod event;
mod ids;
mod inspect;
mod lend;
mod lifecycle;
mod members;
mod message;
mod outputs;
mod peers;
mod record;
mod step;
#[cfg(test)]
mod tests;
mod watches;
mod writer;

pub use clients::force_release;
pub use config::{
    AgreedConfig, BucketPattern, CLOCK_RESERVATION, LocalConfig, MAX_LEASE_TTL, MIN_LEASE_TTL, ReplicaConfig,
};
pub use data::transactions::{CommitContent, OutcomeRow, TxnContent};
pub use effect::{Effect, Notice, Report};
pub use event::Event;
pub use geolock_api::names::Position;
pub use inspect::Inspect;
pub use lifecycle::{Fork, NotServing};
pub use members::{Decision, JoinState, MAX_LISTED, MembersState, RecoveryMessage, RecoveryView, StayView};
pub use members::{Witness, WitnessConfig, WitnessRecoveryError};
pub use message::{Heartbeat, Message, Urgency};
pub use peers::anti_entropy::Summed;
pub use peers::stability::Floor;
pub use peers::sums::SumAt;
pub use peers::terms::Terms;
pub use peers::transfer::StatePiece;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use peers::transfer::fuzz;
pub use record::recover::RecoveryError;
pub use record::v1::CheckpointV1;
pub use record::{Checkpoint, LeaseRecord, Record, RequestRow};
pub use watches::Past;
pub(crate) use watches::SAY_TAKEN_AT;

use crate::base::time::Now;
use crate::base::work;
use crate::causal_log::Log;
use crate::lock_state::Locks;
use call::Call;
use deadline::Due;
use lend::lend;

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
/// before a record is durable (`docs/algorithm/log.md#13-output-commit`). Only a checkpoint is stored later,
/// once the journal is durable up to its position.
///
/// The caller owes the machine the events that follow from effects. [`Event::Durable`] names positions that
/// were persisted and are on disk. The link of a peer is up between [`Event::LinkUp`] and
/// [`Event::LinkDown`]: messages of one [`Urgency`] come in the order in which the peer sent them, and each
/// message that is sent is either flushed or lost with the link.
///
/// The fields are the parts of its state. `lend.rs` has the table of the parts that each sub-machine borrows;
/// the machine itself decides what happens in which order.
///
/// A machine begins with [`Replica::recover`]. [`Replica::begin_restored`] and [`Replica::resolve_fork`] come
/// before the first step, if at all. It has no end: drop it, and recover another one from its journal.
pub struct Replica {
    config: ReplicaConfig,
    now: Now,
    due: Due,
    out: outputs::Outputs,
    ids: ids::Ids,
    log: Log,
    locks: Locks,
    lifecycle: lifecycle::Lifecycle,
    members: members::Members,
    peers: peers::Peers,
    clients: clients::Clients,
    data: data::Data,
    copies: peers::copies::Copies,
    watches: watches::Watches,
}

impl Replica {
    /// Fires all timers that had expired by `now`, then applies the event, then all consequences of both.
    ///
    /// # Panics
    /// If an invariant that mutual exclusion rests on is broken: no server is better than a second owner.
    pub fn handle(&mut self, now: Now, event: Event) {
        // Most steps by far change nothing but locks, in memory, and have no other consequences.
        let only_locks = !self.advance(now) && event.concerns_only_locks() && self.rests();
        let before = self.out.position;
        match event {
            Event::Tick => {}
            Event::Durable { position } => self.on_durable(position),
            Event::Disk { room } => self.on_disk_space(room),
            Event::Load { load } => self.lifecycle.admission.set_load(load),
            Event::AccessRules { digests } => lend!(Peering, self).on_access_rules(digests),
            Event::LinkUp { peer, version } => lend!(Peering, self).on_link_up(peer, version),
            Event::LinkDown { peer } => self.on_link_down(peer),
            Event::Received { peer, message } => self.on_received(peer, message),
            Event::Flushed { peer, messages, batches } => {
                lend!(LinkHandler, self).on_flushed(peer, messages, batches)
            }
            // The most frequent calls, before anything large is lent or moved.
            Event::Client { call, request: Call::Acquire(ref acquire), .. }
                if !self.lifecycle.state.is_starting() && !self.clients.deferred.are_ready() =>
            {
                lend!(AcquireCalls, self).on_acquire(call, acquire)
            }
            Event::Client { call, request: Call::Release { lease, proof, target }, .. } => {
                lend!(AcquireCalls, self).on_release(call, lease, proof, target)
            }
            Event::Client { call, client, request } => {
                lend!(ClientCalls, self).on_client(call, client, request)
            }
            Event::SessionClosed { session } => lend!(LeaseCalls, self).on_session_closed(session),
            Event::Decided { lineage, index, proposal } => {
                lend!(Decisions, self).on_decided(lineage, index, *proposal)
            }
            Event::Recover { plan } => lend!(ForcedRecovery, self).on_recover(plan),
            Event::CancelLeave => lend!(Decisions, self).on_cancel_leave(),
            Event::Propose { command } => lend!(Decisions, self).on_propose(*command),
            Event::Checkpoint => self.on_checkpoint_wanted(),
            Event::Ended => self.lifecycle.on_ended(),
            Event::Drain => self.lifecycle.admission.drain(),
        }
        let only_locks = self.finish_step(only_locks && self.out.position == before);
        self.due = Due::after(self, only_locks);
    }

    /// Returns the next effect, in the order in which to perform them. Call it after each
    /// [`Replica::handle`] until it returns `None`.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        if self.out.effects.is_empty() {
            work::give_back(&mut self.out.effects);
            return None;
        }
        self.out.effects.pop_front()
    }
}
