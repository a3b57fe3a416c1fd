//! A value that the holder of a lock keeps in the store, for elections and locks with a value: names,
//! options, errors, and the way to the store.

mod follow;
mod holding;

use std::time::Duration;

use bytes::Bytes;
use geolock_client::{
    AcquireError, AcquireRequest, AtLeast, Batch, Client, ClientError, CommitError, DcId, Key, LockGuard,
    LockName, LostReason, Reading, Reason, Snapshot, TxnRequest, Update, Value, Wait,
};
use tokio::time::sleep;

use crate::held_state::{Event, HeldValue, Record};
use crate::retry::{Failed, PAUSE, failed};
pub use follow::HeldWatch;
pub(crate) use holding::Holding;

/// Longest value, in bytes. A leader writes it to all datacenters once in a TTL.
const MAX_VALUE: usize = 64 << 10;
/// Longest name of a lock or a key.
const MAX_NAME: usize = 1_024;
/// An expiring record lasts this many TTLs, and is written again each TTL.
const LASTS: u32 = 3;

/// The options of an [`Election`](crate::Election) and of a [`ValuedLock`](crate::ValuedLock).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HeldOptions {
    /// The name of this instance, shown with the record or the lock: at most 256 bytes. Default: empty, which
    /// means the id of the process.
    pub who: String,
    /// How long to wait for the lock. Default: for ever, because a successor has nothing else to do.
    pub wait: Wait,
    /// As [`OnceOptions::home`](crate::OnceOptions::home). Default: none.
    pub home: Option<DcId>,
}

impl Default for HeldOptions {
    fn default() -> HeldOptions {
        HeldOptions { who: String::new(), wait: Wait::Forever, home: None }
    }
}

/// The reason why a value could not be held, set or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeldError {
    /// The name is too long, or empty.
    #[error("the name has 1 to {most} bytes, this one has {len}")]
    Name {
        /// Its length in bytes.
        len: usize,
        /// The longest name, in bytes.
        most: usize,
    },
    /// The value is too long. Nothing was done.
    #[error("the value has at most {most} bytes, this one has {len}")]
    Value {
        /// Its length in bytes.
        len: usize,
        /// The longest value, in bytes.
        most: usize,
    },
    /// The lock was not acquired.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
    /// The lock was lost, or given up, before the value was known to be written.
    #[error("the value is not known to be written: {0}")]
    Lost(LostReason),
    /// The server refuses to write the value, for a reason that does not pass.
    #[error("the value was not written: {message}")]
    Refused {
        /// The reason.
        reason: Reason,
        /// The same for people.
        message: String,
    },
    /// The value could not be read.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The key has something else than the record of a holder. The next holder replaces it.
    #[error("the key {key} of the bucket {bucket} has no record of a holder: something else has written it")]
    Unreadable {
        /// The bucket.
        bucket: String,
        /// The name of the key.
        key: String,
    },
}

/// A lock, and the key with the value of its holder.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    client: Client,
    pub lock: LockName,
    key: Key,
    who: String,
    wait: Wait,
    /// The value expires unless the holder writes it again, and goes with the lock.
    expires: bool,
}

impl Place {
    /// Names the lock `BUCKET/NAME`, and the key NAME in the bucket.
    pub fn new(
        client: &Client,
        bucket: &str,
        name: &[u8],
        options: HeldOptions,
        expires: bool,
    ) -> Result<Place, HeldError> {
        let wrong = || HeldError::Name { len: name.len(), most: MAX_NAME - bucket.len() - 1 };
        let key = Key::new(bucket.as_bytes(), name).map_err(|_| wrong())?;
        let lock = [bucket.as_bytes(), b"/", name].concat();
        let lock = LockName::with_home(options.home, &lock).map_err(|_| wrong())?;
        let HeldOptions { mut who, wait, .. } = options;
        if who.is_empty() {
            who = format!("process {}", std::process::id());
        }
        Ok(Place { client: client.clone(), lock, key, who, wait, expires })
    }

    /// Acquires the lock, and writes the value. A lock that is lost before the value is written is acquired
    /// again. Also returns the last value of the previous holder.
    pub async fn hold(&self, value: Bytes) -> Result<(Holding, Option<HeldValue>), HeldError> {
        check(&value)?;
        loop {
            let request = AcquireRequest::exclusive(self.lock.clone()).label(&self.who).wait(self.wait);
            let guard = match self.client.acquire(request).await {
                Ok(guard) => guard,
                Err(error) => match pause(&error).filter(|_| self.wait == Wait::Forever) {
                    Some(pause) => {
                        sleep(pause).await;
                        continue;
                    }
                    None => return Err(error.into()),
                },
            };
            // The snapshot of the grant has everything that was written under the lock.
            let previous = match self.read_at(&AtLeast::snapshot(guard.snapshot())).await {
                Err(HeldError::Unreadable { .. }) => None,
                read => read?.0.map(|record| record.held),
            };
            match Holding::begin(self, guard, value.clone()).await {
                Err(HeldError::Lost(reason)) if reason != LostReason::Closed => {}
                held => return Ok((held?, previous)),
            }
        }
    }

    /// Reads the value in the datacenter of the client.
    pub async fn read(&self) -> Result<Option<HeldValue>, HeldError> {
        let (record, _) = self.read_at(&AtLeast::default()).await?;
        Ok(record.map(|record| record.held))
    }

    /// Follows the value.
    pub fn follow(&self) -> HeldWatch {
        HeldWatch::new(self.clone())
    }

    async fn read_at(&self, at_least: &AtLeast) -> Result<(Option<Record>, Snapshot), HeldError> {
        let read = self.client.read_many(std::slice::from_ref(&self.key), at_least).await?;
        let record = match read.values.first().and_then(Value::reading) {
            None | Some(Reading::LwwRegister(None)) => None,
            Some(Reading::LwwRegister(Some(bytes))) => Some(self.decode(bytes)?),
            Some(_) => return Err(self.unreadable()),
        };
        Ok((record, read.snapshot))
    }

    fn decode(&self, bytes: &[u8]) -> Result<Record, HeldError> {
        Record::decode(bytes).ok_or_else(|| self.unreadable())
    }

    fn unreadable(&self) -> HeldError {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        HeldError::Unreadable { bucket: text(self.key.bucket()), key: text(self.key.name()) }
    }

    /// Writes the value under the lock. The refusal is noted.
    async fn write(&self, guard: &LockGuard, value: Bytes, refusal: &mut Option<(Reason, String)>) -> Event {
        let held = HeldValue { who: self.who.clone(), value, token: guard.token() };
        let ttl = self.expires.then(|| self.client.ttl());
        let update = Update::register(Record { held, ttl }.encode());
        let batch = match ttl {
            Some(ttl) => Batch::new().update(&self.key, update).expire(&self.key, ttl * LASTS),
            None => Batch::new().update(&self.key, update),
        };
        self.commit(guard, batch, refusal).await
    }

    async fn clear(&self, guard: &LockGuard) -> Event {
        self.commit(guard, Batch::new().remove(&self.key), &mut None).await
    }

    async fn commit(&self, guard: &LockGuard, batch: Batch, refusal: &mut Option<(Reason, String)>) -> Event {
        match self.client.transact(TxnRequest::new().under(guard), batch).await {
            // Committed here, and it stays so: the next holder sees it.
            Ok(_) | Err(CommitError::NotAtMajority(_)) => Event::Written,
            Err(error) => match failed(error) {
                // If the lock is lost, its guard says so.
                Failed::NotWritten(_) => Event::NotWritten,
                Failed::Refused(reason, message) => {
                    *refusal = Some((reason, message));
                    Event::Refused
                }
            },
        }
    }
}

/// Returns the pause before the next attempt of a caller that waits for ever, if there is to be one.
fn pause(error: &AcquireError) -> Option<Duration> {
    match error {
        // The next acquire opens another lease.
        AcquireError::LeaseLost(_) => Some(Duration::ZERO),
        AcquireError::Exhausted { retry_after, .. } => Some(*retry_after),
        AcquireError::Draining => Some(PAUSE),
        _ => None,
    }
}

/// Refuses a value that is too long.
fn check(value: &Bytes) -> Result<(), HeldError> {
    match value.len() {
        0..=MAX_VALUE => Ok(()),
        len => Err(HeldError::Value { len, most: MAX_VALUE }),
    }
}
