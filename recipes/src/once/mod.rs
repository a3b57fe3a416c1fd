//! Run once: many identical instances start at the same time, one runs the job, the others wait until it is
//! done, or take over. docs/recipes/once.md explains it to users.

mod driver;
mod section;
mod store;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use geolock_client::{AtLeast, Client, ClientError, CommitError, Key, LockName, Reason};

use crate::once_state::{Content, LastSeen, OnceConfigError, OnceOptions, Record};
use driver::{Asked, Driver};
pub use section::Run;
pub(crate) use section::caught;
use store::Store;

/// The bucket of all records.
const BUCKET: &[u8] = b"geolock.once";
/// The name of the lock begins with this.
const LOCK_PREFIX: &[u8] = b"geolock.once/";
/// Longest name: that of the lock has at most 1024 bytes.
const MAX_NAME: usize = 1_024 - LOCK_PREFIX.len();

/// A section that one of many instances, in any datacenters, runs.
///
/// ```no_run
/// # async fn example(client: geolock_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// # async fn schema_is_current() -> Result<bool, std::io::Error> { Ok(true) }
/// # async fn migrate(_: geolock_client::FencingToken) -> Result<(), std::io::Error> { Ok(()) }
/// use geolock_recipes::{CriticalSection, OnceOptions, Outcome, Run};
///
/// let section = CriticalSection::new(&client, "migrate", OnceOptions::default())?;
/// let needed = async || Ok(!schema_is_current().await?);
/// match section.run(needed, async |run: Run| migrate(run.token()).await).await? {
///     Outcome::GaveUp { last, .. } => return Err(last.to_string().into()),
///     _ => println!("the schema is current"),
/// }
/// # Ok(())
/// # }
/// ```
pub struct CriticalSection {
    client: Client,
    options: OnceOptions,
    lock: LockName,
    store: Store,
    progress: Option<Box<dyn Fn(Progress) + Send + Sync>>,
    /// The latest run that this instance has done; 0 if there is none.
    done: AtomicU64,
}

/// How the loop of an instance ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Nothing was left to do, and no run of another instance was seen.
    NotNeeded,
    /// It ran here, to its end.
    Ran {
        /// The number of the run: its fencing token.
        run: u64,
    },
    /// Nothing is left to do, and this run of another instance was seen to have done it.
    DoneByOther {
        /// The number of the run.
        run: u64,
        /// That instance.
        who: String,
        /// When it was done, in ms since the Unix epoch by the clock of that instance. For people.
        at_ms: u64,
    },
    /// It is still needed, as far as is known.
    GaveUp {
        /// The number of rounds.
        attempts: u32,
        /// The last thing that was seen of it.
        last: LastSeen,
    },
}

/// The reason why the loop of an instance failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OnceError<E> {
    /// It could not be found out if the section is needed.
    #[error("cannot find out if it is needed: {0}")]
    Needed(E),
    /// The server refuses a call that the section needs, for a permanent reason.
    #[error("the server refused: {message}")]
    Refused {
        /// The reason.
        reason: Reason,
        /// The same for people.
        message: String,
    },
}

/// Something that happens to an instance, for people: see [`CriticalSection::on_progress`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// The section failed here, and the others know it by now; an instance tries again after the pause.
    Failed {
        /// The error.
        error: String,
        /// The pause.
        pause: std::time::Duration,
    },
    /// It asks again after the pause, or as soon as that makes sense.
    Waits {
        /// The pause.
        pause: std::time::Duration,
    },
}

/// The state of a section, as a datacenter knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The latest run; `None` if there was none, or none for so long that it does not count.
    pub record: Option<Record>,
    /// The runner has shown that it lives within the watermark.
    pub live: bool,
    /// The back-off after a failure lasts.
    pub pause: bool,
}

impl CriticalSection {
    /// Prepares a section. Instances with the same name run one section.
    pub fn new(
        client: &Client,
        name: impl AsRef<[u8]>,
        mut options: OnceOptions,
    ) -> Result<CriticalSection, OnceConfigError> {
        options.check()?;
        let name = name.as_ref();
        let too_long = || OnceConfigError::Name { len: name.len(), most: MAX_NAME };
        if name.is_empty() || name.len() > MAX_NAME {
            return Err(too_long());
        }
        let lock = LockName::with_home(options.home, &[LOCK_PREFIX, name].concat());
        let lock = lock.map_err(|_| too_long())?;
        let key = |kind: &[u8]| Key::new(BUCKET, &[kind, name].concat()).map_err(|_| too_long());
        let (record, live, pause) = (key(b"run/")?, key(b"live/")?, key(b"pause/")?);
        if options.who.is_empty() {
            options.who = format!("process {}", std::process::id());
        }
        let store = Store { client: client.clone(), record, live, pause };
        Ok(CriticalSection {
            client: client.clone(),
            options,
            lock,
            store,
            progress: None,
            done: AtomicU64::new(0),
        })
    }

    fn done(&self) -> Option<u64> {
        Some(self.done.load(Ordering::Relaxed)).filter(|run| *run > 0)
    }

    fn note_done(&self, run: u64) {
        self.done.fetch_max(run, Ordering::Relaxed);
    }

    /// Returns the lock under which the section runs, to describe or release it.
    pub fn lock(&self) -> &LockName {
        &self.lock
    }

    /// Reads the status of the section in the datacenter of the client.
    pub async fn status(&self) -> Result<Status, ClientError> {
        let (Content { record, live, pause }, _) = self.store.read().await?;
        Ok(Status { record, live, pause })
    }

    /// Removes the record of the section: the next instance that needs it runs it, whatever was done before.
    /// Waits for the lock for [`OnceOptions::wait`], so this fails while an instance runs the section, or
    /// while the lock cannot be had. An error says if it may have been removed.
    pub async fn forget(&self) -> Result<(), CommitError> {
        self.store.remove(&self.lock, self.options.wait).await
    }

    /// Runs the section if it is needed and no other instance does.
    ///
    /// `needed` is asked first, and again in every round; an error of it ends the loop. `section` runs under
    /// the lock, with the number of the run, which each effect outside of the store has to carry. Its future
    /// is dropped when the lock is lost, before another instance can have it; the others get its error or
    /// panic, and an instance tries again.
    ///
    /// If it is needed again after a run here, a later call on the same value runs it once more at once. If
    /// another instance had that run, this waits until the record is too old, or gives up.
    pub async fn run<E: fmt::Display, N, S>(
        &self,
        mut needed: impl FnMut() -> N,
        section: impl FnMut(Run) -> S,
    ) -> Result<Outcome, OnceError<E>>
    where
        N: Future<Output = Result<bool, E>>,
        S: Future<Output = Result<(), E>>,
    {
        let asked = |_| {
            let asking = needed();
            async move {
                match asking.await {
                    Ok(needed) => Asked::Answer(needed),
                    Err(error) => Asked::Failed(error),
                }
            }
        };
        Driver::new(self).run(asked, section).await
    }

    /// As [`CriticalSection::run`], for a section that is needed as long as no run of it is done. A run
    /// counts as long as its record does ([`OnceOptions::staleness`]).
    pub async fn run_unless_done<E: fmt::Display, S: Future<Output = Result<(), E>>>(
        &self,
        section: impl FnMut(Run) -> S,
    ) -> Result<Outcome, OnceError<E>> {
        let asked = |at_least: AtLeast| async move {
            match self.store.read_at(&at_least).await {
                Ok((content, _)) => Asked::Content(content),
                Err(error) => Asked::Unreachable(error),
            }
        };
        Driver::new(self).run(asked, section).await
    }

    /// Calls `tell` for each event of this instance while it runs or waits.
    #[must_use]
    pub fn on_progress(mut self, tell: impl Fn(Progress) + Send + Sync + 'static) -> CriticalSection {
        self.progress = Some(Box::new(tell));
        self
    }
}

impl fmt::Debug for CriticalSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CriticalSection").field("lock", &self.lock).finish_non_exhaustive()
    }
}
