//! Transactions, as callers have them.

use std::sync::Arc;
use std::time::Duration;

use super::error::ClientError;
use super::handle::{Client, Handle};
use super::queries::View;
use super::txn_error::{CommitError, TxnError};
use super::txn_request::{AtLeast, Batch, TxnRequest};
use super::values::Value;
use crate::crdt::value::Update;
use crate::keys::Key;
use crate::names::FencingToken;
use crate::proto::{Snapshot, StepResponse, Then};

/// A transaction that is open: it reads one snapshot and its own writes on top, and commits all or nothing. Dropping it
/// aborts it.
///
/// A read or update that is refused leaves the transaction as it was. Dropping the future of one leaves open whether it
/// was made. The server ends a transaction that is open for too long, 20 s unless configured, and every open one when
/// it restarts, with its locks: then everything fails with [`TxnError::Over`], and nothing of it ever happened.
#[must_use = "the transaction is aborted when it is dropped"]
pub struct Transaction {
    ticket: Ticket,
    snapshot: Snapshot,
    token: Option<FencingToken>,
}

/// What a one-shot transaction came to.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Transacted {
    /// In every snapshot that has all of this. Pass it on to whoever has to see it.
    pub commit: Snapshot,
    /// In the order asked. `None` if the answer had been lost: it is known that the transaction committed, and not
    /// what it had read.
    pub values: Option<Vec<Value>>,
}

/// Sees to it that a transaction whose handle or future is gone ends.
struct Ticket {
    handle: Arc<Handle>,
    number: u64,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.handle.hub.give_up(self.number);
    }
}

impl Ticket {
    async fn step(&self, batch: Batch, then: Then) -> Result<StepResponse, CommitError> {
        let step = batch.into_step(then)?;
        let outcome = self.handle.hub.step_of(self.number, step)?;
        outcome.await.unwrap_or(Err(TxnError::Closed.into()))
    }
}

impl Client {
    /// Takes the locks, then a snapshot in which all is that was ever committed under them. Dropping the future gives
    /// it up.
    pub async fn begin(&self, request: TxnRequest) -> Result<Transaction, TxnError> {
        let (ticket, answer) = self.start(request, Batch::new(), Then::GoOn).await?;
        let token = Some(FencingToken(answer.token)).filter(|token| token.0 > 0);
        Ok(Transaction { ticket, snapshot: answer.snapshot.unwrap_or_default(), token })
    }

    /// A whole transaction in one round trip: locks, changes, reads, commit. Asked again until its outcome is known,
    /// and never done twice. Dropping the future leaves open whether it commits.
    pub async fn transact(&self, request: TxnRequest, batch: Batch) -> Result<Transacted, CommitError> {
        let reads = batch.reads();
        let (_, answer) = self.start(request, batch, Then::Commit).await?;
        Ok(transacted(answer, reads))
    }

    /// One change of one key, without locks. As [`Client::transact`].
    pub async fn update(&self, key: &Key, update: Update) -> Result<Snapshot, CommitError> {
        let done = self.transact(TxnRequest::new(), Batch::new().update(key, update)).await?;
        Ok(done.commit)
    }

    /// The same, for a key that goes by itself when that much time has passed since ([`Batch::expire`]); again, to keep it.
    pub async fn update_for(
        &self,
        key: &Key,
        update: Update,
        lives: Duration,
    ) -> Result<Snapshot, CommitError> {
        let batch = Batch::new().update(key, update).expire(key, lives);
        Ok(self.transact(TxnRequest::new(), batch).await?.commit)
    }

    /// Reads a key as it is now in this datacenter. Unlike a commit it is not asked again when the connection breaks: that
    /// is [`ClientError::Unreachable`], and reading again is up to the caller.
    pub async fn read(&self, key: &Key) -> Result<Value, ClientError> {
        let mut view = self.read_many(std::slice::from_ref(key), &AtLeast::default()).await?;
        Ok(view.values.pop().unwrap_or_default())
    }

    /// Reads keys, all at one snapshot that shows what was asked for.
    pub async fn read_many(&self, keys: &[Key], at_least: &AtLeast) -> Result<View, ClientError> {
        self.viewer()?.read(keys, at_least).await
    }

    async fn start(
        &self,
        request: TxnRequest,
        batch: Batch,
        then: Then,
    ) -> Result<(Ticket, StepResponse), CommitError> {
        request.check()?;
        let new = request.with_step(batch.into_step(then)?)?;
        let (number, outcome) = self.handle.hub.begin(new)?;
        let ticket = Ticket { handle: Arc::clone(&self.handle), number };
        let answer = outcome.await.unwrap_or(Err(TxnError::Closed.into()))?;
        Ok((ticket, answer))
    }
}

impl Transaction {
    /// What it reads.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Above the token of every earlier holder that conflicts with its locks; `None` if it took none.
    pub fn token(&self) -> Option<FencingToken> {
        self.token
    }

    pub async fn read(&mut self, key: &Key) -> Result<Value, TxnError> {
        let mut values = self.run(Batch::new().read(key)).await?;
        Ok(values.pop().unwrap_or_default())
    }

    /// In the order asked.
    pub async fn read_many(&mut self, keys: &[Key]) -> Result<Vec<Value>, TxnError> {
        self.run(keys.iter().fold(Batch::new(), Batch::read)).await
    }

    pub async fn update(&mut self, key: &Key, update: Update) -> Result<(), TxnError> {
        self.run(Batch::new().update(key, update)).await.map(drop)
    }

    /// Removes the key with all that it has.
    pub async fn remove(&mut self, key: &Key) -> Result<(), TxnError> {
        self.run(Batch::new().remove(key)).await.map(drop)
    }

    /// As [`Batch::expire`]: the key goes by itself when its time is over.
    pub async fn expire(&mut self, key: &Key, after: Duration) -> Result<(), TxnError> {
        self.run(Batch::new().expire(key, after)).await.map(drop)
    }

    /// Makes changes, then reads, in one round trip.
    pub async fn run(&mut self, batch: Batch) -> Result<Vec<Value>, TxnError> {
        let answer = self.ticket.step(batch, Then::GoOn).await?;
        Ok(answer.values.into_iter().map(Value::from).collect())
    }

    /// Makes all of it happen, or nothing. The locks are free for others at once; this returns when the commit is
    /// durable. If the answer is lost, the server is asked again until the truth is known. Dropping the future leaves
    /// open whether it commits.
    pub async fn commit(self) -> Result<Snapshot, CommitError> {
        Ok(self.commit_with(Batch::new()).await?.commit)
    }

    /// A last step, and the commit, in one round trip.
    pub async fn commit_with(self, batch: Batch) -> Result<Transacted, CommitError> {
        let reads = batch.reads();
        let answer = self.ticket.step(batch, Then::Commit).await?;
        Ok(transacted(answer, reads))
    }

    /// Ends it without a trace, and waits until the server has let go of its locks.
    pub async fn abort(self) -> Result<(), TxnError> {
        self.ticket.step(Batch::new(), Then::Abort).await?;
        Ok(())
    }
}

fn transacted(answer: StepResponse, reads: usize) -> Transacted {
    let commit = answer.commit.or(answer.snapshot).unwrap_or_default();
    let values: Vec<Value> = answer.values.into_iter().map(Value::from).collect();
    Transacted { commit, values: Some(values).filter(|values| values.len() == reads) }
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction")
            .field("snapshot", &self.snapshot)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}
