//! Semaphores: a number of permits that clients in all datacenters share.

use std::fmt;

use geolock_client::{
    AcquireError, AcquireRequest, Batch, Client, ClientError, CommitError, DcId, FencingToken, Key,
    LockGuard, LockName, LockNameError, LostReason, TxnRequest, Update, Wait, WrongType,
};

/// The bucket of the numbers of permits; with a slash, the names of the locks begin with it.
const BUCKET: &str = "geolock.semaphore";
/// Most permits of a semaphore: those of one request for enough of many locks.
const MAX_PERMITS: u32 = 10_000;

/// The reason why a semaphore could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SemaphoreError {
    /// The name is empty or too long.
    #[error("the name of a semaphore: {0}")]
    Name(#[from] LockNameError),
    /// The number of permits is out of range.
    #[error(
        "a semaphore has 1 to {MAX_PERMITS} permits, and together they have names of at most 1 MiB; not {0}"
    )]
    Permits(u32),
    /// More permits, or fewer, were asked for than there can be.
    #[error("of {permits} permits 1 to {permits} can be taken, not {asked}")]
    Take {
        /// The permits that were asked for.
        asked: u32,
        /// Those of the semaphore.
        permits: u32,
    },
    /// Another client uses the semaphore with another number of permits.
    #[error(
        "semaphore {name} has {recorded} permits, and this client counts on {asked}: use one number in all clients"
    )]
    PermitsDiffer {
        /// The name of the semaphore.
        name: String,
        /// The number that was recorded by the first client.
        recorded: u32,
        /// The number of this client.
        asked: u32,
    },
    /// The permits were not acquired. None is held.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
    /// The number of permits could not be read.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The number of permits could not be written.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// Something else has written the key of the number of permits.
    #[error("the key of the semaphore has no number of permits: {0}")]
    NoNumber(#[from] WrongType),
}

/// A semaphore: never more than its permits are held, in all datacenters together.
///
/// ```no_run
/// # async fn example(client: geolock_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use geolock_recipes::Semaphore;
///
/// let exports = Semaphore::new(&client, "exports", 10)?;
/// let permits = exports.acquire(2).await?; // two of ten
/// // export
/// permits.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Semaphore {
    client: Client,
    name: String,
    permits: u32,
    wait: Wait,
    label: String,
    /// The lock of each permit.
    slots: Vec<LockName>,
    /// Held while the number of permits is recorded.
    record: LockName,
    key: Key,
}

impl Semaphore {
    /// Prepares a semaphore with that many permits, the same number in all clients. `name` has at most 500
    /// bytes.
    pub fn new(client: &Client, name: impl Into<String>, permits: u32) -> Result<Semaphore, SemaphoreError> {
        Semaphore::prepare(client, name.into(), permits, None)
    }

    /// The same, with a [home](LockName::homed) for its permits: the datacenter in which most of them are
    /// used. A semaphore with another home, or none, is another one.
    pub fn homed(
        client: &Client,
        name: impl Into<String>,
        permits: u32,
        home: DcId,
    ) -> Result<Semaphore, SemaphoreError> {
        Semaphore::prepare(client, name.into(), permits, Some(home))
    }

    fn prepare(
        client: &Client,
        name: String,
        permits: u32,
        home: Option<DcId>,
    ) -> Result<Semaphore, SemaphoreError> {
        let lock = |suffix: &str| {
            let text = format!("{BUCKET}/{name}/{suffix}");
            match home {
                Some(home) => LockName::homed(home, text.as_bytes()),
                None => LockName::try_from(text.as_str()),
            }
        };
        if name.is_empty() {
            return Err(LockNameError::Empty.into());
        }
        if name.len() > 500 {
            return Err(LockNameError::TooLong(name.len()).into());
        }
        if permits == 0 || permits > MAX_PERMITS {
            return Err(SemaphoreError::Permits(permits));
        }
        let slots = (0..permits).map(|slot| lock(&slot.to_string())).collect::<Result<Vec<_>, _>>()?;
        if slots.iter().map(|slot| slot.as_bytes().len()).sum::<usize>() > 1 << 20 {
            return Err(SemaphoreError::Permits(permits));
        }
        let of_home = home.map_or(String::new(), |home| format!("@{}", home.get()));
        let key = Key::new(BUCKET.as_bytes(), format!("{name}{of_home}").as_bytes());
        let key = key.map_err(|_| LockNameError::TooLong(name.len()))?;
        let record = lock("permits")?;
        let (client, wait, label) = (client.clone(), Wait::Forever, String::new());
        Ok(Semaphore { client, name, permits, wait, label, slots, record, key })
    }

    /// The same, with another bound of the wait.
    pub fn with_wait(self, wait: Wait) -> Semaphore {
        Semaphore { wait, ..self }
    }

    /// The same, with a label of the holder for people who inspect the locks.
    pub fn with_label(self, label: impl Into<String>) -> Semaphore {
        Semaphore { label: label.into(), ..self }
    }

    /// Returns the locks of the permits, to describe or release them.
    pub fn locks(&self) -> &[LockName] {
        &self.slots
    }

    /// Returns the request for that many permits, for callers that acquire it themselves. See
    /// [`Semaphore::check`].
    pub fn request(&self, take: u32) -> Result<AcquireRequest, SemaphoreError> {
        if take == 0 || take > self.permits {
            return Err(SemaphoreError::Take { asked: take, permits: self.permits });
        }
        let request = AcquireRequest::enough(take.into()).wait(self.wait).label(&self.label);
        Ok(self.slots.iter().fold(request, |request, slot| request.candidate(slot, 1)))
    }

    /// Acquires that many permits, all at once. Dropping the future gives up the place in the queue.
    pub async fn acquire(&self, take: u32) -> Result<Permits, SemaphoreError> {
        let request = self.request(take)?;
        self.check().await?;
        Ok(Permits { guard: self.client.acquire(request).await? })
    }

    /// Compares the number of permits with the one that the first client has recorded, and records it if
    /// there is none. Only the first use of a semaphore takes more than a read in the own datacenter.
    pub async fn check(&self) -> Result<(), SemaphoreError> {
        if let Some(recorded) = recorded(self.client.read(&self.key).await?.register()?) {
            return self.compare(recorded);
        }
        let txn = TxnRequest::exclusive(self.record.clone()).wait(self.wait);
        let mut txn = match self.client.begin(txn).await {
            Ok(txn) => txn,
            Err(error) => return Err(CommitError::from(error).into()),
        };
        let known = txn.read(&self.key).await.map_err(CommitError::from)?;
        if let Some(recorded) = recorded(known.register()?) {
            // An abort that fails ends the transaction, too.
            let _ = txn.abort().await;
            return self.compare(recorded);
        }
        let number = Update::register(self.permits.to_string());
        match txn.commit_with(Batch::new().update(&self.key, number)).await {
            Ok(_) | Err(CommitError::NotAtMajority(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn compare(&self, recorded: u32) -> Result<(), SemaphoreError> {
        if recorded == self.permits {
            return Ok(());
        }
        Err(SemaphoreError::PermitsDiffer { name: self.name.clone(), recorded, asked: self.permits })
    }
}

/// Returns the recorded number; 0 for something that is no number.
fn recorded(value: Option<&bytes::Bytes>) -> Option<u32> {
    value.map(|value| std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).unwrap_or(0))
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("name", &self.name)
            .field("permits", &self.permits)
            .finish_non_exhaustive()
    }
}

/// Permits that are held until they are released or dropped, or lost with the lease.
#[derive(Debug)]
#[must_use = "the permits are released when this is dropped"]
pub struct Permits {
    guard: LockGuard,
}

impl Permits {
    /// Returns the numbers of the permits, from 0 on.
    pub fn numbers(&self) -> &[u32] {
        self.guard.chosen()
    }

    /// Returns the guard of the client, for [`TxnRequest::under`](geolock_client::TxnRequest::under).
    pub fn guard(&self) -> &LockGuard {
        &self.guard
    }

    /// Returns the fencing token: above that of every earlier holder of each of these permits.
    pub fn token(&self) -> FencingToken {
        self.guard.token()
    }

    /// Resolves when the permits are lost. See [`LockGuard::lost`].
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + use<> {
        self.guard.lost()
    }

    /// Releases the permits. See [`LockGuard::release`].
    pub async fn release(self) -> Result<(), ClientError> {
        self.guard.release().await
    }
}
