//! Running a future under a lock.

use super::error::{AcquireError, LostReason};
use super::guard::LockGuard;
use super::handle::Client;
use super::request::AcquireRequest;

/// The reason why a future did not run to its end under its locks.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WithLockError {
    /// The locks were not acquired: the future did not run.
    #[error("it did not run: {0}")]
    NotAcquired(#[from] AcquireError),
    /// The locks were lost while the future ran: it was dropped before another client could have them.
    /// Effects that it had by then may remain.
    #[error("it was stopped before its end: {0}")]
    Lost(LostReason),
}

impl Client {
    /// Acquires the locks, runs `work` under them, and releases them. If the locks are lost first, the future
    /// of `work` is dropped, as [`LockGuard::lost`] explains: work that does not await is not stopped.
    /// Effects outside of the store carry the token of the guard; changes of the store go through
    /// [`TxnRequest::under`](super::TxnRequest::under).
    ///
    /// ```no_run
    /// # async fn example(client: geolock_client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use geolock_client::{AcquireRequest, Batch, Key, LockName, TxnRequest, Update};
    ///
    /// let orders = AcquireRequest::exclusive(LockName::try_from("orders")?);
    /// let key = Key::new(b"orders", b"last")?;
    /// let work = async |held: &geolock_client::LockGuard| {
    ///     let batch = Batch::new().update(&key, Update::register("7"));
    ///     client.transact(TxnRequest::new().under(held), batch).await
    /// };
    /// client.with_lock(orders, work).await??;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn with_lock<T>(
        &self,
        request: AcquireRequest,
        work: impl AsyncFnOnce(&LockGuard) -> T,
    ) -> Result<T, WithLockError> {
        let guard = self.acquire(request).await?;
        let lost = guard.lost();
        let done = tokio::select! {
            biased;
            reason = lost => return Err(WithLockError::Lost(reason)),
            done = work(&guard) => done,
        };
        // The work is done. If the locks were lost at the last moment, there is nothing to release.
        let _ = guard.release().await;
        Ok(done)
    }
}
