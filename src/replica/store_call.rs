//! What clients ask of the store, and what they are told.
//!
//! A transaction is named by its lease and the client key that began it, so that whoever lost an answer asks again
//! under the same name. It goes in steps: the first one begins it and may take locks, the last one ends it; one step can
//! be both. A step changes first, then reads, and readers see the changes.

use std::sync::Arc;
use std::time::Duration;

use crate::causal_log::{Change, Wants};
use crate::crdt::VersionVector;
use crate::crdt::value::Reading;
use crate::keys::Key;
use crate::leases::Proof;
use crate::names::{ClientKey, DcId, FencingToken, LeaseId};
use crate::replica::call::Wait;
use crate::replica::forced::Forced;
use crate::store_state::ChangeError;
use crate::time::brief;

/// Most bytes of one change: what it writes, about.
pub const MAX_CHANGE_BYTES: usize = 1 << 20;
/// Most keys that one step reads.
pub const MAX_READS: usize = 1_000;
/// Longest wait for a snapshot.
pub const MAX_SNAPSHOT_WAIT: Duration = Duration::from_secs(60);

/// Begins a transaction. The same again, by lease and key: goes on with it, or says how it ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Begin {
    pub lease: LeaseId,
    pub proof: Proof,
    pub key: ClientKey,
    pub locks: Option<BeginLocks>,
    pub at_least: AtLeast,
    /// The client knows how all its transactions up to this one ended: they need not be remembered any more.
    pub settled: ClientKey,
    pub step: Step,
}

/// What to hold from before the snapshot until the end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BeginLocks {
    pub wants: Wants,
    pub wait: Wait,
    pub label: Arc<str>,
}

/// The snapshot shall show all of this: what the client read or committed elsewhere. Waits for it, but not for ever.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AtLeast {
    pub snapshot: VersionVector,
    pub patience: Duration,
}

/// One step of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    pub changes: Vec<Change>,
    pub reads: Vec<Key>,
    pub then: Then,
}

impl Step {
    /// About how many bytes this takes while it waits.
    pub fn weight(&self) -> usize {
        reads_weight(&self.reads) + self.changes.iter().map(Change::weight).sum::<usize>()
    }
}

/// About how many bytes these take while they wait to be read.
pub fn reads_weight(reads: &[Key]) -> usize {
    reads.iter().map(|key| 32 + key.as_bytes().len()).sum()
}

/// What follows a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    GoOn,
    Commit,
    /// Nothing of the transaction ever happened; reads are answered.
    Abort,
}

/// Goes on with a transaction that is open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GoOn {
    pub lease: LeaseId,
    pub proof: Proof,
    pub key: ClientKey,
    /// How many changes the transaction has, as far as the client was told. What of this step was made already,
    /// because the client lost the answer and asks again, is not made twice.
    pub after: usize,
    pub step: Step,
}

/// Reads without a transaction, all at one snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Look {
    pub reads: Vec<Key>,
    pub at_least: AtLeast,
}

/// The answer to a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stepped {
    pub snapshot: Arc<VersionVector>,
    /// If the transaction took locks.
    pub token: Option<FencingToken>,
    /// In the order asked; `None` for a key without a value.
    pub values: Vec<Option<Reading>>,
    pub state: TxnState,
}

/// Where a transaction stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TxnState {
    Open,
    /// In every snapshot that has this.
    Committed(Arc<VersionVector>),
    Aborted,
}

/// Why a transaction is refused. Nothing of the step was done; unless it says otherwise the transaction is as before.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TxnRefusal {
    #[error(transparent)]
    Change(#[from] ChangeError),
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
    Unknown(ClientKey),
    #[error("transaction {0} still waits for its locks or its snapshot: its begin is not answered yet")]
    NotOpenYet(ClientKey),
    #[error(
        "this step of transaction {key} follows {after} changes, and it has only {made}: a step before it is missing"
    )]
    StepMissing { key: ClientKey, after: usize, made: usize },
    #[error("transaction {key} was open for longer than {limit}: it is aborted, its locks are released", key = .0, limit = brief(*.1))]
    TooOld(ClientKey, Duration),
    #[error("transaction {0} lost its locks: it is aborted")]
    LocksLost(ClientKey),
    #[error("transaction {key} lost its locks, it is aborted: {forced}")]
    ForcedOut { key: ClientKey, forced: Arc<Forced> },
    #[error(
        "transaction {0} read at a snapshot that is gone: its datacenter had been away for long and took over the state of another one; it is aborted, its locks are released"
    )]
    StateReplaced(ClientKey),
    #[error("what became of transaction {0} is not remembered any more; it will not be committed now")]
    OutcomeUnknown(ClientKey),
    #[error("transaction {0} is over: it is committed")]
    Over(ClientKey),
    #[error(
        "the snapshot asked for has entry {seq} of this datacenter, which has made {made}: it is not from here, or not from this past"
    )]
    FromTheFuture { seq: u64, made: u64 },
    #[error("{0} is no member of this cluster")]
    UnknownDc(DcId),
    #[error("this datacenter did not get what the snapshot asked for in time; it lacks {lacks}")]
    SnapshotNotReached { lacks: VersionVector },
    #[error("this datacenter cannot commit now: {0}")]
    CannotCommit(&'static str),
}
