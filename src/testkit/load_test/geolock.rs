//! geolock as the system under test, through its client.

use super::target::{Failure, Target};
use super::workload::{Ask, Locks};
use geolock_client::{
    AcquireError, AcquireRequest, AtLeast, Batch, Client, ClientError, CommitError, Key, LockGuard,
    Transaction, TxnError, TxnRequest, Update, Value,
};

/// A client of one datacenter.
pub(super) struct Geolock {
    pub client: Client,
}

/// The locks, or the transaction, that a client holds.
pub(super) enum Held {
    Locks(LockGuard),
    Txn(Box<Counting>),
}

/// A transaction that reads a number and writes the next one.
pub(super) struct Counting {
    txn: Transaction,
    key: Key,
    number: u64,
}

/// The bucket of the numbers that transactions increment.
const BUCKET: &[u8] = b"load-test";
/// Most keys of one read.
const READ_AT_ONCE: usize = 1_000;

/// Returns the key that belongs to a lock.
fn key_of(lock: &geolock_api::names::LockName) -> Key {
    Key::new(BUCKET, lock.as_bytes()).expect("our names are short enough for a key")
}

/// Returns the count in a register, in decimal; no value is 0.
fn number(value: &Value) -> Result<u64, Failure> {
    let register = value.register().map_err(|error| Failure::Other(error.to_string()))?;
    let text = register.map(|bytes| std::str::from_utf8(bytes));
    match text {
        None => Ok(0),
        Some(text) => {
            let number = text.ok().and_then(|text| text.parse().ok());
            number.ok_or_else(|| Failure::Other("somebody else wrote to the keys of the load test".into()))
        }
    }
}

impl Target for Geolock {
    type Held = Held;

    async fn acquire(&self, ask: &Ask, locks: &Locks) -> Result<Held, Failure> {
        let mut wanted = ask.locks.iter().map(|(key, mode)| (locks.name(*key), *mode));
        let (name, mode) = wanted.next().expect("a request wants at least one lock");
        if ask.is_txn {
            let key = key_of(&name);
            let first = TxnRequest::new().lock(name, mode);
            let request = wanted.fold(first, |all, (name, mode)| all.lock(name, mode));
            let txn = self.client.begin(request).await?;
            return Ok(Held::Txn(Box::new(Counting { txn, key, number: 0 })));
        }
        let first = AcquireRequest::new(name, mode);
        let request = wanted.fold(first, |all, (name, mode)| all.and(name, mode));
        Ok(Held::Locks(self.client.acquire(request).await?))
    }

    fn token(&self, held: &Held) -> u64 {
        match held {
            Held::Locks(guard) => guard.token().0,
            Held::Txn(counting) => counting.txn.token().map_or(0, |token| token.0),
        }
    }

    async fn work(&self, held: &mut Held) -> Result<(), Failure> {
        if let Held::Txn(counting) = held {
            counting.number = number(&counting.txn.read(&counting.key).await?)?;
        }
        Ok(())
    }

    async fn release(&self, held: Held) -> Result<(), Failure> {
        match held {
            Held::Locks(guard) => Ok(guard.release().await?),
            Held::Txn(counting) => {
                let Counting { txn, key, number } = *counting;
                let next = Update::register((number + 1).to_string());
                txn.commit_with(Batch::new().update(&key, next)).await?;
                Ok(())
            }
        }
    }
}

impl Geolock {
    /// Returns the sum that the transactions under these locks have counted.
    pub(super) async fn counted(&self, locks: &[geolock_api::names::LockName]) -> Result<u64, Failure> {
        let (mut sum, keys) = (0, locks.iter().map(key_of).collect::<Vec<_>>());
        for keys in keys.chunks(READ_AT_ONCE) {
            let view = self.client.read_many(keys, &AtLeast::default()).await?;
            for value in &view.values {
                sum += number(value)?;
            }
        }
        Ok(sum)
    }
}

impl From<AcquireError> for Failure {
    fn from(error: AcquireError) -> Failure {
        match error {
            AcquireError::Exhausted { retry_after, .. } => Failure::Refused(retry_after),
            AcquireError::LeaseLost(reason) => Failure::Lost(reason.to_string()),
            other => Failure::Other(other.to_string()),
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        match error {
            ClientError::LeaseLost(reason) => Failure::Lost(reason.to_string()),
            other => Failure::Other(other.to_string()),
        }
    }
}

impl From<TxnError> for Failure {
    fn from(error: TxnError) -> Failure {
        match error {
            TxnError::NotBegun(error) => error.into(),
            TxnError::LeaseLost(reason) => Failure::Lost(reason.to_string()),
            // Its locks are gone.
            over @ TxnError::Over(..) => Failure::Lost(over.to_string()),
            other => Failure::Other(other.to_string()),
        }
    }
}

impl From<CommitError> for Failure {
    fn from(error: CommitError) -> Failure {
        match error {
            CommitError::NotCommitted(error) => error.into(),
            // As `OutcomeUnknown`: unknown is not no.
            unknown => Failure::Unknown(unknown.to_string()),
        }
    }
}
