//! Transactions of clients: locks first, then a snapshot, then steps, then a commit.
//!
//! ```text
//!  Begin --> [ waits for locks ] --> [ waits for its snapshot ] --> open --steps--> commit: one entry of the log,
//!              (if it wants any)      (if it asks for more than       |              locks released with it,
//!                                      is durable here)               |              answered when it is durable
//!                                                                     '--> abort, too old, locks lost: no trace
//! ```
//!
//! The snapshot is the durable vector at the moment the transaction opens. A lock remembers the journal position of the
//! last commit under it, and its grant is told only when that is durable: so of two transactions that conflict on a
//! lock, one's commit is in the other's snapshot, here and, as parts travel in the same log, everywhere.

mod begin;
mod commit;
mod content;
mod dead;
mod outcomes;
mod rows;
mod snapshot_waits;
mod steps;

use std::sync::Arc;

use content::Content;
use dead::Dead;
pub use outcomes::OutcomeRow;
pub(super) use outcomes::Outcomes;
use rows::Rows;
use snapshot_waits::SnapshotWaits;

use super::Replica;
use super::call::{CallId, Refusal};
use super::forced::Forced;
use super::store_call::Begin;
use crate::causal_log::Change;
use crate::crdt::VersionVector;
use crate::deadlines::Deadlines;
use crate::names::{ClientKey, FencingToken, LeaseId, Position, RequestId};
use crate::time::Instant;
use crate::work;

/// Transactions, and waits for snapshots, that one step ends because their time is over, at most.
const EXPIRED_PER_STEP: usize = 256;

/// A transaction of this datacenter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct TxnId {
    pub lease: LeaseId,
    pub key: ClientKey,
}

/// All that is remembered of transactions.
#[derive(Default)]
pub(super) struct Transactions {
    rows: Rows,
    dead: Dead,
    deadlines: Deadlines<TxnId>,
    waits: SnapshotWaits,
    pub(super) outcomes: Outcomes,
}

enum Txn {
    Waiting(Box<Waiting>),
    Open(Box<Open>),
}

impl Txn {
    /// About how many bytes it keeps of what it was asked for.
    fn bytes(&self) -> usize {
        match self {
            Txn::Waiting(waiting) => waiting.bytes,
            Txn::Open(open) => open.bytes,
        }
    }
}

/// Not open yet.
struct Waiting {
    /// Whom to answer; a retry takes the place of the call before it.
    call: CallId,
    begin: Begin,
    content: Content,
    /// The request for its locks.
    request: Option<RequestId>,
    /// Once they are granted.
    token: Option<FencingToken>,
    /// Of its first step: changes, and keys to read.
    bytes: usize,
}

struct Open {
    at: Position,
    snapshot: Arc<VersionVector>,
    request: Option<RequestId>,
    token: Option<FencingToken>,
    content: Content,
    changes: Vec<Change>,
    bytes: usize,
    expires: Instant,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Death {
    TooOld,
    LocksLost,
    /// An operator took its locks away.
    ForcedOut(Arc<Forced>),
    /// The datacenter took over the state of another one: the snapshot is no more.
    StateReplaced,
}

impl Transactions {
    /// What a transaction that is not over was begun with.
    fn content_of(&self, id: TxnId) -> Option<Content> {
        match self.rows.get(&id)? {
            Txn::Waiting(waiting) => Some(waiting.content),
            Txn::Open(open) => Some(open.content),
        }
    }

    #[inline]
    pub fn next_deadline(&self) -> Instant {
        let waits = self.waits.next_deadline().min(self.outcomes.next_deadline());
        self.deadlines.next_or_never().min(waits)
    }

    /// Open or waiting.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether it is under way, or known how it ended.
    pub fn knows(&self, id: TxnId) -> bool {
        let is_settled = id.key <= self.outcomes.settled(id.lease);
        let is_there = self.rows.get(&id).is_some() || self.dead.knows(&id);
        is_settled || is_there || self.outcomes.get(id.lease, id.key).is_some()
    }

    /// Those of a lease.
    fn of_lease(&self, lease: LeaseId) -> Vec<TxnId> {
        let (first, last) = (TxnId { lease, key: 0 }, TxnId { lease, key: ClientKey::MAX });
        self.rows.range(first..=last).collect()
    }
}

impl Replica {
    /// Ends what was open for too long, and waits that are over.
    pub(super) fn expire_transactions(&mut self) {
        for _ in 0..EXPIRED_PER_STEP {
            let Some(id) = self.transactions.deadlines.pop_expired(self.now.mono) else { break };
            work::count(1);
            if let Some(Txn::Open(open)) = self.transactions.rows.get_mut(&id) {
                // It was taken off the list just now.
                open.expires = Instant::FAR_FUTURE;
                self.kill(id, Death::TooOld);
            }
        }
        self.expire_snapshot_waits();
        self.transactions.outcomes.expire(self.now.mono);
    }

    /// An open transaction can go no further; its client learns it from its next call.
    fn kill(&mut self, id: TxnId, death: Death) {
        let Some(Txn::Open(open)) = self.transactions.rows.remove(&id) else {
            unreachable!("only open transactions are killed, {id:?} is not");
        };
        self.bury(id, death);
        self.close(id, *open, Position::default());
    }

    /// Its client hears of it when it asks; as many are remembered as may be open.
    fn bury(&mut self, id: TxnId, death: Death) {
        self.counts.transactions_killed += 1;
        self.transactions.dead.insert(id, death, self.config.local.max_transactions);
    }

    /// Lets go what an open transaction had. `position`: of its commit, if it has one.
    fn close(&mut self, id: TxnId, open: Open, position: Position) {
        self.forget_open(id, open.expires, open.at);
        if let Some(request) = open.request.and_then(|request| self.locks.find(request)) {
            self.end_held(request, position);
        }
    }

    /// Nothing waits for its end any more, and its snapshot need not be kept.
    fn forget_open(&mut self, id: TxnId, expires: Instant, at: Position) {
        self.transactions.deadlines.remove(expires, id);
        self.store.close_snapshot(at);
    }

    /// What snapshots show is about to be replaced: no open transaction can go on.
    pub(super) fn end_open_transactions(&mut self) {
        for id in self.transactions.rows.open() {
            self.kill(id, Death::StateReplaced);
        }
    }

    /// The request of a transaction is over, and not because the transaction ended.
    pub(super) fn txn_lost_locks(&mut self, id: TxnId, death: Death) {
        match self.transactions.rows.get(&id) {
            // Its call is answered by whoever ended the request, unless it had been granted.
            Some(Txn::Waiting(waiting)) => {
                let (call, granted) = (waiting.call, waiting.token.is_some());
                self.transactions.rows.remove(&id);
                self.transactions.waits.forget_txn(id);
                if granted {
                    let refusal = self.epitaph(id, death);
                    self.refuse(call, refusal);
                }
            }
            Some(Txn::Open(open)) => {
                let (expires, at) = (open.expires, open.at);
                self.forget_open(id, expires, at);
                self.transactions.rows.remove(&id);
                self.bury(id, death);
            }
            None => {}
        }
    }

    /// A lease ends: its transactions end with it, before its requests do.
    pub(super) fn end_transactions_of(&mut self, lease: LeaseId) {
        self.transactions.dead.settle(lease, ClientKey::MAX);
        for id in self.transactions.of_lease(lease) {
            match self.transactions.rows.remove(&id) {
                Some(Txn::Open(open)) => self.forget_open(id, open.expires, open.at),
                Some(Txn::Waiting(waiting)) => {
                    self.transactions.waits.forget_txn(id);
                    // One that waits for locks is answered when its request ends.
                    let answered = waiting.request.is_some() && waiting.token.is_none();
                    if !answered {
                        self.refuse(waiting.call, Refusal::LeaseEnded);
                    }
                }
                None => {}
            }
        }
    }
}
