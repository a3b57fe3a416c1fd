//! Read-write locks: a writer that becomes a reader without letting another writer in between.

use std::fmt;

use geolock_client::{
    AcquireError, AcquireRequest, Client, ClientError, FencingToken, LockGuard, LockName, LostReason, Wait,
};

/// A lock that many readers hold together, or one writer alone.
///
/// ```no_run
/// # async fn example(client: geolock_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use geolock_client::LockName;
/// use geolock_recipes::RwLock;
///
/// let prices = RwLock::new(&client, LockName::try_from("prices")?);
/// let writing = prices.write().await?;
/// // change the prices
/// let reading = writing.downgrade().await?; // other readers come in, no writer does
/// // print them, as they were written
/// reading.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RwLock {
    client: Client,
    lock: LockName,
    wait: Wait,
}

impl RwLock {
    /// Returns the lock of that name. Readers and writers wait for as long as it takes, see
    /// [`RwLock::with_wait`].
    pub fn new(client: &Client, lock: LockName) -> RwLock {
        RwLock { client: client.clone(), lock, wait: Wait::Forever }
    }

    /// The same, with another bound of the wait.
    pub fn with_wait(self, wait: Wait) -> RwLock {
        RwLock { wait, ..self }
    }

    /// Acquires the lock shared. A reader waits behind the writers that asked before it.
    pub async fn read(&self) -> Result<ReadGuard, AcquireError> {
        let guard = self.acquire(AcquireRequest::shared(self.lock.clone())).await?;
        Ok(ReadGuard(guard))
    }

    /// Acquires the lock exclusively. Readers that ask after this one cannot keep it out.
    pub async fn write(&self) -> Result<WriteGuard, AcquireError> {
        let guard = self.acquire(AcquireRequest::exclusive(self.lock.clone())).await?;
        Ok(WriteGuard { guard, lock: self.lock.clone() })
    }

    async fn acquire(&self, request: AcquireRequest) -> Result<LockGuard, AcquireError> {
        self.client.acquire(request.wait(self.wait)).await
    }
}

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLock").field("lock", &self.lock).field("wait", &self.wait).finish_non_exhaustive()
    }
}

/// A lock that is held shared. It is released when this is dropped.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct ReadGuard(LockGuard);

/// A lock that is held exclusively. It is released when this is dropped.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct WriteGuard {
    guard: LockGuard,
    lock: LockName,
}

impl ReadGuard {
    /// Returns the guard of the client, for [`TxnRequest::under`](geolock_client::TxnRequest::under).
    pub fn guard(&self) -> &LockGuard {
        &self.0
    }

    /// Returns the fencing token: that of the write, after a downgrade.
    pub fn token(&self) -> FencingToken {
        self.0.token()
    }

    /// Resolves when the lock is lost. See [`LockGuard::lost`].
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + use<> {
        self.0.lost()
    }

    /// Releases the lock. See [`LockGuard::release`].
    pub async fn release(self) -> Result<(), ClientError> {
        self.0.release().await
    }
}

impl WriteGuard {
    /// Returns the guard of the client, for [`TxnRequest::under`](geolock_client::TxnRequest::under).
    pub fn guard(&self) -> &LockGuard {
        &self.guard
    }

    /// Returns the fencing token.
    pub fn token(&self) -> FencingToken {
        self.guard.token()
    }

    /// Resolves when the lock is lost. See [`LockGuard::lost`].
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + use<> {
        self.guard.lost()
    }

    /// Holds the lock shared from now on, with the same token. Nothing writes in between. After an error, or
    /// if the future is dropped, the lock is not held any more.
    pub async fn downgrade(self) -> Result<ReadGuard, ClientError> {
        self.guard.downgrade(&self.lock).await?;
        Ok(ReadGuard(self.guard))
    }

    /// Releases the lock. See [`LockGuard::release`].
    pub async fn release(self) -> Result<(), ClientError> {
        self.guard.release().await
    }
}
