//! Calls of clients: release, cancel, and reads; `acquire.rs` has acquires.
//!
//! # Decisions
//!
//! - **Load is shed here, not at the edge** (`admit_load`). The lock server measures how long calls wait
//!   (`lock_server/overload.rs`); this module refuses new work. Only the machine knows which calls are new:
//!   at the edge an acquire that is repeated after a lost answer looks like a new one, and "refused" would
//!   tell its client that a request that it holds, or a commit that happened, does not exist. A refusal
//!   costs a place in the mailbox and about as much as parsing the call.
//! - **Waits are measured here**, from the acquire until the journal lets the grant leave, so the simulator
//!   sees the same figures. The wait in the mailbox is not in them; the overload probe measures it. Time
//!   stands still within a step, so a grant without a wait counts as 0. Histograms are arrays of integers,
//!   copied for the status every 100 ms, never on the path of a call.
//! - **A timed-out acquire is answered in time** (`timeouts.rs`). The other owners are asked for their
//!   holders `describe_timeout` before the end, or at half of a short wait. An owner that has not answered
//!   by then is shown as unknown.
//! - **Only the datacenter where a lock is held can force its release** (`force_release.rs`,
//!   `docs/algorithm/grants.md#18-force-release`). Only this one knows its holders, its rules decide which
//!   operators may do it, and an operator who cannot reach it must not assume that it is done. The answer
//!   names the datacenter.
//! - **Amendments are numbered, and a grant names its list** (`amend.rs`). A grant may be on its way while
//!   the client amends; places in a list without a number would then mean other locks. So one amendment is
//!   under way at a time, the client keeps the list before it and the list with it, and a server that lacks
//!   an amendment refuses the next one.

mod acquire;
mod amend;
mod check;
pub(super) mod client_requests;
pub(super) mod deferral;
pub(super) mod deferred_calls;
pub(super) mod describe;
mod downgrade;
mod early_calls;
mod enough;
pub mod force_release;
pub(super) mod grants;
pub(super) mod lease_calls;
pub(super) mod status;
pub(super) mod timeouts;
pub(super) mod top;

use std::time::Duration;

use super::call::{Acquires, Call, CallId, Limit, Refusal, Reply, Target, Wait};
use super::config::ReplicaConfig;
use super::data::Data;
use super::ids::Ids;
use super::lend::lend;
use super::lifecycle::Lifecycle;
use super::members::Members;
use super::outputs::Outputs;
use super::peers::Peers;
use super::record::LeaseRecord;
use super::watches::Watches;
use crate::base::bugs::Bug;
use crate::base::capacity::Load;
use crate::base::deadlines::Deadlines;
use crate::base::time::{Instant, Now};
use crate::causal_log::Log;
use crate::leases::{ClientId, LeaseIndex, Leases, Proof};
use crate::lock_state::{Locks, RequestIndex};
use crate::replica::clients::client_requests::{ClientRequest, ClientRequests};
use crate::replica::clients::deferred_calls::DeferredCalls;
use crate::replica::clients::describe::Descriptions;
use crate::replica::clients::force_release::Audit;
use geolock_api::names::{IdempotencyKey, LeaseId, Position, Secret};

/// Delay after which a client may retry when a limit is reached.
pub(super) const RETRY_AFTER: std::time::Duration = std::time::Duration::from_millis(500);
/// Under overload the delay is longer by 0 to `SPREAD_STEPS` - 1 times this, so that clients do not return
/// all at once.
const SPREAD: std::time::Duration = std::time::Duration::from_millis(10);
const SPREAD_STEPS: u64 = 51;

/// The state of a request that a client names.
enum Found {
    Request(RequestIndex),
    /// It has ended; ending it again succeeds.
    Over,
    /// The lease never had it.
    Never,
}

/// The state that concerns the clients: their leases and requests, and calls that cannot be answered yet.
pub(super) struct Clients {
    pub leases: Leases,
    pub client_requests: ClientRequests,
    /// When waiting requests time out.
    pub waits: Deadlines<RequestIndex>,
    pub descriptions: Descriptions,
    pub deferred: DeferredCalls,
    pub audit: Audit,
    pub acquires: Acquires,
}

impl Clients {
    pub fn new(config: &ReplicaConfig) -> Clients {
        Clients {
            leases: Leases::new(config.dc, config.local.hash_seed),
            client_requests: ClientRequests::default(),
            waits: Deadlines::default(),
            descriptions: Descriptions::default(),
            deferred: DeferredCalls::default(),
            audit: Audit::default(),
            acquires: Acquires::default(),
        }
    }

    #[inline]
    pub(super) fn authorise(
        &self,
        now: Instant,
        lease: LeaseId,
        proof: Proof,
        call: CallId,
    ) -> Result<LeaseIndex, Refusal> {
        Ok(self.leases.authorise(lease, proof, call.session, now)?)
    }

    /// Returns the secret of a lease while commits of it may come back that the disk had lost: its client
    /// needs the secret to ask for their outcomes.
    pub(super) fn secret_while_joining(&self, index: LeaseIndex, lifecycle: &Lifecycle) -> Option<Secret> {
        (!lifecycle.own_log.has_joined()).then(|| self.leases.get(index).secret)
    }

    /// Registers a request with its lease.
    pub(super) fn note_client_side(
        &mut self,
        lease: LeaseIndex,
        request: RequestIndex,
        client: ClientRequest,
    ) {
        self.leases.add_names(lease, client.names);
        let row = self.leases.get_mut(lease);
        let place = row.requests.insert(request);
        debug_assert!(row.waiting <= row.requests.len(), "{} requests of {} wait", row.waiting, row.id);
        if let Some(key) = client.key {
            row.keys.insert(key, request);
        }
        self.client_requests.set(request, ClientRequest { lease, place, ..client });
    }

    /// Returns how long leases of before the restart may still reclaim.
    pub(super) fn grace_left(&self, config: &ReplicaConfig, now: Now) -> Duration {
        let grace_ends = self.leases.last_grace().unwrap_or(now.mono);
        grace_ends.saturating_since(config.lease_time(now))
    }

    /// Opens a lease of an earlier run.
    pub(super) fn open_again(&mut self, lease: &LeaseRecord, now: Instant) {
        self.leases.open(*lease, ClientId::UNKNOWN, now);
    }
}

/// Dispatches the calls of clients, and those that had to wait.
pub(super) struct ClientCalls<'a> {
    pub(super) config: &'a ReplicaConfig,
    pub(super) now: Now,
    pub(super) out: &'a mut Outputs,
    pub(super) ids: &'a mut Ids,
    pub(super) log: &'a mut Log,
    pub(super) locks: &'a mut Locks,
    pub(super) lifecycle: &'a mut Lifecycle,
    pub(super) members: &'a mut Members,
    pub(super) peers: &'a Peers,
    pub(super) clients: &'a mut Clients,
    pub(super) data: &'a mut Data,
    pub(super) watches: &'a mut Watches,
}

impl ClientCalls<'_> {
    pub(super) fn on_client(&mut self, call: CallId, client: ClientId, request: Call) {
        if lend!(Deferral, self).must_defer(&request) {
            return self.defer(call, request);
        }
        self.execute(call, client, request);
    }

    /// Ends leases, and calls that have waited for long enough.
    pub(super) fn expire(&mut self) {
        self.locks.expire(self.now.mono);
        lend!(LeaseCalls, self).expire_leases();
        lend!(Timeouts, self).expire_waits();
        self.expire_deferred();
        if self.members.decided.is_leaving() {
            lend!(Requests, self).turn_waiters_away();
        }
        lend!(Describer, self).expire_descriptions();
        lend!(TxnCalls, self).expire_transactions();
    }

    pub(super) fn execute(&mut self, call: CallId, client: ClientId, request: Call) {
        match request {
            Call::OpenLease { secret, ttl, on_disconnect } => {
                lend!(LeaseCalls, self).on_open_lease(call, client, (secret, ttl, on_disconnect))
            }
            Call::AttachLease { lease, secret } => {
                lend!(LeaseCalls, self).on_attach_lease(call, client, lease, secret)
            }
            Call::KeepAlive { lease, proof } => lend!(LeaseCalls, self).on_keep_alive(call, lease, proof),
            Call::CloseLease { lease, proof } => lend!(LeaseCalls, self).on_close_lease(call, lease, proof),
            Call::Acquire(acquire) => lend!(AcquireCalls, self).on_acquire(call, &acquire),
            Call::Release { lease, proof, target } => {
                lend!(AcquireCalls, self).on_release(call, lease, proof, target)
            }
            Call::Cancel { lease, proof, target } => {
                lend!(AcquireCalls, self).on_cancel(call, lease, proof, target)
            }
            Call::AcquireEnough(acquire) => lend!(AcquireCalls, self).on_acquire_enough(call, &acquire),
            Call::Amend(amend) => lend!(AcquireCalls, self).on_amend(call, &amend),
            Call::Downgrade(downgrade) => lend!(AcquireCalls, self).on_downgrade(call, &downgrade),
            Call::Reclaim { lease, proof, held } => {
                lend!(LeaseCalls, self).on_reclaim(call, client, (lease, proof), held)
            }
            Call::Describe { lock } => lend!(Describer, self).on_describe(call, lock),
            Call::List { prefix, cursor, limit } => {
                lend!(Describer, self).on_list(call, &prefix, cursor, limit)
            }
            Call::ListKeys { prefix, cursor, limit } => {
                lend!(TxnCalls, self).on_list_keys(call, &prefix, cursor, limit)
            }
            Call::Top { prefix, limit } => {
                lend!(Describer, self).on_top(call, &prefix, limit, self.ids.clock.physical_millis())
            }
            Call::Begin(begin) => lend!(TxnCalls, self).on_begin(call, begin),
            Call::Step(next_step) => lend!(TxnCalls, self).on_next_step(call, next_step),
            Call::Read(look) => lend!(TxnCalls, self).on_read(call, look),
            Call::Watch(watch) => lend!(WatchCalls, self).on_watch(call, watch),
            Call::Unwatch { watch } => lend!(WatchCalls, self).on_unwatch(call, watch),
            Call::WatchTaken { watch, weight } => lend!(WatchCalls, self).on_watch_taken(call, watch, weight),
            Call::ForceRelease(force) => self.on_force_release(call, &force),
            Call::Audit => lend!(LeaseCalls, self).on_audit(call),
            Call::Decisions => lend!(Describer, self).on_list_decisions(call),
            Call::Status => {
                let status = Box::new(lend!(StatusView, self).status());
                self.out.reply(call, Reply::Status(status));
            }
        }
    }
}

/// Calls on requests, and the replies to grants.
pub(super) struct AcquireCalls<'a> {
    pub(super) config: &'a ReplicaConfig,
    pub(super) now: Now,
    pub(super) out: &'a mut Outputs,
    pub(super) ids: &'a mut Ids,
    pub(super) log: &'a mut Log,
    pub(super) locks: &'a mut Locks,
    pub(super) lifecycle: &'a Lifecycle,
    pub(super) members: &'a mut Members,
    pub(super) clients: &'a mut Clients,
    pub(super) data: &'a mut Data,
    pub(super) watches: &'a mut Watches,
}

impl AcquireCalls<'_> {
    pub(super) fn on_release(&mut self, call: CallId, lease: LeaseId, proof: Proof, target: Target) {
        let row = match self.clients.authorise(self.config.lease_time(self.now), lease, proof, call) {
            Ok(row) => row,
            Err(refusal) => return self.out.refuse(call, refusal),
        };
        let found = match self.clients.release_deferred(lease, target) {
            true => Found::Over,
            false => self.find_target(row, target),
        };
        // A client removes a lock from its reclaim before it releases the lock.
        if let (Found::Never, Target::Key(key), true) =
            (&found, target, self.clients.leases.get(row).unaccounted)
        {
            self.clients.leases.get_mut(row).finished.finish(key);
            return self.out.reply(call, Reply::Released);
        }
        if let (Found::Over | Found::Never, Some(forced)) = (&found, self.clients.audit.taken(lease, target))
        {
            let forced = forced.clone();
            return self.out.refuse(call, Refusal::ForceReleased(forced));
        }
        match found {
            Found::Request(request) if self.locks.requests()[request].is_held() => {
                lend!(Requests, self).end_held(request, Position::default());
                self.out.reply(call, Reply::Released);
            }
            Found::Over => self.out.reply(call, Reply::Released),
            Found::Request(_) | Found::Never => self.out.refuse(call, Refusal::NotHeld),
        }
    }

    fn on_cancel(&mut self, call: CallId, lease: LeaseId, proof: Proof, target: Target) {
        let row = match self.clients.authorise(self.config.lease_time(self.now), lease, proof, call) {
            Ok(row) => row,
            Err(refusal) => return self.out.refuse(call, refusal),
        };
        // Keys start in order: a deferred call that never started says nothing of the keys below it.
        let was_deferred =
            self.cancel_deferred(call, lease, target) || self.clients.release_deferred(lease, target);
        let found = if was_deferred { Found::Over } else { self.find_target(row, target) };
        match found {
            Found::Request(request) => {
                if self.locks.requests()[request].is_held() {
                    lend!(Requests, self).end_held(request, Position::default());
                } else {
                    self.out.counts.cancels += 1;
                    lend!(Requests, self).end_waiting(request, Refusal::Cancelled);
                }
                self.out.reply(call, Reply::Released);
            }
            Found::Over => self.out.reply(call, Reply::Released),
            Found::Never => match target {
                // The cancel has overtaken its acquire, which must find its key ended.
                Target::Key(key) => {
                    self.finish_unbegun(row, key);
                    self.out.reply(call, Reply::Released);
                }
                Target::Id(_) => self.out.refuse(call, Refusal::NotHeld),
            },
        }
    }

    fn finish_unbegun(&mut self, lease: LeaseIndex, key: IdempotencyKey) {
        if self.config.bugs.has(Bug::CancelForgotten) {
            return;
        }
        self.clients.leases.get_mut(lease).finished.finish(key);
    }

    /// Finds the request that a client names.
    fn find_target(&self, lease: LeaseIndex, target: Target) -> Found {
        let row = self.clients.leases.get(lease);
        let (found, was) = match target {
            Target::Key(key) => (row.keys.get(key), row.finished.is_over(key)),
            Target::Id(id) => {
                // Leases and requests share one series of numbers: an id older than the lease was never its
                // own.
                let was = id.dc == self.config.dc && id.n > row.id.n() && id.n < self.ids.next_n;
                match self.locks.requests().find(id) {
                    Some(request) if self.is_of(request, row.id) => (Some(request), true),
                    Some(_) => (None, false),
                    None => (None, was),
                }
            }
        };
        debug_assert!(found.is_none_or(|request| self.is_of(request, row.id)), "{target:?} of {}", row.id);
        match found {
            Some(request) => Found::Request(request),
            None if was => Found::Over,
            None => Found::Never,
        }
    }

    fn is_of(&self, request: RequestIndex, lease: LeaseId) -> bool {
        self.locks.requests()[request].local().is_some_and(|local| local.lease == lease)
    }
}

/// Refuses a new call while this server is overloaded. Called only when the call is known to be new: a
/// retry, such as a question for the outcome of a commit, is answered
/// (`docs/algorithm/recovery.md#7-full-disk-overload`). `shed`: the number of calls refused so far.
#[inline]
pub(super) fn admit_load(load: Load, shed: u64) -> Result<(), Refusal> {
    match load {
        Load::Fits => Ok(()),
        Load::TooMuch => Err(overload(shed)),
    }
}

#[cold]
fn overload(shed: u64) -> Refusal {
    // Spread out: the clients return over at least as long as they wait.
    let later = SPREAD * (shed % SPREAD_STEPS) as u32;
    Refusal::ResourceExhausted { limit: Limit::Load, retry_after: RETRY_AFTER + later }
}

/// Returns the reason why a request was refused at once.
pub(super) fn not_free(wait: Wait) -> Refusal {
    if wait == Wait::Try { Refusal::NotFree } else { Refusal::DiskFull }
}
