//! Double barrier: members in any datacenters begin together and end together.

mod members;

use std::time::Duration;

use bytes::Bytes;
use geolock_client::{Client, ClientError, CommitError, TxnError, WrongType};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::limits::{TooLong, check_times};
use members::{Keys, Task};

/// Longest name of a barrier together with the name of a member.
const MAX_NAME: usize = 1_000;
/// Most members: each follows all others.
const MAX_MEMBERS: usize = 1_000;

/// The options of a [`Barrier`]. All times are at most 365 days.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BarrierOptions {
    /// A member that has not shown for this long that it lives is dead for the others: at least 1 s. Short:
    /// they hear of a dead member sooner. Long: a member survives longer pauses. Default 10 s.
    pub expiry: Duration,
    /// The barrier is kept for this long after the last member came, so that a name is not used twice by
    /// mistake: at least `expiry`. Default 24 h.
    pub keep: Duration,
}

impl Default for BarrierOptions {
    fn default() -> BarrierOptions {
        BarrierOptions { expiry: Duration::from_secs(10), keep: Duration::from_secs(24 * 3_600) }
    }
}

/// The reason why a barrier could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BarrierError {
    /// The names are too long, or one is empty.
    #[error(
        "a barrier and its member have names of at least 1 byte each, and at most {MAX_NAME} together; these have {barrier} \
         and {member}"
    )]
    Name {
        /// The length of the name of the barrier, in bytes.
        barrier: usize,
        /// The length of the name of the member.
        member: usize,
    },
    /// The number of members is out of its bounds.
    #[error("a barrier has 1 to {MAX_MEMBERS} members, this one has {0}")]
    Members(usize),
    /// [`BarrierOptions::expiry`] is below its bound, or above `keep`.
    #[error("`expiry` is at least 1 s and at most `keep`; here it is {expiry:?}, and `keep` {keep:?}")]
    Expiry {
        /// The value.
        expiry: Duration,
        /// The value of `keep`.
        keep: Duration,
    },
    /// A time is longer than 365 days.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// The barrier has opened before: the next one has another name.
    #[error("the barrier has opened before this member came: use another name for the next one")]
    Used,
    /// This member was silent for longer than its expiry. The others count it as dead, and do not wait for
    /// it.
    #[error("this member was silent for too long: the others count it as dead")]
    Expired,
    /// The server refuses a write that the member needs.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The members could not be read.
    #[error(transparent)]
    Read(#[from] TxnError),
    /// The members could not be followed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Something else has written a key of the barrier.
    #[error("a key of the barrier has something else: {0}")]
    WrongType(#[from] WrongType),
    /// The runtime of the member has ended.
    #[error("the task of this member has ended")]
    Closed,
}

/// A barrier that is passed together twice: by `enter` when all members are in, by `leave` when all are out.
///
/// ```no_run
/// # async fn example(client: geolock_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use geolock_recipes::{Barrier, BarrierOptions};
///
/// let round = Barrier::new(&client, "round/17", 9, BarrierOptions::default())?;
/// let inside = round.enter("worker 3").await?; // all nine are in
/// let dead = inside.leave().await?;            // all are out, but for those that died
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Barrier {
    client: Client,
    name: Bytes,
    needed: usize,
    options: BarrierOptions,
}

impl Barrier {
    /// Prepares a barrier for that many members. A name is used for one barrier, and all members name the
    /// same number.
    pub fn new(
        client: &Client,
        name: impl AsRef<[u8]>,
        needed: usize,
        options: BarrierOptions,
    ) -> Result<Barrier, BarrierError> {
        let name = Bytes::copy_from_slice(name.as_ref());
        let BarrierOptions { expiry, keep } = options;
        if name.is_empty() || name.len() >= MAX_NAME {
            return Err(BarrierError::Name { barrier: name.len(), member: 0 });
        }
        if !(1..=MAX_MEMBERS).contains(&needed) {
            return Err(BarrierError::Members(needed));
        }
        check_times(&[("expiry", expiry), ("keep", keep)])?;
        if expiry < Duration::from_secs(1) || keep < expiry {
            return Err(BarrierError::Expiry { expiry, keep });
        }
        Ok(Barrier { client: client.clone(), name, needed, options })
    }

    /// Comes in, and waits until as many members are in as the barrier needs. Members have different names.
    /// Dropping the future leaves in the background.
    pub async fn enter(&self, member: impl AsRef<[u8]>) -> Result<Inside, BarrierError> {
        let keys = Keys::new(&self.name, member.as_ref())?;
        let (leaves, left) = oneshot::channel();
        let (entered, is_in) = oneshot::channel();
        let task = Task::begin(&self.client, keys, self.needed, self.options.clone()).await?;
        let inside = Inside { leaves, task: tokio::spawn(task.run(entered, left)) };
        match is_in.await {
            Ok(()) => Ok(inside),
            // The task has ended, and says why.
            Err(_) => Err(inside.ended().await.err().unwrap_or(BarrierError::Closed)),
        }
    }
}

/// A member that is inside. If this is dropped, the member leaves, and no caller waits.
#[must_use = "a member leaves when this is dropped"]
#[derive(Debug)]
pub struct Inside {
    leaves: oneshot::Sender<()>,
    task: JoinHandle<Result<Vec<Bytes>, BarrierError>>,
}

impl Inside {
    /// Leaves, and waits until all members are out. Returns those that died: they have not left, but shown no
    /// sign of life for the expiry. Dropping the future does not stop the member from leaving.
    pub async fn leave(self) -> Result<Vec<Bytes>, BarrierError> {
        let Inside { leaves, task } = self;
        // If the task has ended, it says why.
        let _ = leaves.send(());
        task.await.unwrap_or(Err(BarrierError::Closed))
    }

    async fn ended(self) -> Result<Vec<Bytes>, BarrierError> {
        self.task.await.unwrap_or(Err(BarrierError::Closed))
    }
}
