//! Calls of clients to the store, and their replies.
//!
//! A transaction is named by its lease and the idempotency key that began it, so a client that lost a reply
//! asks again under the same name. It consists of steps: the first one begins it and may take locks, the last
//! one ends it; one step can be both. A step first changes, then reads; its reads see the changes.

use std::sync::Arc;
use std::time::Duration;

use crate::base::time::brief;
use crate::causal_log::Change;
use crate::crdt::VersionVector;
pub use crate::crdt::value::SharedValue;
use crate::leases::Proof;
use crate::replica::call::LockRequest;
use crate::replica::clients::force_release::ForceReleased;
use crate::store_state::ChangeError;
use geolock_api::keys::Key;
use geolock_api::names::{DcId, DcSet, EntryNumber, FencingToken, IdempotencyKey, LeaseId, RequestId};
use geolock_api::value::Reading;

/// Most bytes of one change, approximately.
pub const MAX_CHANGE_BYTES: usize = 1 << 20;
/// Most keys that one step reads.
pub const MAX_READS: usize = 1_000;
/// Most guards of one transaction.
pub const MAX_GUARDS: usize = 16;
/// Longest wait for a majority.
pub const MAX_MAJORITY_WAIT: Duration = Duration::from_secs(60);
/// The wait for a majority if the call does not give one.
pub const MAJORITY_WAIT: Duration = Duration::from_secs(10);
/// The wait for the data of the cluster in a datacenter that has none yet, unless the call waits longer for a
/// snapshot: members of a new cluster hear each other within a second, and a client waits 10 s for an answer.
pub const STATE_WAIT: Duration = Duration::from_secs(5);
/// Longest wait for a snapshot.
pub const MAX_SNAPSHOT_WAIT: Duration = Duration::from_secs(60);

/// Begins a transaction. A repeated begin, by lease and key, continues it or gets its outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Begin {
    /// The lease that the transaction runs under.
    pub lease: LeaseId,
    /// Shows that the lease is the client's own.
    pub proof: Proof,
    /// Names the transaction within its lease. Acquires and transactions share one series of keys.
    pub key: IdempotencyKey,
    /// The locks that the transaction takes, if any.
    pub locks: Option<LockRequest>,
    /// Held requests of the lease, at most [`MAX_GUARDS`]: the transaction commits only while all are held.
    pub under: Vec<RequestId>,
    /// Lower bound of the snapshot.
    pub at_least: AtLeast,
    /// The client has recorded the outcomes of all its transactions up to this key: they may be dropped.
    pub acknowledged_through: IdempotencyKey,
    /// The first step, made when the transaction is open.
    pub step: Step,
}

/// The snapshot must contain this vector, such as one that the client read or committed elsewhere. The server
/// waits for it. The default is satisfied by any snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AtLeast {
    /// The vector.
    pub snapshot: VersionVector,
    /// Longest wait, at most [`MAX_SNAPSHOT_WAIT`]; then the call is refused with
    /// [`TxnRefusal::SnapshotNotReached`].
    pub patience: Duration,
}

/// One step of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// The changes, in their order. Each has at most [`MAX_CHANGE_BYTES`].
    pub changes: Vec<Change>,
    /// The keys to read after the changes, at most [`MAX_READS`].
    pub reads: Vec<Key>,
    /// How the transaction continues.
    pub then: Then,
    /// Counts if the step commits. It is no part of the content: a repeated call may ask for another one.
    pub durability: Durability,
}

impl Step {
    /// Returns the approximate number of bytes that it takes while it waits.
    pub fn weight(&self) -> usize {
        reads_weight(&self.reads) + self.changes.iter().map(Change::weight).sum::<usize>()
    }
}

/// Returns the approximate number of bytes that these keys take while they wait to be read.
pub fn reads_weight(reads: &[Key]) -> usize {
    reads.iter().map(|key| 32 + key.as_bytes().len()).sum()
}

/// The action after a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// The transaction stays open.
    Continue,
    /// The transaction commits all its changes, and releases its locks.
    Commit,
    /// The transaction leaves no trace; the reads of the step are answered.
    Abort,
}

/// Where a commit must be on disk before it is answered. It is made here at once in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "each variant explains its fields")]
pub enum Durability {
    /// In this datacenter.
    #[default]
    Local,
    /// In more than half of the members. After `wait`, [`MAX_MAJORITY_WAIT`] at most, the answer is
    /// [`Durable::NotAtMajority`]. A transaction without changes has nothing to wait for.
    Majority { wait: Duration },
}

impl Durability {
    /// At a majority, with the default wait.
    pub const MAJORITY: Durability = Durability::Majority { wait: MAJORITY_WAIT };
}

/// Where a commit is known to be on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "each variant explains its fields")]
pub enum Durable {
    /// In this datacenter; the client did not ask for more.
    Here,
    /// In more than half of the members.
    AtMajority,
    /// In this datacenter, and a majority was required: it stays committed, but the wait for the majority is
    /// over. `missing` are the members that are not known to have it.
    NotAtMajority { missing: DcSet },
}

/// Makes a step of an open transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NextStep {
    /// As in [`Begin`]; so are `proof` and `key`.
    pub lease: LeaseId,
    /// Shows that the lease is the client's own.
    pub proof: Proof,
    /// Names the transaction within its lease.
    pub key: IdempotencyKey,
    /// Number of changes of the transaction, as far as the client knows. Changes of this step that were made
    /// already, because the client lost the reply and repeats the step, are not made twice.
    pub after: usize,
    /// The step.
    pub step: Step,
}

/// Reads outside of a transaction, all at one snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Read {
    /// The keys, at most [`MAX_READS`].
    pub reads: Vec<Key>,
    /// Lower bound of the snapshot.
    pub at_least: AtLeast,
}

/// The reply to a step, or to a read outside of a transaction. The reply to a call that repeats a commit has
/// no token and no values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stepped {
    /// The snapshot of the reads; for a repeated commit, the vector of the commit.
    pub snapshot: Arc<VersionVector>,
    /// Set if the transaction took locks.
    pub token: Option<FencingToken>,
    /// In the order of the reads; `None` for a key without a value.
    pub values: Vec<Option<SharedValue>>,
    /// The state of the transaction; of a read outside of one [`TxnState::Aborted`].
    pub state: TxnState,
    /// Of a commit; [`Durable::Here`] in all other states.
    pub durable: Durable,
}

impl Stepped {
    /// Builds the readings, which takes time for each element.
    pub fn readings(&self) -> Vec<Option<Reading>> {
        self.values.iter().map(|value| value.as_ref().map(SharedValue::reading)).collect()
    }
}

/// The state of a transaction after a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TxnState {
    /// The transaction takes further steps.
    Open,
    /// Every snapshot that covers this vector has the commit.
    Committed(Arc<VersionVector>),
    /// The transaction left no trace.
    Aborted,
}

/// The reason why a transaction is refused. Nothing of the step was done; unless the reason says otherwise,
/// the transaction is as before.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages explain the variants")]
pub enum TxnRefusal {
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// `index`: the place of the change in its step, from 0.
    #[error("change {index} has {bytes} bytes, at most {MAX_CHANGE_BYTES} are allowed")]
    ChangeTooLarge { index: usize, bytes: usize },
    #[error(
        "the transaction has {changes} changes of {bytes} bytes, at most {max_changes} of {max_bytes} are allowed"
    )]
    TooLarge { changes: usize, bytes: usize, max_changes: usize, max_bytes: usize },
    #[error("{0} keys are read in one step, at most {MAX_READS} are allowed")]
    TooManyReads(usize),
    #[error("what is read has more than {0} bytes: read less in one step")]
    ReadsTooLarge(usize),
    #[error(
        "there is no open transaction {0} of this lease: it was never begun, it was aborted, or the server restarted since; it did not commit"
    )]
    Unknown(IdempotencyKey),
    #[error("transaction {0} still waits for its locks or its snapshot: its begin is not answered yet")]
    NotOpenYet(IdempotencyKey),
    #[error(
        "this step of transaction {key} follows {after} changes, and it has only {made}: a step before it is missing"
    )]
    StepMissing { key: IdempotencyKey, after: usize, made: usize },
    #[error("transaction {key} was open for longer than {limit}: it is aborted, its locks are released", key = .0, limit = brief(*.1))]
    TooOld(IdempotencyKey, Duration),
    #[error("transaction {0} lost its locks: it is aborted")]
    LocksLost(IdempotencyKey),
    #[error("a transaction runs under at most {MAX_GUARDS} requests, {0} are named")]
    TooManyGuards(usize),
    #[error(
        "this lease does not hold request {0}, under which the transaction is to run: it waits, or is not of this lease"
    )]
    NotHeld(RequestId),
    #[error("transaction {key} lost its locks, it is aborted: {forced}")]
    ForceReleased { key: IdempotencyKey, forced: Arc<ForceReleased> },
    #[error(
        "transaction {0} read at a snapshot that is gone: its datacenter lacked entries that no other one keeps any more, and took over the state of another one; it is aborted, its locks are released"
    )]
    StateReplaced(IdempotencyKey),
    /// Its client has acknowledged the outcome, or the disk lost the lease under which it committed.
    #[error("what became of transaction {0} is not remembered any more; it will not be committed now")]
    OutcomeUnknown(IdempotencyKey),
    /// The reply to a step that continues or aborts; one that commits gets the outcome.
    #[error("transaction {0} is over: it is committed")]
    Committed(IdempotencyKey),
    #[error(
        "the snapshot asked for has entry {} of this datacenter, which has made {}: it is not from here, or not from this past",
        EntryNumber(*.seq), EntryNumber(*.made)
    )]
    SnapshotAhead { seq: u64, made: u64 },
    #[error(
        "the snapshot asked for has entry {} of {dc}, which was lost with that server: its entries count up to {}; \
         read again, without that snapshot",
        EntryNumber(*.seq), EntryNumber(*.cut)
    )]
    SnapshotLost { dc: DcId, seq: u64, cut: u64 },
    #[error("{0} is no member of this cluster")]
    UnknownDc(DcId),
    #[error("this datacenter did not get what the snapshot asked for in time; it lacks {lacks}")]
    SnapshotNotReached { lacks: VersionVector },
    #[error(
        "this datacenter has no data yet: it is new, or its disk was lost, and it waits for what the others have; try again \
         when its phase is serving, or read in another datacenter"
    )]
    NoState,
    /// The reason is a property of the datacenter at this moment; the transaction stays open.
    #[error("this datacenter cannot commit now: {0}")]
    CannotCommit(&'static str),
}
