//! Reads and writes of a selector in the store.

use std::time::Duration;

use geolock_client::{
    AtLeast, Batch, Client, CommitError, Key, LockGuard, Reading, TxnRequest, Update, Value, WatchRequest,
};

use tokio::time::timeout;

use super::keys::{BUCKET, Keys, escaped, pool_of};
use super::{Pool, SelectError, Token, TokenId, TxId};
use crate::retry::{Failed, failed};
use crate::selector_state::{
    Change, Mark, MarkRead, MarkState, NEED_LASTS, Need, Record, SelectorOptions, Write, encode_news,
};

/// Most keys of one read.
const MAX_READS: usize = 1_000;

/// The store, and the names in it.
#[derive(Clone, Debug)]
pub(super) struct Store {
    pub client: Client,
    pub keys: Keys,
}

/// A selection, as its record and its marks have it.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub tx: TxId,
    pub pool: Pool,
    pub amount: u64,
    pub tokens: Vec<Token>,
}

/// Marks in the order of the tokens, and the record of the transaction.
pub(super) type Read = (Vec<MarkRead>, Option<Record>);

/// The reason why something could not be read under locks.
pub(super) enum NotRead {
    /// It passes, or the locks are lost.
    ForNow,
    For(SelectError),
}

impl Store {
    /// Reads the record of a transaction in this datacenter.
    pub async fn record(&self, tx: &TxId) -> Result<Option<Record>, SelectError> {
        let key = self.keys.tx(tx);
        let value = self.client.read(&key).await?;
        record_of(&key, Some(&value))
    }

    /// The same, for a transaction of another replica, whose commit may be on its way here for so long.
    pub async fn record_within(&self, tx: &TxId, wait: Duration) -> Result<Option<Record>, SelectError> {
        let key = self.keys.tx(tx);
        let read = self.client.read_many(std::slice::from_ref(&key), &AtLeast::default()).await?;
        if let Some(record) = record_of(&key, read.values.first())? {
            return Ok(Some(record));
        }
        let request = WatchRequest::of(&key).from_snapshot(&read.snapshot);
        let mut watch = self.client.read_client()?.watch(request).await?;
        match timeout(wait, watch.next()).await {
            Ok(changed) => drop(changed?),
            Err(_) => return Ok(None),
        }
        self.record(tx).await
    }

    /// Reads marks, and the record of the transaction, in this datacenter.
    pub async fn marks(&self, tx: &TxId, ids: &[TokenId]) -> Result<Read, SelectError> {
        let mut keys: Vec<Key> = ids.iter().map(|id| self.keys.mark(id)).collect();
        keys.push(self.keys.tx(tx));
        let mut values = Vec::with_capacity(keys.len());
        for some in keys.chunks(MAX_READS) {
            values.extend(self.client.read_many(some, &AtLeast::default()).await?.values);
        }
        self.read(tx, ids, &values)
    }

    /// The same under locks: with everything that was written under them before.
    pub async fn marks_under(&self, guard: &LockGuard, tx: &TxId, ids: &[TokenId]) -> Result<Read, NotRead> {
        let mut keys: Vec<Key> = ids.iter().map(|id| self.keys.mark(id)).collect();
        keys.push(self.keys.tx(tx));
        let mut values = Vec::with_capacity(keys.len());
        for some in keys.chunks(MAX_READS) {
            let batch = some.iter().fold(Batch::new(), Batch::read);
            match self.client.transact(TxnRequest::new().under(guard), batch).await {
                Ok(done) => match done.values {
                    Some(read) => values.extend(read),
                    // The answer was lost.
                    None => return Err(NotRead::ForNow),
                },
                Err(error) => return Err(not_read(error)),
            }
        }
        self.read(tx, ids, &values).map_err(NotRead::For)
    }

    fn read(&self, tx: &TxId, ids: &[TokenId], values: &[Value]) -> Result<Read, SelectError> {
        let mark = |(id, value): (&TokenId, &Value)| match register(value) {
            Ok(None) => MarkRead::None,
            Ok(Some(bytes)) => match Mark::decode(bytes) {
                Ok(mark) if mark.tx == *tx => MarkRead::Own,
                Ok(mark) => MarkRead::Other(Change::Marked(id.clone(), mark)),
                Err(_) => MarkRead::Other(Change::Unreadable(id.clone())),
            },
            Err(()) => MarkRead::Other(Change::Unreadable(id.clone())),
        };
        let marks = ids.iter().zip(values).map(mark).collect();
        Ok((marks, record_of(&self.keys.tx(tx), values.get(ids.len()))?))
    }

    /// Commits under the locks: only while they are held.
    pub async fn write(
        &self,
        guard: &LockGuard,
        of: &Subject,
        write: &Write,
        options: &SelectorOptions,
    ) -> Result<(), CommitError> {
        let fence = guard.token().0;
        let put = |state: MarkState, lasts| {
            let mark = Update::register(Mark { tx: of.tx.clone(), fence, state }.encode());
            let record = Record {
                amount: of.amount,
                fence,
                state,
                pool: escaped(&of.pool).into(),
                tokens: of.tokens.clone(),
            };
            let tx = self.keys.tx(&of.tx);
            let batch = Batch::new().update(&tx, Update::register(record.encode())).expire(&tx, lasts);
            of.tokens.iter().fold(batch, |batch, token| {
                let key = self.keys.mark(&token.id);
                batch.update(&key, mark.clone()).expire(&key, lasts)
            })
        };
        let batch = match write {
            Write::Reserved => put(MarkState::Reserved, options.reserve_for),
            Write::Spent(change) => {
                let batch = put(MarkState::Spent, options.spent_keep);
                self.with_news(batch, &of.pool, change, options)
            }
            Write::Removed => {
                let batch = Batch::new().remove(&self.keys.tx(&of.tx));
                of.tokens.iter().fold(batch, |batch, token| batch.remove(&self.keys.mark(&token.id)))
            }
        };
        committed(self.client.transact(TxnRequest::new().under(guard), batch).await.map(drop))
    }

    /// Tells all replicas of new tokens.
    pub async fn added(
        &self,
        pool: &Pool,
        tokens: &[Token],
        options: &SelectorOptions,
    ) -> Result<(), CommitError> {
        let batch = self.with_news(Batch::new(), pool, tokens, options);
        committed(self.client.transact(TxnRequest::new(), batch).await.map(drop))
    }

    fn with_news(&self, batch: Batch, pool: &Pool, tokens: &[Token], options: &SelectorOptions) -> Batch {
        if tokens.is_empty() {
            return batch;
        }
        let key = self.keys.news(pool);
        // The watches tell of the commit; nobody reads the key.
        batch.update(&key, Update::register(encode_news(tokens))).expire(&key, options.spent_keep)
    }

    /// Announces a need, or takes it back.
    pub async fn need(&self, pool: &Pool, tx: &TxId, need: Option<&Need>) -> Result<(), CommitError> {
        let key = self.keys.need(pool, tx);
        let batch = match need {
            Some(need) => Batch::new().update(&key, Update::register(need.encode())).expire(&key, NEED_LASTS),
            None => Batch::new().remove(&key),
        };
        committed(self.client.transact(TxnRequest::new(), batch).await.map(drop))
    }
}

impl Subject {
    /// Returns the selection of a record.
    pub fn of_record(tx: &TxId, record: &Record) -> Option<Subject> {
        let pool = pool_of(std::str::from_utf8(&record.pool).ok()?)?;
        Some(Subject { tx: tx.clone(), pool, amount: record.amount, tokens: record.tokens.clone() })
    }

    pub fn ids(&self) -> Vec<TokenId> {
        self.tokens.iter().map(|token| token.id.clone()).collect()
    }
}

/// Committed here is enough: it stays so, and the next holder of the locks sees it.
fn committed(result: Result<(), CommitError>) -> Result<(), CommitError> {
    match result {
        Err(CommitError::NotAtMajority(_)) => Ok(()),
        result => result,
    }
}

fn not_read(error: CommitError) -> NotRead {
    match failed(error) {
        Failed::NotWritten(_) => NotRead::ForNow,
        Failed::Refused(reason, message) => {
            NotRead::For(geolock_client::ClientError::Refused(reason, message).into())
        }
    }
}

fn register(value: &Value) -> Result<Option<&[u8]>, ()> {
    match value.reading() {
        None | Some(Reading::LwwRegister(None)) => Ok(None),
        Some(Reading::LwwRegister(Some(bytes))) => Ok(Some(bytes)),
        Some(_) => Err(()),
    }
}

fn record_of(key: &Key, value: Option<&Value>) -> Result<Option<Record>, SelectError> {
    let unreadable = || SelectError::Unreadable { key: key_text(key) };
    match value.map(register) {
        None | Some(Ok(None)) => Ok(None),
        Some(Ok(Some(bytes))) => Record::decode(bytes).map(Some).map_err(|_| unreadable()),
        Some(Err(())) => Err(unreadable()),
    }
}

/// Returns the name of a key for people.
pub(super) fn key_text(key: &Key) -> String {
    debug_assert_eq!(key.bucket(), BUCKET.as_bytes());
    key.name().escape_ascii().to_string()
}
