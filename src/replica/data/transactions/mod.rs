//! Transactions of clients: locks first, then a snapshot, then steps, then a commit.
//!
//! ```text
//!  Begin --> [ waits for locks ] --> [ waits for its snapshot ] --> open --steps--> commit: one entry,
//!              (if it wants any)      (if it asks for more than       |              locks released with it,
//!                                      is durable here)               |              answered when durable
//!                                                                     '--> abort, too old, locks lost:
//!                                                                          no trace
//! ```
//!
//! The snapshot is the durable vector at the moment the transaction opens. A lock remembers the journal
//! position of the last commit under it, and its grant is answered only when that is durable. So of two
//! transactions that conflict on a lock, one's commit is in the other's snapshot: here, and everywhere,
//! because parts travel in the same log (`docs/algorithm/log.md#22-the-snapshot`).

mod begin;
mod check;
mod commit;
mod content;
mod dead;
mod guards;
mod majority_waits;
mod outcomes;
mod rows;
mod snapshot_waits;
mod steps;

use std::sync::Arc;

pub(in crate::replica) use begin::validate_vector;
pub(in crate::replica) use commit::can_commit;
pub use content::TxnContent;
use dead::Dead;
use majority_waits::MajorityWaits;
pub(in crate::replica) use majority_waits::{CommitId, WaitingAnswer};
pub(in crate::replica) use outcomes::Outcomes;
pub use outcomes::{CommitContent, OutcomeRow};
use rows::Rows;
use snapshot_waits::SnapshotWaits;

use crate::base::deadlines::Deadlines;
use crate::base::time::{Instant, Now};
use crate::base::work;
use crate::causal_log::{Change, Log};
use crate::crdt::VersionVector;
use crate::lock_state::Locks;
use crate::replica::call::store::Begin;
use crate::replica::call::store::TxnRefusal;
use crate::replica::call::{CallId, Refusal};
use crate::replica::clients::Clients;
use crate::replica::clients::force_release::ForceReleased;
use crate::replica::clients::grants::Requests;
use crate::replica::config::ReplicaConfig;
use crate::replica::data::Data;
use crate::replica::ids::Ids;
use crate::replica::lend::lend;
use crate::replica::lifecycle::Lifecycle;
use crate::replica::members::Members;
use crate::replica::outputs::Outputs;
use crate::replica::watches::Watches;
use geolock_api::names::{FencingToken, IdempotencyKey, LeaseId, Position, RequestId};

/// Most transactions, and waits for snapshots, that one step ends because their time is over.
const EXPIRED_PER_STEP: usize = 256;

/// A transaction of this datacenter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::replica) struct TxnId {
    pub lease: LeaseId,
    pub key: IdempotencyKey,
}

/// All transactions, with the outcomes that are remembered.
#[derive(Default)]
pub(in crate::replica) struct Transactions {
    rows: Rows,
    dead: Dead,
    deadlines: Deadlines<TxnId>,
    waits: SnapshotWaits,
    pub(in crate::replica) majority: MajorityWaits,
    pub(in crate::replica) outcomes: Outcomes,
}

enum Txn {
    Waiting(Box<Waiting>),
    Open(Box<Open>),
}

impl Txn {
    /// Returns the approximate number of bytes that it keeps of its calls.
    fn bytes(&self) -> usize {
        match self {
            Txn::Waiting(waiting) => waiting.bytes,
            Txn::Open(open) => open.bytes,
        }
    }
}

/// A transaction that is not open yet.
struct Waiting {
    /// The call to answer; a retry replaces the call before it.
    call: CallId,
    begin: Begin,
    content: TxnContent,
    /// The request for its locks.
    request: Option<RequestId>,
    /// Set once its locks are granted.
    token: Option<FencingToken>,
    /// Bytes of its first step: changes, and keys to read.
    bytes: usize,
}

struct Open {
    at: Position,
    snapshot: Arc<VersionVector>,
    request: Option<RequestId>,
    token: Option<FencingToken>,
    /// Requests that are held until it commits, and after it.
    under: Vec<RequestId>,
    content: TxnContent,
    changes: Vec<Change>,
    bytes: usize,
    expires: Instant,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::replica) enum Death {
    TooOld,
    LocksLost,
    /// An operator released its locks by force.
    ForceReleased(Arc<ForceReleased>),
    /// A state of another datacenter was installed: the snapshot no longer exists.
    StateReplaced,
}

impl Death {
    /// Returns the refusal that tells the client how its transaction died.
    pub(in crate::replica) fn refusal(self, id: TxnId, config: &ReplicaConfig) -> Refusal {
        let refusal = match self {
            Death::TooOld => TxnRefusal::TooOld(id.key, config.local.max_transaction),
            Death::LocksLost => TxnRefusal::LocksLost(id.key),
            Death::StateReplaced => TxnRefusal::StateReplaced(id.key),
            Death::ForceReleased(forced) => TxnRefusal::ForceReleased { key: id.key, forced },
        };
        refusal.into()
    }
}

impl Transactions {
    /// Returns the content of a transaction that has not ended.
    fn content_of(&self, id: TxnId) -> Option<TxnContent> {
        match self.rows.get(&id)? {
            Txn::Waiting(waiting) => Some(waiting.content),
            Txn::Open(open) => Some(open.content),
        }
    }

    #[inline]
    pub fn next_deadline(&self) -> Instant {
        let waits = self.waits.next_deadline().min(self.majority.next_deadline());
        self.deadlines.next_or_never().min(waits).min(self.outcomes.next_deadline())
    }

    /// Returns the number of open and waiting transactions.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns true if it is under way, or its outcome is known.
    pub fn knows(&self, id: TxnId) -> bool {
        let is_acknowledged = id.key <= self.outcomes.acknowledged_through(id.lease);
        let is_there = self.rows.get(&id).is_some() || self.dead.knows(&id);
        is_acknowledged || is_there || self.outcomes.get(id.lease, id.key).is_some()
    }

    /// Returns those of a lease.
    fn of_lease(&self, lease: LeaseId) -> Vec<TxnId> {
        let (first, last) = (TxnId { lease, key: 0 }, TxnId { lease, key: IdempotencyKey::MAX });
        self.rows.range(first..=last).collect()
    }

    /// Returns the approximate number of bytes that transactions and waiting reads keep.
    pub fn kept_bytes(&self) -> usize {
        let waiting = self.waits.bytes() + self.majority.bytes();
        self.rows.bytes() + waiting
    }
}

/// Calls on transactions, from the begin to the commit.
pub(in crate::replica) struct TxnCalls<'a> {
    pub(in crate::replica) config: &'a ReplicaConfig,
    pub(in crate::replica) now: Now,
    pub(in crate::replica) out: &'a mut Outputs,
    pub(in crate::replica) ids: &'a mut Ids,
    pub(in crate::replica) log: &'a mut Log,
    pub(in crate::replica) locks: &'a mut Locks,
    pub(in crate::replica) lifecycle: &'a Lifecycle,
    pub(in crate::replica) members: &'a mut Members,
    pub(in crate::replica) clients: &'a mut Clients,
    pub(in crate::replica) data: &'a mut Data,
    pub(in crate::replica) watches: &'a mut Watches,
}

impl TxnCalls<'_> {
    /// Ends transactions that were open for too long, and waits whose time is over.
    pub(in crate::replica) fn expire_transactions(&mut self) {
        for _ in 0..EXPIRED_PER_STEP {
            let Some(id) = self.data.transactions.deadlines.pop_expired(self.now.mono) else { break };
            work::count(1);
            let Some(Txn::Open(open)) = self.data.transactions.rows.get_mut(&id) else {
                unreachable!("only open transactions have a deadline, {id:?} is not");
            };
            assert!(open.expires <= self.now.mono, "{id:?} is open until {:?}", open.expires);
            // It has just been removed from the deadlines.
            open.expires = Instant::FAR_FUTURE;
            lend!(Requests, self).kill(id, Death::TooOld);
        }
        self.expire_snapshot_waits();
        lend!(MajorityCommits, self).expire_majority_waits();
        self.data.transactions.outcomes.expire(self.now.mono);
    }
}

impl Requests<'_> {
    /// Ends an open transaction that can no longer commit; its client learns it from its next call.
    fn kill(&mut self, id: TxnId, death: Death) {
        let Some(Txn::Open(open)) = self.data.transactions.rows.remove(&id) else {
            unreachable!("only open transactions are killed, {id:?} is not");
        };
        self.bury(id, death);
        self.close(id, *open, Position::default());
    }

    /// Remembers a dead transaction until its client asks; at most as many as may be open.
    fn bury(&mut self, id: TxnId, death: Death) {
        self.out.counts.transactions_killed += 1;
        self.data.transactions.dead.insert(id, death, self.config.local.max_transactions);
    }

    /// Releases the locks and the snapshot of an open transaction. `position`: of its commit, if it has one.
    fn close(&mut self, id: TxnId, open: Open, position: Position) {
        self.forget_open(id, open.expires, open.at);
        if let Some(request) = open.request.and_then(|request| self.locks.requests().find(request)) {
            self.end_held(request, position);
        }
    }

    /// Removes the deadline of a transaction and closes its snapshot.
    fn forget_open(&mut self, id: TxnId, expires: Instant, at: Position) {
        self.data.transactions.deadlines.remove(expires, id);
        self.data.store.close_snapshot(at);
    }

    /// The contents that snapshots show are about to be replaced: ends all open transactions.
    pub(in crate::replica) fn end_open_transactions(&mut self) {
        for id in self.data.transactions.rows.open() {
            self.kill(id, Death::StateReplaced);
        }
    }

    /// The request of a transaction ended before the transaction did.
    pub(in crate::replica) fn txn_lost_locks(&mut self, id: TxnId, death: Death) {
        match self.data.transactions.rows.get(&id) {
            // The code that ended the request answers its call, unless the request was granted.
            Some(Txn::Waiting(waiting)) => {
                let (call, granted) = (waiting.call, waiting.token.is_some());
                self.data.transactions.rows.remove(&id);
                self.data.transactions.waits.forget_txn(id);
                if granted {
                    let refusal = death.refusal(id, self.config);
                    self.out.refuse(call, refusal);
                }
            }
            Some(Txn::Open(open)) => {
                let (expires, at) = (open.expires, open.at);
                self.forget_open(id, expires, at);
                self.data.transactions.rows.remove(&id);
                self.bury(id, death);
            }
            None => {}
        }
    }

    /// A lease ends: its transactions end before its requests do.
    pub(in crate::replica) fn end_transactions_of(&mut self, lease: LeaseId) {
        self.data.transactions.dead.acknowledge(lease, IdempotencyKey::MAX);
        for id in self.data.transactions.of_lease(lease) {
            match self.data.transactions.rows.remove(&id) {
                Some(Txn::Open(open)) => self.forget_open(id, open.expires, open.at),
                Some(Txn::Waiting(waiting)) => {
                    self.data.transactions.waits.forget_txn(id);
                    // A transaction that waits for locks is answered when its request ends.
                    let answered = waiting.request.is_some() && waiting.token.is_none();
                    if !answered {
                        self.out.refuse(waiting.call, Refusal::LeaseEnded);
                    }
                }
                None => {}
            }
        }
        let left = self.data.transactions.of_lease(lease);
        debug_assert!(left.is_empty(), "{left:?} end before their lease");
    }
}
