//! Transactions, as callers use them.

use std::sync::Arc;
use std::time::Duration;

use super::error::ClientError;
use super::guard::LockGuard;
use super::handle::{Client, Handle};
use super::read_client::ReadResult;
use super::txn_error::{CommitError, NotAtMajority, TxnError};
use super::txn_request::{AtLeast, Batch, CommitWait, Durability, TxnRequest};
use super::values::Value;
use geolock_api::keys::Key;
use geolock_api::names::{DcId, FencingToken};
use geolock_api::proto::{self, Snapshot, StepResponse, Then};
use geolock_api::value::Update;

/// An open transaction: it reads one snapshot and its own writes on top, and commits all or nothing. Dropping
/// it aborts it.
///
/// A refused read or update leaves the transaction as it was. Dropping the future of an update leaves open
/// if it was made. The server ends a transaction that is open for too long, 20 s unless configured, and
/// every open one when it restarts, together with its locks. After that every call fails with
/// [`TxnError::Over`], and none of its changes ever happen.
#[must_use = "the transaction is aborted when it is dropped"]
pub struct Transaction {
    ticket: Ticket,
    snapshot: Snapshot,
    token: Option<FencingToken>,
    commit_wait: CommitWait,
}

/// The result of a one-shot transaction.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Transacted {
    /// The snapshot that contains this commit. Pass it to readers that must see the commit.
    pub commit: Snapshot,
    /// In the order of the reads. `None` if the answer was lost: the transaction is known to have committed,
    /// but the values are not known.
    pub values: Option<Vec<Value>>,
    /// Where the commit is known to be on disk: at least as the request required.
    pub durability: Durability,
}

/// Ends the transaction when its handle or future is dropped.
struct Ticket {
    handle: Arc<Handle>,
    number: u64,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.handle.shared.give_up(self.number);
    }
}

impl Ticket {
    async fn step(&self, batch: Batch, then: Then, wait: CommitWait) -> Result<StepResponse, CommitError> {
        let mut step = batch.into_step(then)?;
        wait.put_into(&mut step);
        let outcome = self.handle.shared.step_of(self.number, step)?;
        outcome.await.unwrap_or(Err(TxnError::Closed.into()))
    }
}

impl Client {
    /// Acquires the locks, then opens a snapshot that contains every commit ever made under them. Dropping
    /// the future cancels the transaction.
    pub async fn begin(&self, request: TxnRequest) -> Result<Transaction, TxnError> {
        let commit_wait = request.commit_wait();
        let (ticket, answer) = self.start(request, Batch::new(), Then::Continue).await?;
        let token = Some(FencingToken(answer.token)).filter(|token| token.0 > 0);
        Ok(Transaction { ticket, snapshot: answer.snapshot.unwrap_or_default(), token, commit_wait })
    }

    /// Runs a whole transaction in one round trip: locks, changes, reads, commit. The client asks again until
    /// the outcome is known, and the transaction commits at most once. Dropping the future leaves open if it
    /// commits.
    pub async fn transact(&self, request: TxnRequest, batch: Batch) -> Result<Transacted, CommitError> {
        let (reads, wait) = (batch.reads(), request.commit_wait());
        let (_, answer) = self.start(request, batch, Then::Commit).await?;
        transacted(answer, reads, wait)
    }

    /// Makes one change of one key, without locks. As [`Client::transact`].
    pub async fn update(&self, key: &Key, update: Update) -> Result<Snapshot, CommitError> {
        let done = self.transact(TxnRequest::new(), Batch::new().update(key, update)).await?;
        Ok(done.commit)
    }

    /// As [`Client::update`], for a key that expires after that time ([`Batch::expire`]). Update it again to
    /// keep the key.
    pub async fn update_for(
        &self,
        key: &Key,
        update: Update,
        lives: Duration,
    ) -> Result<Snapshot, CommitError> {
        let batch = Batch::new().update(key, update).expire(key, lives);
        Ok(self.transact(TxnRequest::new(), batch).await?.commit)
    }

    /// Reads a key as it is now in this datacenter. Unlike a commit, a read is not repeated when the
    /// connection breaks: it returns [`ClientError::Unreachable`], and the caller may read again.
    pub async fn read(&self, key: &Key) -> Result<Value, ClientError> {
        let mut view = self.read_many(std::slice::from_ref(key), &AtLeast::default()).await?;
        Ok(view.values.pop().unwrap_or_default())
    }

    /// Reads keys, all at one snapshot that is at least `at_least`.
    pub async fn read_many(&self, keys: &[Key], at_least: &AtLeast) -> Result<ReadResult, ClientError> {
        self.read_client()?.read(keys, at_least).await
    }

    async fn start(
        &self,
        request: TxnRequest,
        batch: Batch,
        then: Then,
    ) -> Result<(Ticket, StepResponse), CommitError> {
        request.check()?;
        let new = request.with_step(batch.into_step(then)?)?;
        let (number, outcome) = self.handle.shared.begin(new)?;
        let ticket = Ticket { handle: Arc::clone(&self.handle), number };
        let answer = outcome.await.unwrap_or(Err(TxnError::Closed.into()))?;
        Ok((ticket, answer))
    }
}

impl TxnRequest {
    /// Runs the transaction under locks that this client holds; at most 16 guards. It commits only if the
    /// server still holds all of them for this client at the moment of the commit, and releases none. Every
    /// later conflicting holder, in any datacenter, has the commit in its snapshot. So a holder that has lost
    /// its lock commits nothing, even if it does not know of the loss: the commit fails with
    /// [`TxnError::Over`], [`TxnError::LeaseLost`] or, under a guard of an earlier lease,
    /// [`Reason::NotHeld`](proto::Reason::NotHeld).
    #[must_use]
    pub fn under(self, guard: &LockGuard) -> TxnRequest {
        self.under_request(guard.request())
    }
}

impl Transaction {
    /// Returns the snapshot that the transaction reads.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Returns the fencing token, above that of every earlier conflicting holder of its locks; `None` if it
    /// took no locks.
    pub fn token(&self) -> Option<FencingToken> {
        self.token
    }

    /// Reads a key: its value in the snapshot, with this transaction's own changes.
    pub async fn read(&mut self, key: &Key) -> Result<Value, TxnError> {
        let mut values = self.run(Batch::new().read(key)).await?;
        Ok(values.pop().unwrap_or_default())
    }

    /// Returns the values in the order of `keys`.
    pub async fn read_many(&mut self, keys: &[Key]) -> Result<Vec<Value>, TxnError> {
        self.run(keys.iter().fold(Batch::new(), Batch::read)).await
    }

    /// Makes one change of one key.
    pub async fn update(&mut self, key: &Key, update: Update) -> Result<(), TxnError> {
        self.run(Batch::new().update(key, update)).await.map(drop)
    }

    /// Removes the key with all its content.
    pub async fn remove(&mut self, key: &Key) -> Result<(), TxnError> {
        self.run(Batch::new().remove(key)).await.map(drop)
    }

    /// Lets the key expire after that time. As [`Batch::expire`].
    pub async fn expire(&mut self, key: &Key, after: Duration) -> Result<(), TxnError> {
        self.run(Batch::new().expire(key, after)).await.map(drop)
    }

    /// Makes changes, then reads, in one round trip.
    pub async fn run(&mut self, batch: Batch) -> Result<Vec<Value>, TxnError> {
        let answer = self.ticket.step(batch, Then::Continue, CommitWait::default()).await?;
        Ok(answer.values.into_iter().map(Value::from).collect())
    }

    /// Commits. The locks are free for others at once; this returns when the commit is as durable as
    /// [`TxnRequest::durability`] requires. If the answer is lost, the client asks again until the outcome is
    /// known. Dropping the future leaves open if the transaction commits.
    pub async fn commit(self) -> Result<Snapshot, CommitError> {
        Ok(self.commit_with(Batch::new()).await?.commit)
    }

    /// Runs a last step and commits, in one round trip.
    pub async fn commit_with(self, batch: Batch) -> Result<Transacted, CommitError> {
        let reads = batch.reads();
        let answer = self.ticket.step(batch, Then::Commit, self.commit_wait).await?;
        transacted(answer, reads, self.commit_wait)
    }

    /// Aborts without any change, and waits until the server has released the locks.
    pub async fn abort(self) -> Result<(), TxnError> {
        self.ticket.step(Batch::new(), Then::Abort, CommitWait::default()).await?;
        Ok(())
    }
}

fn transacted(answer: StepResponse, reads: usize, wait: CommitWait) -> Result<Transacted, CommitError> {
    let is_at_majority = answer.durability() == proto::Durability::Majority;
    let commit = answer.commit.or(answer.snapshot).unwrap_or_default();
    let values: Vec<Value> = answer.values.into_iter().map(Value::from).collect();
    let values = Some(values).filter(|values| values.len() == reads);
    // A server that does not know the field does not set it.
    if !answer.missing.is_empty() || (wait.is_at_majority() && !is_at_majority) {
        let ids = answer.missing.iter().filter_map(|id| DcId::new(u8::try_from(*id).ok()?));
        let missing = ids.collect();
        return Err(CommitError::NotAtMajority(Box::new(NotAtMajority { commit, values, missing })));
    }
    let durability = if is_at_majority { Durability::Majority } else { Durability::Local };
    Ok(Transacted { commit, values, durability })
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction")
            .field("snapshot", &self.snapshot)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}
