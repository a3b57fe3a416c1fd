//! Count-down latch: callers wait for a number of count-downs, from any datacenters.

use std::time::Duration;

use geolock_client::{
    Action, AtLeast, Batch, Client, ClientError, CommitError, Key, Op, Snapshot, TxnRequest, Update, Value,
    Watch, WatchRequest,
};
use tokio::time::sleep;

use crate::latch_state::{News, Waiter};
use crate::limits::{TooLong, check_times};
use crate::retry::{PAUSE, read_passes};

/// The bucket of all counters.
const BUCKET: &[u8] = b"geolock.latch";
/// Longest name of a key.
const MAX_NAME: usize = 1_024;

/// The options of a [`Latch`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LatchOptions {
    /// The counter is kept for this long after the last count-down, 10 s to 365 days: callers that come later
    /// wait for ever. A name is used once, so its counter must not stay for ever. Default 24 h.
    pub keep: Duration,
}

impl Default for LatchOptions {
    fn default() -> LatchOptions {
        LatchOptions { keep: Duration::from_secs(24 * 3_600) }
    }
}

/// The reason why a latch could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LatchError {
    /// The name is too long, or empty.
    #[error("a latch has a name of 1 to {MAX_NAME} bytes, this one has {0}")]
    Name(usize),
    /// The latch is open from the beginning.
    #[error("a latch is for at least 1 count-down")]
    Zero,
    /// [`LatchOptions::keep`] is below its bound.
    #[error("`keep` is at least 10 s, here it is {0:?}")]
    Keep(Duration),
    /// A time is longer than 365 days.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// The count-down was not made. If it says that the outcome is unknown, it may have been: do not repeat
    /// it.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The counter could not be read: the server refuses, or something else is in its place.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Something else has written the key of the counter.
    #[error("the key of the latch is no counter: {0}")]
    NoCounter(#[from] geolock_client::WrongType),
}

/// A latch that opens after a number of count-downs, for good.
///
/// ```no_run
/// # async fn example(client: geolock_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use geolock_recipes::{Latch, LatchOptions};
///
/// let loaded = Latch::new(&client, "loaded/2026-11-26", 30, LatchOptions::default())?;
/// loaded.count_down().await?; // each of 30 workers, once
/// loaded.wait().await?;       // whoever needs all of them
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Latch {
    client: Client,
    key: Key,
    needed: u64,
    keep: Duration,
}

impl Latch {
    /// Prepares a latch for that many count-downs. A name is used for one latch, with the same number in all
    /// instances.
    pub fn new(
        client: &Client,
        name: impl AsRef<[u8]>,
        needed: u64,
        options: LatchOptions,
    ) -> Result<Latch, LatchError> {
        let key = Key::new(BUCKET, name.as_ref()).map_err(|_| LatchError::Name(name.as_ref().len()))?;
        check_times(&[("keep", options.keep)])?;
        match (needed, options.keep) {
            (0, _) => Err(LatchError::Zero),
            (_, keep) if keep < Duration::from_secs(10) => Err(LatchError::Keep(keep)),
            (_, keep) => Ok(Latch { client: client.clone(), key, needed, keep }),
        }
    }

    /// Counts down once. Needs no other datacenter: those that are cut off hear of it later.
    pub async fn count_down(&self) -> Result<(), LatchError> {
        let batch = Batch::new().update(&self.key, Update::counter(1)).expire(&self.key, self.keep);
        match self.client.transact(TxnRequest::new(), batch).await {
            // Committed here, and it stays so.
            Ok(_) | Err(CommitError::NotAtMajority(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads how many count-downs are lacking, as far as the datacenter of the client knows.
    pub async fn lacking(&self) -> Result<u64, LatchError> {
        let mut waiter = Waiter::new(self.needed);
        waiter.handle(News::Read(self.read(&Snapshot::default()).await?.0));
        Ok(waiter.lacking())
    }

    /// Waits until all count-downs are known in the datacenter of the client, one one-way delay after the
    /// last of them. While no server answers it waits and reconnects.
    pub async fn wait(&self) -> Result<(), LatchError> {
        let (mut waiter, mut position) = (Waiter::new(self.needed), Snapshot::default());
        loop {
            match self.follow(&mut waiter, &mut position).await {
                Err(LatchError::Client(error)) if read_passes(&error) => sleep(PAUSE).await,
                // It cannot resume, or the counter has expired: it reads again.
                Err(LatchError::Client(ClientError::WatchTooOld(_))) => {}
                ended => return ended,
            }
        }
    }

    async fn follow(&self, waiter: &mut Waiter, position: &mut Snapshot) -> Result<(), LatchError> {
        let (count, mut watch) = self.begin(position).await?;
        waiter.handle(News::Read(count));
        while waiter.lacking() > 0 {
            let changed = watch.next().await?;
            *position = watch.position().clone();
            for change in changed.changes {
                match change.action {
                    Action::Update(Update { op: Op::Counter(by), .. }) => waiter.handle(News::Added(by)),
                    Action::Expires(_) => {}
                    // An end, or nothing that a latch does: the counter tells.
                    _ => {
                        let count;
                        (count, watch) = self.begin(position).await?;
                        waiter.handle(News::Read(count));
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    async fn begin(&self, position: &Snapshot) -> Result<(i64, Watch), LatchError> {
        let (count, snapshot) = self.read(position).await?;
        let request = WatchRequest::of(&self.key).from_snapshot(&snapshot);
        Ok((count, self.client.read_client()?.watch(request).await?))
    }

    async fn read(&self, position: &Snapshot) -> Result<(i64, Snapshot), LatchError> {
        let at_least = AtLeast::snapshot(position);
        let read = self.client.read_many(std::slice::from_ref(&self.key), &at_least).await?;
        Ok((read.values.first().map_or(Ok(0), Value::counter)?, read.snapshot))
    }
}
