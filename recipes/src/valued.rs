//! A lock with a value: its holder sets the value, and any client can read it.

use bytes::Bytes;
use geolock_client::{Client, ClientError, FencingToken, LockName, LostReason};

use crate::held::{HeldError, HeldOptions, HeldWatch, Holding, Place};
use crate::held_state::HeldValue;

/// The bucket of all values; with a slash, the names of the locks begin with it.
const BUCKET: &str = "geolock.valued";

/// An exclusive lock with a value, which its holder sets and any client can read. The value stays when the
/// holder releases the lock or dies, until the next holder sets its own.
///
/// ```no_run
/// # async fn example(client: geolock_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// # async fn import(_: u64, _: geolock_client::FencingToken) -> u64 { 0 }
/// use geolock_recipes::{HeldOptions, ValuedLock};
///
/// let lock = ValuedLock::new(&client, "import", HeldOptions::default())?;
/// let held = lock.acquire("begins").await?;
/// let rows = import(0, held.token()).await;
/// held.set(format!("{rows} rows")).await?;
/// held.release().await?;
/// // Elsewhere:
/// if let Some(last) = lock.read().await? {
///     println!("{} says {:?}", last.who, last.value);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ValuedLock {
    place: Place,
}

impl ValuedLock {
    /// Prepares a lock. Those with the same name are one lock.
    pub fn new(
        client: &Client,
        name: impl AsRef<[u8]>,
        options: HeldOptions,
    ) -> Result<ValuedLock, HeldError> {
        Ok(ValuedLock { place: Place::new(client, BUCKET, name.as_ref(), options, false)? })
    }

    /// Returns the lock, to describe or release it.
    pub fn lock(&self) -> &LockName {
        &self.place.lock
    }

    /// Acquires the lock, and sets its value: at most 64 KiB. Dropping the future gives up the lock.
    pub async fn acquire(&self, value: impl Into<Bytes>) -> Result<ValuedGuard, HeldError> {
        let (holding, previous) = self.place.hold(value.into()).await?;
        Ok(ValuedGuard { holding, previous })
    }

    /// Reads the last value, as far as the datacenter of the client knows; `None` if there never was one.
    pub async fn read(&self) -> Result<Option<HeldValue>, HeldError> {
        self.place.read().await
    }

    /// Follows the value: every one that is set, in the order of tokens.
    pub fn watch(&self) -> HeldWatch {
        self.place.follow()
    }
}

/// A lock with a value that is held, until it is released, dropped or lost.
#[must_use = "the lock is released when this is dropped"]
#[derive(Debug)]
pub struct ValuedGuard {
    holding: Holding,
    previous: Option<HeldValue>,
}

impl ValuedGuard {
    /// Returns the fencing token. It is above that of every holder before, in any datacenter.
    pub fn token(&self) -> FencingToken {
        self.holding.token()
    }

    /// Returns the last value of the holder before, which no other has followed; `None` if there was none, or
    /// if it could not be read.
    pub fn previous(&self) -> Option<&HeldValue> {
        self.previous.as_ref()
    }

    /// Resolves when the lock is lost, before another client can hold it, as
    /// [`LockGuard::lost`](geolock_client::LockGuard::lost) does.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + use<> {
        self.holding.lost()
    }

    /// Returns the reason of the loss if the lock is lost at this moment.
    pub fn is_lost(&self) -> Option<LostReason> {
        self.holding.is_lost()
    }

    /// Sets the value. Waits until it is written, as long as the lock is held. Of several calls at the same
    /// time the last one counts.
    pub async fn set(&self, value: impl Into<Bytes>) -> Result<(), HeldError> {
        self.holding.set(value.into()).await
    }

    /// Releases the lock; the value stays. Returns [`ClientError::LeaseLost`] if the lock had been lost
    /// before. Dropping the future does not stop it.
    pub async fn release(self) -> Result<(), ClientError> {
        self.holding.release().await
    }
}
