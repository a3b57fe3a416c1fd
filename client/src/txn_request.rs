//! The request of a transaction, and its steps.

use std::time::Duration;

use prost::Message;

use super::changes;
use super::error::AcquireError;
use super::request::{AcquireRequest, Wait, millis};
use super::txn_error::TxnError;
use geolock_api::keys::Key;
use geolock_api::names::{LockName, Mode, RequestId};
use geolock_api::proto::{self, LockMode, Reason, Snapshot, begin_locks};
use geolock_api::value::Update;

/// Largest step and the locks beside it, in bytes: the server's limit, less the space for the surrounding
/// fields.
const MAX_STEP: usize = (2 << 20) - (4 << 10);
/// Largest encoding of the length of one lock of a request, in bytes.
const AROUND_A_LOCK: usize = 4;
/// Most guards of a transaction: the server's limit.
const MAX_GUARDS: usize = 16;
/// Default wait for a majority.
const MAJORITY_WAIT: Duration = Duration::from_secs(10);
/// Default wait for a snapshot.
const PATIENCE: Duration = Duration::from_secs(10);

/// The least snapshot of a read: that of an earlier read or commit, in any datacenter. The default has no
/// requirement.
#[derive(Clone, Debug, PartialEq)]
pub struct AtLeast {
    /// The snapshot that the read must contain.
    pub snapshot: Snapshot,
    /// Longest wait until this datacenter has that snapshot, at most a minute. Default 10 s.
    pub patience: Duration,
}

impl Default for AtLeast {
    fn default() -> AtLeast {
        AtLeast { snapshot: Snapshot::default(), patience: PATIENCE }
    }
}

impl AtLeast {
    /// Requires all of `snapshot`.
    pub fn snapshot(snapshot: &Snapshot) -> AtLeast {
        AtLeast { snapshot: snapshot.clone(), ..AtLeast::default() }
    }

    pub(super) fn to_proto(&self) -> Option<proto::AtLeast> {
        let asked = !self.snapshot.seqs.is_empty();
        asked
            .then(|| proto::AtLeast { snapshot: Some(self.snapshot.clone()), wait_ms: millis(self.patience) })
    }
}

/// The beginning of a transaction. The default takes no locks and any snapshot.
///
/// With locks: of two transactions that conflict on a lock, one's commit is in the other's snapshot, also in
/// different datacenters. Without another setting the transaction waits for its locks for ever.
#[derive(Clone, Debug, Default)]
pub struct TxnRequest {
    locks: Option<AcquireRequest>,
    under: Vec<proto::RequestId>,
    wait: Option<Wait>,
    label: String,
    at_least: AtLeast,
    durability: CommitWait,
}

/// Where a commit must be on disk before it is answered. It is made at once in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// In the datacenter of the server. The default.
    #[default]
    Local,
    /// In more than half of the datacenters, and of those that vote: the commit survives the loss of any
    /// smaller part of them. Costs a round trip to the nearest majority.
    Majority,
}

/// The durability that a commit asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommitWait {
    durability: Durability,
    wait: Duration,
}

impl Default for CommitWait {
    fn default() -> CommitWait {
        CommitWait { durability: Durability::Local, wait: MAJORITY_WAIT }
    }
}

impl CommitWait {
    pub fn is_at_majority(self) -> bool {
        self.durability == Durability::Majority
    }

    /// Sets the fields of a step. Only a commit reads them.
    pub fn put_into(self, step: &mut proto::Step) {
        if self.is_at_majority() {
            step.set_durability(proto::Durability::Majority);
            // 0 would be the server's default.
            step.majority_wait_ms = millis(self.wait).max(1);
        }
    }
}

impl TxnRequest {
    /// Returns a request without locks, for any snapshot.
    pub fn new() -> TxnRequest {
        TxnRequest::default()
    }

    /// Begins under `name` in exclusive mode.
    pub fn exclusive(name: LockName) -> TxnRequest {
        TxnRequest::new().lock(name, Mode::Exclusive)
    }

    /// Begins under `name` in shared mode.
    pub fn shared(name: LockName) -> TxnRequest {
        TxnRequest::new().lock(name, Mode::Shared)
    }

    /// Adds a lock. The same lock twice means the stronger mode; at most 10 000 locks.
    #[must_use]
    pub fn lock(mut self, name: LockName, mode: Mode) -> TxnRequest {
        self.locks = Some(match (self.locks.take(), mode) {
            (Some(locks), mode) => locks.and(name, mode),
            (None, Mode::Exclusive) => AcquireRequest::exclusive(name),
            (None, Mode::Shared) => AcquireRequest::shared(name),
        });
        self
    }

    /// Sets how long to wait for the locks.
    #[must_use]
    pub fn wait(mut self, wait: Wait) -> TxnRequest {
        self.wait = Some(wait);
        self
    }

    /// As [`AcquireRequest::label`].
    #[must_use]
    pub fn label(mut self, text: impl Into<String>) -> TxnRequest {
        self.label = text.into();
        self
    }

    /// Requires a snapshot that contains this one.
    #[must_use]
    pub fn at_least(mut self, at_least: AtLeast) -> TxnRequest {
        self.at_least = at_least;
        self
    }

    /// Sets where the commit must be on disk before it is answered. If a majority does not have it in time,
    /// the commit returns [`CommitError::NotAtMajority`](super::CommitError::NotAtMajority).
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> TxnRequest {
        self.durability.durability = durability;
        self
    }

    /// Sets how long a commit with [`Durability::Majority`] waits for the majority: at most a minute. Default
    /// 10 s.
    #[must_use]
    pub fn majority_wait(mut self, wait: Duration) -> TxnRequest {
        self.durability.wait = wait;
        self
    }

    pub(super) fn under_request(mut self, id: RequestId) -> TxnRequest {
        self.under.push(proto::RequestId { dc: id.dc.get().into(), n: id.n });
        self
    }

    pub(super) fn commit_wait(&self) -> CommitWait {
        self.durability
    }

    pub(super) fn check(&self) -> Result<(), TxnError> {
        if self.under.len() > MAX_GUARDS {
            let message = format!(
                "a transaction runs under at most {MAX_GUARDS} guards; here it is {}",
                self.under.len()
            );
            return Err(TxnError::Refused(Reason::TransactionTooLarge, message));
        }
        let checked = self.locks.clone().map_or(Ok(()), |locks| locks.label(self.label.clone()).check());
        checked.map_err(|error| match error {
            AcquireError::Refused(reason, message) => TxnError::Refused(reason, message),
            other => TxnError::NotBegun(other),
        })
    }

    /// Returns the message for the session.
    pub(super) fn with_step(self, mut step: proto::Step) -> Result<NewTxn, TxnError> {
        self.durability.put_into(&mut step);
        let locks = self.locks.map(|locks| locks.locks);
        let new = NewTxn {
            locks: locks.unwrap_or_default(),
            under: self.under,
            wait: self.wait.unwrap_or(Wait::Forever),
            label: self.label,
            at_least: self.at_least.to_proto(),
            step,
        };
        let locks: usize = new.locks.iter().map(|lock| lock.encoded_len() + AROUND_A_LOCK).sum();
        let at_least = new.at_least.as_ref().map_or(0, Message::encoded_len);
        check_size(
            "the locks and the first step of a transaction have",
            locks + at_least + new.step.encoded_len(),
        )?;
        Ok(new)
    }
}

/// A transaction to begin.
#[derive(Clone, Debug)]
pub(super) struct NewTxn {
    /// May be empty.
    pub locks: Vec<LockMode>,
    /// May be empty.
    pub under: Vec<proto::RequestId>,
    pub wait: Wait,
    pub label: String,
    pub at_least: Option<proto::AtLeast>,
    pub step: proto::Step,
}

impl Wait {
    /// Returns the message for a begin, when `left` is left of the wait.
    pub(super) fn to_begin(self, left: Duration) -> begin_locks::Wait {
        match self {
            Wait::Try => begin_locks::Wait::TryOnce(proto::TryOnce {}),
            Wait::AtMost(_) => begin_locks::Wait::WaitMs(millis(left)),
            Wait::Forever => begin_locks::Wait::WaitForever(proto::WaitForever {}),
        }
    }
}

/// Changes, then reads, in one step. At most 1 MiB a change and 2 MiB a step; at most 4 MiB of changes in a
/// transaction, and 1 000 reads in a step.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    changes: Vec<proto::Change>,
    reads: Vec<proto::Key>,
}

impl Batch {
    /// Returns an empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Changes the value of the key.
    #[must_use]
    pub fn update(mut self, key: &Key, update: Update) -> Batch {
        self.changes.push(changes::change(key, update));
        self
    }

    /// Removes the key with all its content. A removal is final: a concurrent update is lost.
    #[must_use]
    pub fn remove(mut self, key: &Key) -> Batch {
        self.changes.push(changes::removal(key));
        self
    }

    /// Lets the key expire, with all its content, when that time has passed since the commit, or somewhat
    /// later: up to 10 years. The key never expires before the end of an earlier call of this kind, in any
    /// datacenter.
    #[must_use]
    pub fn expire(mut self, key: &Key, after: Duration) -> Batch {
        self.changes.push(changes::expiry(key, after));
        self
    }

    /// Reads the key after all changes, independent of the order of the calls.
    #[must_use]
    pub fn read(mut self, key: &Key) -> Batch {
        self.reads.push(changes::key(key));
        self
    }

    pub(super) fn reads(&self) -> usize {
        self.reads.len()
    }

    pub(super) fn into_step(self, then: proto::Then) -> Result<proto::Step, TxnError> {
        let (changes, reads) = (self.changes, self.reads);
        let step = proto::Step { changes, reads, then: then.into(), ..proto::Step::default() };
        check_size("a step has", step.encoded_len())?;
        Ok(step)
    }
}

/// A message that is too large would end the stream, and so would each repetition of it.
fn check_size(has: &str, bytes: usize) -> Result<(), TxnError> {
    if bytes <= MAX_STEP {
        return Ok(());
    }
    let message = format!("{has} at most {MAX_STEP} bytes; here it is {bytes}");
    Err(TxnError::Refused(Reason::TransactionTooLarge, message))
}
