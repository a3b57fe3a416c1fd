//! The keys of a section in the store.

use std::time::{Duration, SystemTime};

use geolock_client::{
    Action, AtLeast, Batch, Changed, Client, ClientError, CommitError, Key, LockGuard, LockName, Op, Reading,
    Snapshot, TxnRequest, Update, Value, Wait, Watch, WatchRequest,
};

use crate::once_state::{Content, NotWritten, OnceOptions, Record, Write};
use crate::random::random;
use crate::retry::{Failed, failed};

/// The jitter of a watermark: up to this share of it.
const JITTER: u32 = 20;

/// The keys of a section, and the way to them.
#[derive(Debug)]
pub(super) struct Store {
    pub client: Client,
    pub record: Key,
    pub live: Key,
    pub pause: Key,
}

impl Store {
    /// Reads all keys in the datacenter of the client.
    pub async fn read(&self) -> Result<(Content, Snapshot), ClientError> {
        self.read_at(&AtLeast::default()).await
    }

    pub async fn read_at(&self, at_least: &AtLeast) -> Result<(Content, Snapshot), ClientError> {
        let keys = [self.record.clone(), self.live.clone(), self.pause.clone()];
        let read = self.client.read_many(&keys, at_least).await?;
        Ok((content(&read.values), read.snapshot))
    }

    /// Reads all keys, then follows them from there.
    pub async fn follow(&self) -> Result<(Content, Snapshot, Watch), ClientError> {
        let (content, snapshot) = self.read().await?;
        let keys = WatchRequest::of(&self.record).and_key(&self.live).and_key(&self.pause);
        let watch = self.client.read_client()?.watch(keys.from_snapshot(&snapshot)).await?;
        Ok((content, snapshot, watch))
    }

    /// Reads all keys under the lock: with everything that was written under it before.
    pub async fn read_under(&self, guard: &LockGuard) -> Result<Content, Failed> {
        let batch = Batch::new().read(&self.record).read(&self.live).read(&self.pause);
        let done = self.client.transact(TxnRequest::new().under(guard), batch).await;
        match done.map_err(failed)?.values {
            Some(values) => Ok(content(&values)),
            // The answer was lost.
            None => Err(Failed::NotWritten(NotWritten::ForNow)),
        }
    }

    /// Commits under the lock: only while it is held.
    pub async fn write(&self, guard: &LockGuard, write: &Write, options: &OnceOptions) -> Result<(), Failed> {
        let put = |batch: Batch, record: &Record| {
            let record = Record { at_ms: now_ms(), ..record.clone() };
            batch.update(&self.record, Update::register(record.encode()))
        };
        let batch = match write {
            Write::Started(record) => self.prolonged(put(Batch::new(), record), options),
            Write::Renew => self.prolonged(Batch::new(), options),
            Write::Done(record) => put(Batch::new(), record).expire(&self.record, options.staleness),
            Write::Failed { record, pause } => put(Batch::new(), record)
                .expire(&self.record, options.staleness)
                .update(&self.pause, Update::register("1"))
                .expire(&self.pause, *pause),
        };
        match self.client.transact(TxnRequest::new().under(guard), batch).await {
            // Committed here, and it stays so: the next holder sees it.
            Ok(_) | Err(CommitError::NotAtMajority(_)) => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    /// Removes all keys in a transaction with the lock, which waits for so long for it.
    pub async fn remove(&self, lock: &LockName, wait: Duration) -> Result<(), CommitError> {
        let request = TxnRequest::exclusive(lock.clone()).wait(Wait::AtMost(wait));
        let batch = Batch::new().remove(&self.record).remove(&self.live).remove(&self.pause);
        match self.client.transact(request, batch).await {
            // Committed here, and it stays so.
            Ok(_) | Err(CommitError::NotAtMajority(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn prolonged(&self, batch: Batch, options: &OnceOptions) -> Batch {
        let jitter = options.watermark / JITTER * (random() % 256) as u32 / 256;
        batch
            .expire(&self.record, options.staleness)
            .update(&self.live, Update::register("1"))
            .expire(&self.live, options.watermark + jitter)
    }

    /// Applies a commit that a watch reported.
    pub fn apply(&self, content: &mut Content, changed: Changed) {
        for change in changed.changes {
            let is_there = match &change.action {
                Action::Update(_) => true,
                Action::Removed | Action::Expired => false,
                _ => continue,
            };
            if change.key == self.live {
                content.live = is_there;
            } else if change.key == self.pause {
                content.pause = is_there;
            } else if change.key == self.record {
                content.record = match change.action {
                    Action::Update(Update { op: Op::LwwRegister(bytes), .. }) => Record::decode(&bytes),
                    _ => None,
                };
            }
        }
    }
}

fn content(values: &[Value]) -> Content {
    let is_there = |index: usize| values.get(index).is_some_and(Value::is_some);
    let record = match values.first().and_then(Value::reading) {
        Some(Reading::LwwRegister(Some(bytes))) => Record::decode(bytes),
        _ => None,
    };
    Content { record, live: is_there(1), pause: is_there(2) }
}

#[expect(clippy::disallowed_methods, reason = "for people: nothing depends on it")]
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
