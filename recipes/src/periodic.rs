//! Once a period: one of all instances that try, in any datacenters, runs the job, at most once in a period.

use std::fmt::{self, Display};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use geolock_client::{
    AcquireError, AcquireRequest, Batch, Client, ClientError, CommitError, DcId, FencingToken, Key,
    LockDescription, LockGuard, LockName, Reading, TxnError, TxnRequest, Update, Value, Wait,
};

use crate::limits::check_times;
use crate::once::{Run, caught};
use crate::once_state::{Record, RunState};
pub use crate::periodic_state::PeriodicOutcome;
use crate::periodic_state::{Attempt, Away, Effect, Event, Mark, usual_slack};

/// The bucket of all marks.
const BUCKET: &[u8] = b"geolock.every";
/// The name of the lock begins with this.
const LOCK_PREFIX: &[u8] = b"geolock.every/";

/// The options of a [`Periodic`] job.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PeriodicOptions {
    /// A run that fails does not count: the next attempt may run it at once. Default: no.
    pub again_after_failure: bool,
    /// Longest wait for the lock, which is held while the job runs elsewhere, or is on its way. Default 5 s,
    /// at most 365 days.
    pub patience: Duration,
    /// A run may begin by so much before the period since the last one is over, so that a timer with the
    /// period of the job runs it each time, although it is never exact: at most half of the period. Zero:
    /// never, and such a timer may run the job every second time only. Default: a tenth of the period, at
    /// most a minute.
    pub slack: Option<Duration>,
    /// As [`OnceOptions::home`](crate::OnceOptions::home).
    pub home: Option<DcId>,
    /// As [`OnceOptions::who`](crate::OnceOptions::who).
    pub who: String,
}

impl Default for PeriodicOptions {
    fn default() -> PeriodicOptions {
        let (again_after_failure, patience) = (false, Duration::from_secs(5));
        PeriodicOptions { again_after_failure, patience, slack: None, home: None, who: String::new() }
    }
}

/// The reason why an attempt failed. The job did not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeriodicError {
    /// The name, the period or an option cannot be used.
    #[error("{0}")]
    Config(String),
    /// The mark could not be read.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The lock could not be acquired.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
    /// The mark could not be read or written under the lock.
    #[error(transparent)]
    Commit(#[from] CommitError),
}

/// A job that runs at most once in a period, less a slack, of all instances that try.
///
/// ```no_run
/// # async fn example(client: geolock_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// # async fn write_report(_: u64) -> Result<(), std::io::Error> { Ok(()) }
/// use std::time::Duration;
/// use geolock_recipes::{Periodic, PeriodicOptions, Run};
///
/// let every = Duration::from_secs(3600);
/// let report = Periodic::new(&client, "report", every, PeriodicOptions::default())?;
/// report.run(async |run: Run| write_report(run.token().0).await).await?;
/// # Ok(())
/// # }
/// ```
pub struct Periodic {
    client: Client,
    every: Duration,
    mark_lasts: Duration,
    options: PeriodicOptions,
    lock: LockName,
    mark: Key,
}

impl Periodic {
    /// Prepares a job that runs once in `every`, 1 s to 365 days, less [`PeriodicOptions::slack`]. Instances
    /// with the same name run one job.
    pub fn new(
        client: &Client,
        name: impl AsRef<[u8]>,
        every: Duration,
        mut options: PeriodicOptions,
    ) -> Result<Periodic, PeriodicError> {
        if every < Duration::from_secs(1) {
            return Err(PeriodicError::Config(format!("a period is at least 1 s, here it is {every:?}")));
        }
        check_times(&[("every", every), ("patience", options.patience)])
            .map_err(|error| PeriodicError::Config(error.to_string()))?;
        let slack = options.slack.unwrap_or_else(|| usual_slack(every));
        if slack > every / 2 {
            let why = format!("`slack` is at most half of the period, {:?}; here it is {slack:?}", every / 2);
            return Err(PeriodicError::Config(why));
        }
        let (name, mark_lasts) = (name.as_ref(), every - slack);
        let config = |error: &dyn Display| PeriodicError::Config(error.to_string());
        let mark = Key::new(BUCKET, name).map_err(|error| config(&error))?;
        let lock = LockName::with_home(options.home, &[LOCK_PREFIX, name].concat());
        let lock = lock.map_err(|error| config(&error))?;
        if options.who.is_empty() {
            options.who = format!("process {}", std::process::id());
        }
        Ok(Periodic { client: client.clone(), every, mark_lasts, options, lock, mark })
    }

    /// Returns the lock under which the job runs.
    pub fn lock(&self) -> &LockName {
        &self.lock
    }

    /// Runs the job, unless it ran in this period or runs elsewhere. The future of the job is dropped when
    /// the lock is lost.
    pub async fn run<E: Display, S: Future<Output = Result<(), E>>>(
        &self,
        job: impl FnOnce(Run) -> S,
    ) -> Result<PeriodicOutcome, PeriodicError> {
        let mut attempt = Attempt::new(self.options.again_after_failure);
        let (mut guard, mut job): (Option<Arc<LockGuard>>, _) = (None, Some(job));
        while let Some(effect) = attempt.poll_effect() {
            match (effect, &guard) {
                (Effect::Look, _) => attempt.handle(Event::Marked(self.look().await?)),
                (Effect::Acquire, _) => match self.acquire().await? {
                    Ok(held) => {
                        let token = held.token().0;
                        guard = Some(Arc::new(held));
                        attempt.handle(Event::Granted { token });
                    }
                    Err(away) => attempt.handle(Event::Busy(away)),
                },
                (Effect::Read, Some(guard)) => attempt.handle(self.read(guard).await?),
                (Effect::Write { token }, Some(guard)) => {
                    attempt.handle(Event::Written(self.write(guard, token).await?));
                }
                (Effect::Remove, Some(guard)) => {
                    let removed = self.commit(guard, Batch::new().remove(&self.mark)).await;
                    attempt.handle(Event::Written(removed.is_ok()));
                }
                (Effect::Start { token }, Some(guard)) => {
                    let Some(job) = job.take() else { continue };
                    let (_running, run) = Run::new(FencingToken(token), Arc::downgrade(guard));
                    let event = tokio::select! {
                        biased;
                        _ = guard.lost() => Event::Lost,
                        ended = async { pin!(caught(job(run))).await } => Event::Ended(ended),
                    };
                    attempt.handle(event);
                }
                (Effect::Leave, _) => {
                    if let Some(guard) = guard.take().and_then(Arc::into_inner) {
                        // If it was lost, there is nothing to release.
                        let _ = guard.release().await;
                    }
                }
                (Effect::Finish(outcome), _) => return Ok(outcome),
                // The job was dropped already; nothing else is asked for without a lock.
                (Effect::Stop | Effect::Read | Effect::Write { .. }, _) => {}
                (Effect::Remove | Effect::Start { .. }, None) => {}
            }
        }
        Ok(PeriodicOutcome::Unknown { unreachable: Vec::new() })
    }

    async fn look(&self) -> Result<Option<Mark>, ClientError> {
        Ok(mark(&self.client.read(&self.mark).await?))
    }

    async fn acquire(&self) -> Result<Result<LockGuard, Away>, AcquireError> {
        let request = AcquireRequest::exclusive(self.lock.clone()).label(&self.options.who);
        match self.client.acquire(request.wait(Wait::AtMost(self.options.patience))).await {
            Ok(guard) => Ok(Ok(guard)),
            Err(AcquireError::TimedOut { locks, .. }) => Ok(Err(away(&locks))),
            Err(AcquireError::NotFree) => Ok(Err(Away::OutOfReach(Vec::new()))),
            Err(error) => Err(error),
        }
    }

    async fn read(&self, guard: &LockGuard) -> Result<Event, CommitError> {
        let done = self.commit(guard, Batch::new().read(&self.mark)).await;
        Ok(match done {
            Ok(Some(values)) => Event::Marked(values.first().and_then(mark)),
            // The answer was lost, or the lock.
            Ok(None) => Event::Lost,
            Err(error) if is_lost(&error) => Event::Lost,
            Err(error) => return Err(error),
        })
    }

    /// Returns false if the lock was lost.
    async fn write(&self, guard: &LockGuard, token: u64) -> Result<bool, CommitError> {
        let (state, who) = (RunState::Started, self.options.who.clone());
        let record = Record { run: token, state, who, attempts: 0, at_ms: 0 };
        let batch = Batch::new().update(&self.mark, Update::register(record.encode()));
        match self.commit(guard, batch.expire(&self.mark, self.mark_lasts)).await {
            Ok(_) => Ok(true),
            Err(error) if is_lost(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn commit(&self, guard: &LockGuard, batch: Batch) -> Result<Option<Vec<Value>>, CommitError> {
        match self.client.transact(TxnRequest::new().under(guard), batch).await {
            Ok(done) => Ok(done.values),
            // Committed here, and it stays so.
            Err(CommitError::NotAtMajority(not)) => Ok(not.values),
            Err(error) => Err(error),
        }
    }
}

impl fmt::Debug for Periodic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Periodic")
            .field("lock", &self.lock)
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}

fn away(locks: &[LockDescription]) -> Away {
    if locks.iter().any(|lock| !lock.holders.is_empty()) {
        return Away::Held;
    }
    let unreachable = locks.iter().flat_map(|lock| &lock.unreachable_dcs);
    Away::OutOfReach(unreachable.filter_map(|dc| DcId::new(u8::try_from(*dc).ok()?)).collect())
}

fn mark(value: &Value) -> Option<Mark> {
    let record = match value.reading()? {
        Reading::LwwRegister(Some(bytes)) => Record::decode(bytes),
        _ => None,
    };
    // A mark that cannot be read is one all the same.
    Some(
        record
            .map_or(Mark { run: 0, who: String::new() }, |record| Mark { run: record.run, who: record.who }),
    )
}

/// Returns true if the lock is lost, or the outcome of the commit is unknown: then it does not run.
fn is_lost(error: &CommitError) -> bool {
    use geolock_client::Reason::{ForceReleased, NotHeld, TransactionLostLocks};
    matches!(
        error,
        CommitError::NotCommitted(
            TxnError::LeaseLost(_)
                | TxnError::Refused(NotHeld, _)
                | TxnError::Over(TransactionLostLocks | ForceReleased, _)
        ) | CommitError::OutcomeUnknown(_)
    )
}
