//! Reentrant locks: an owner in this process that holds a lock gets it again at once.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use geolock_client::{
    AcquireError, AcquireRequest, Client, ClientError, FencingToken, LockGuard, LockName, LostReason,
};
use tokio::sync::Notify;

use crate::reentrant_state::{Decision, Table, Wanted};

/// The reason why a lock was not acquired. The owner holds what it held before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReentrantError {
    /// It would wait for itself. Release the shared lock, then ask for the exclusive one; or ask for that at
    /// first.
    #[error(
        "{owner} holds {lock} in shared mode and wants it in exclusive mode: release it first, or acquire it exclusively"
    )]
    UpgradeNeeded {
        /// The lock.
        lock: LockName,
        /// The owner.
        owner: String,
    },
    /// It would hold one lock while it waits for another. Ask for those that are lacking alone, with a
    /// timeout, or for all of them at first.
    #[error(
        "{owner} holds {lock} and wants it together with locks that it acquired in another request, or not at all: name the \
         others alone, or all of them at first"
    )]
    HeldApart {
        /// A lock that it holds.
        lock: LockName,
        /// The owner.
        owner: String,
    },
    /// The locks were not acquired.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
}

/// Locks that their owners in this process may acquire again while they hold them. Clones share the owners.
///
/// ```no_run
/// # async fn example(client: geolock_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use geolock_client::{AcquireRequest, LockName};
/// use geolock_recipes::Reentrant;
///
/// let locks = Reentrant::new(&client);
/// let account = AcquireRequest::exclusive(LockName::try_from("account/7")?);
/// let outer = locks.acquire("request 4711", account.clone()).await?;
/// let inner = locks.acquire("request 4711", account).await?; // at once: the same lock, the same token
/// inner.release().await?;                                      // still held
/// outer.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Reentrant {
    client: Client,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    owners: Mutex<Owners>,
    changed: Notify,
}

#[derive(Default)]
struct Owners {
    table: Table,
    guards: BTreeMap<u64, Arc<LockGuard>>,
}

impl Owners {
    /// Owners hold nothing by a grant that is lost.
    fn forget_lost(&mut self) {
        let is_lost = |(id, guard): (&u64, &Arc<LockGuard>)| guard.is_lost().map(|_| *id);
        let lost: Vec<u64> = self.guards.iter().filter_map(is_lost).collect();
        for id in lost {
            self.guards.remove(&id);
            self.table.forget(id);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Owners> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reentrant {
    /// Returns locks without owners. They are reentrant only among the clones of this.
    pub fn new(client: &Client) -> Reentrant {
        Reentrant { client: client.clone(), shared: Arc::default() }
    }

    /// Acquires all the locks of a request, or none. If the owner holds all of them by one earlier request,
    /// as strongly, this returns at once, with the same token. An owner is any name within this process, such
    /// as that of a task. The locks are released when everything that this returned to the owner was
    /// released.
    pub async fn acquire(
        &self,
        owner: impl Into<String>,
        request: AcquireRequest,
    ) -> Result<ReentrantGuard, ReentrantError> {
        let owner = owner.into();
        let mut wanted = Wanted::new();
        for (lock, mode) in request.locks() {
            let strongest = wanted.entry(lock).or_insert(mode);
            *strongest = mode.max(*strongest);
        }
        loop {
            let changed = self.shared.changed.notified();
            let decision = {
                let mut owners = self.shared.lock();
                owners.forget_lost();
                let decision = owners.table.ask(&owner, &wanted);
                if let Decision::Again(id) = decision
                    && let Some(guard) = owners.guards.get(&id)
                {
                    let guard = Arc::clone(guard);
                    return Ok(ReentrantGuard { id, guard: Some(guard), shared: Arc::clone(&self.shared) });
                }
                decision
            };
            match decision {
                Decision::UpgradeNeeded(lock) => return Err(ReentrantError::UpgradeNeeded { lock, owner }),
                Decision::HeldApart(lock) => return Err(ReentrantError::HeldApart { lock, owner }),
                Decision::Wait | Decision::Again(_) => changed.await,
                Decision::Acquire(id) => return self.acquire_as(id, request).await,
            }
        }
    }

    async fn acquire_as(&self, id: u64, request: AcquireRequest) -> Result<ReentrantGuard, ReentrantError> {
        // From here on, dropping this future gives up the request.
        let mut asking = Asking { id, shared: &self.shared, is_granted: false };
        let guard = Arc::new(self.client.acquire(request).await?);
        {
            let mut owners = self.shared.lock();
            owners.table.granted(id);
            owners.guards.insert(id, Arc::clone(&guard));
        }
        asking.is_granted = true;
        Ok(ReentrantGuard { id, guard: Some(guard), shared: Arc::clone(&self.shared) })
    }
}

/// A request that is under way.
struct Asking<'a> {
    id: u64,
    shared: &'a Shared,
    is_granted: bool,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if !self.is_granted {
            self.shared.lock().table.forget(self.id);
        }
        self.shared.changed.notify_waiters();
    }
}

/// Locks that an owner holds, perhaps by several of these.
#[must_use = "a lock is released when the last guard of its owner is dropped"]
pub struct ReentrantGuard {
    id: u64,
    guard: Option<Arc<LockGuard>>,
    shared: Arc<Shared>,
}

impl ReentrantGuard {
    /// Returns the guard of the request by which the owner holds the locks, for its token and for
    /// [`TxnRequest::under`](geolock_client::TxnRequest::under).
    pub fn guard(&self) -> &LockGuard {
        self.guard.as_deref().expect("it is there until this is released")
    }

    /// Returns the fencing token, which all guards of the owner for these locks have.
    pub fn token(&self) -> FencingToken {
        self.guard().token()
    }

    /// Resolves when the locks are lost, which they are for all guards of the owner. See [`LockGuard::lost`].
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + use<> {
        self.guard().lost()
    }

    /// Returns true if this was the last guard of the owner: the locks are released by then. Returns
    /// [`ClientError::LeaseLost`] if they had been lost before.
    pub async fn release(mut self) -> Result<bool, ClientError> {
        if let Some(reason) = self.guard().is_lost() {
            return Err(ClientError::LeaseLost(reason));
        }
        match self.let_go() {
            Some(guard) => guard.release().await.map(|()| true),
            None => Ok(false),
        }
    }

    /// Returns the guard if it was the last.
    fn let_go(&mut self) -> Option<LockGuard> {
        let guard = self.guard.take()?;
        let mut owners = self.shared.lock();
        if owners.table.release(self.id) {
            owners.guards.remove(&self.id);
        }
        Arc::into_inner(guard)
    }
}

impl Drop for ReentrantGuard {
    fn drop(&mut self) {
        // The guard that this returns is dropped after the table is free again.
        drop(self.let_go());
    }
}

impl fmt::Debug for ReentrantGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReentrantGuard").field("guard", &self.guard).finish_non_exhaustive()
    }
}

impl fmt::Debug for Reentrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reentrant").finish_non_exhaustive()
    }
}
