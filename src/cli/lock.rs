//! `geolock lock`: runs a command while holding locks.
//!
//! The client library reports the loss of the locks [`lease_margin`] (a tenth of the time to live) before the
//! lease can end at the server. The command's process group gets `SIGTERM` at once and `SIGKILL` after half
//! of that margin; the other half is for the machine to execute it. If the lease has ended already (the
//! server said so, or geolock was stopped for too long), the group gets `SIGKILL` at once.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::anyhow;
use tokio::time::{Instant, sleep};

use super::connect::{self, ConnectArgs, refused};
use super::dc_names::DcNames;
use super::describe;
use super::failure::{Code, Failure, OrFail as _};
use super::home::{Home, HomeArgs};
use super::job::{Ended, Event, Job, Signals};
use super::kv;
use super::print::tell;
use super::waiting::{Telling, Waiting};
use crate::server::config::{parse_duration, units_of_durations};
use geolock_api::names::{LockName, MAX_LABEL};
use geolock_client::{
    AcquireError, AcquireRequest, Client, ClientError, FencingToken, LockGuard, LostReason, Mode, Reason,
    Wait, lease_margin,
};
use geolock_recipes::{Semaphore, SemaphoreError};

/// Most time until members know that all of them understand locks with a home, unless a release does not.
const UNDERSTOOD_WITHIN: Duration = Duration::from_secs(5);
/// The wait between two attempts meanwhile.
const AGAIN: Duration = Duration::from_millis(50);

/// Headings of options, here and in the other commands that hold locks.
const WAITING: &str = "Waiting";
pub(super) const HOLDER: &str = "Holder of the lock";

/// Run a command while holding locks.
///
/// Waits until all of the named locks are held, runs the command, and releases the locks when it has ended.
/// The command finds the fencing token in GEOLOCK_TOKEN: a number that increases from holder to holder. If
/// the locks are lost, the command is ended before another client can have them (at once if an operator
/// releases them by force, or if the lease is over already), also if geolock itself is killed. That is not
/// possible while geolock is stopped, or if its guard is killed, too, so let the protected resource refuse
/// tokens below the highest it has seen.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Exit codes: that of the command (128 + N if signal N killed it), or 75: not acquired in time, 74: lost while the \
command ran, 69: no server reachable, 72: the server's disk is full, 77: the server does not allow it, 64: wrong usage, 126 \
and 127: the command cannot be run or found.

A command whose locks are lost gets SIGTERM a tenth of the time to live before another client can have them, and \
SIGKILL half of that later. Ctrl-Z stops the command and geolock with it; the locks are then lost when the time to live is over.
When the command ends, the rest of its process group is ended, too; use setsid to outlive it.

Examples:
  geolock lock nightly-report -- ./report.sh
  geolock lock --shared --wait 20s config -- cat config.yml
  geolock lock account/7 account/9 -- sh -c './move --token $GEOLOCK_TOKEN 7 9'
  geolock lock --home 1 vm/4711 -- ./start-vm 4711
  geolock lock --permits 10 --take 2 exports -- ./export.sh")]
pub struct LockArgs {
    /// Hold the locks in shared mode, together with other shared holders
    #[arg(long)]
    shared: bool,
    /// Take permits of the semaphore NAME, which has this many, instead of locks
    ///
    /// Never more than that are held, in all datacenters together. All users of a semaphore state the same
    /// number.
    #[arg(long, value_name = "N", conflicts_with = "shared")]
    permits: Option<u32>,
    /// How many permits to take [default: 1]
    #[arg(long, value_name = "N", requires = "permits")]
    take: Option<u32>,
    /// How long to wait for the locks, such as 20s or 5min [default: for ever]
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "try_once", help_heading = WAITING)]
    wait: Option<Duration>,
    /// Do not wait, and do not ask other datacenters
    #[arg(long = "try", help_heading = WAITING)]
    try_once: bool,
    /// The holder's name, shown to people who inspect a lock (default: user@host: command)
    #[arg(long, value_name = "TEXT", help_heading = HOLDER)]
    label: Option<String>,
    /// While waiting, also print changes of times and places to standard error if that is no terminal
    #[arg(long, help_heading = WAITING)]
    verbose: bool,
    /// Time without contact to the server after which the locks are lost [default: 10s, or the server's limit
    /// if that is shorter]
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = HOLDER)]
    ttl: Option<Duration>,
    #[command(flatten)]
    home: HomeArgs,
    #[command(flatten)]
    connect: ConnectArgs,
    /// The locks: any bytes, up to 1024 each
    #[arg(required = true, value_name = "NAME", value_parser = clap::value_parser!(OsString))]
    names: Vec<OsString>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD", value_parser = clap::value_parser!(OsString))]
    command: Vec<OsString>,
}

/// Signals to geolock itself end it before the locks are held; after that they are passed to the command.
pub async fn run(args: LockArgs) -> Result<ExitCode, Failure> {
    let home = args.home.find(&args.connect).await?;
    let names = args.names(home)?;
    let mut signals = Signals::listen()?;
    let client = tokio::select! {
        client = args.connect.connect(|config| config.ttl = args.ttl) => client?,
        signal = signals.wish_to_end() => return Err(ended_by(signal)),
    };
    let (names, request) = match args.permits {
        Some(permits) => tokio::select! {
            prepared = args.permits(&client, (&names, home), permits) => prepared?,
            signal = signals.wish_to_end() => return Err(ended_by(signal)),
        },
        None => (names.clone(), args.request(&names)),
    };
    let waiting = Waiting { names: &names, mode: args.mode(), label: &args.label() };
    let acquired = tokio::select! {
        biased;
        acquired = acquire(&client, request, args.patience()) => acquired,
        () = waiting.tell(&client, Telling::of(args.verbose)) => unreachable!("it goes on for ever"),
        signal = signals.wish_to_end() => {
            // That leaves the queue. A second signal ends the wait.
            tokio::select! {
                _ = client.close() => {}
                _ = signals.wish_to_end() => {}
            }
            return Err(ended_by(signal));
        }
    };
    let outcome = match acquired {
        Ok(guard) => run_under(guard, &args.command, client.ttl(), signals).await,
        Err(error) => Err(not_acquired(error, &client).await),
    };
    if !matches!(outcome, Ok((_, Release::GivenUp))) {
        // If this fails, the lease expires; only the outcome of the command counts. A signal ends the wait.
        let mut signals = Signals::listen()?;
        tokio::select! {
            _ = client.close() => {}
            _ = signals.wish_to_end() => {}
        }
    }
    outcome.map(|(ended, _)| ExitCode::from(ended.exit_code()))
}

/// Acquires. In the first moment of a cluster its members do not know yet that all of them understand locks
/// with a home: that is waited for.
async fn acquire(
    client: &Client,
    request: AcquireRequest,
    patience: Duration,
) -> Result<LockGuard, AcquireError> {
    let until = Instant::now() + patience;
    loop {
        match client.acquire(request.clone()).await {
            Err(AcquireError::Refused(Reason::NotYet, _)) if Instant::now() < until => sleep(AGAIN).await,
            acquired => return acquired,
        }
    }
}

/// The state of the locks when the command has ended.
pub(super) enum Release {
    Done,
    /// A signal ended the wait for the server's answer.
    GivenUp,
}

/// Something that is held while a command runs.
pub(super) trait Held {
    fn token(&self) -> FencingToken;
    /// As [`LockGuard::lost`].
    fn lost(&self) -> Pin<Box<dyn Future<Output = LostReason> + Send>>;
    fn is_lost(&self) -> Option<LostReason>;
    async fn release(self) -> Result<(), ClientError>;
}

impl Held for LockGuard {
    fn token(&self) -> FencingToken {
        LockGuard::token(self)
    }

    fn lost(&self) -> Pin<Box<dyn Future<Output = LostReason> + Send>> {
        Box::pin(LockGuard::lost(self))
    }

    fn is_lost(&self) -> Option<LostReason> {
        LockGuard::is_lost(self)
    }

    async fn release(self) -> Result<(), ClientError> {
        LockGuard::release(self).await
    }
}

/// Runs the command while `held` is held, and releases it.
pub(super) async fn run_under(
    held: impl Held,
    command: &[OsString],
    ttl: Duration,
    signals: Signals,
) -> Result<(Ended, Release), Failure> {
    let mut started = Command::new(&command[0]);
    started.args(&command[1..]).env("GEOLOCK_TOKEN", held.token().to_string());
    match Job::start(&mut started, signals) {
        Ok(job) => hold(job, held, ttl).await,
        Err(error) => Err(not_started(error, &command[0])),
    }
}

/// Supervises the command until it and all of its group have ended.
async fn hold(mut job: Job, guard: impl Held, ttl: Duration) -> Result<(Ended, Release), Failure> {
    let mut lost = guard.lost();
    loop {
        let event = tokio::select! {
            biased;
            reason = &mut lost => {
                let grace = grace(&reason, ttl);
                return Err(end_lost(job, reason, grace).await);
            }
            event = job.next() => event,
        };
        match event {
            Ok(Event::Ended(ended)) => {
                tokio::select! {
                    biased;
                    reason = &mut lost => return Err(end_lost(job, reason, Duration::ZERO).await),
                    () = job.end(LEFT_BEHIND) => {}
                }
                if matches!(ended, Ended::Killed(_)) {
                    job.tidy_terminal();
                }
                return released(guard, &mut job).await.map(|release| (ended, release));
            }
            Ok(Event::Stopped) => {
                job.stop_along();
                // Other clients may hold the locks by now, so no process of the group may run again.
                if let Some(reason) = guard.is_lost() {
                    return Err(end_lost(job, reason, Duration::ZERO).await);
                }
                job.resume();
            }
            Err(error) => {
                job.end(Duration::ZERO).await;
                return Err(Failure::new(
                    Code::Failed,
                    anyhow!(error).context("cannot wait for the command"),
                ));
            }
        }
    }
}

/// Time for the processes that the command leaves behind to end after `SIGTERM`; the locks are held
/// meanwhile.
pub(super) const LEFT_BEHIND: Duration = Duration::from_secs(2);

/// Returns the command's time between `SIGTERM` and `SIGKILL`.
pub(super) fn grace(reason: &LostReason, ttl: Duration) -> Duration {
    match reason {
        LostReason::Expired => lease_margin(ttl) / 2,
        // Other clients may hold the locks now.
        _ => Duration::ZERO,
    }
}

async fn end_lost(mut job: Job, reason: LostReason, grace: Duration) -> Failure {
    tell(format_args!("geolock: the locks are lost ({reason}): ending the command"));
    job.end(grace).await;
    job.tidy_terminal();
    Failure::silent(Code::LockLost as u8)
}

pub(super) fn ended_by(signal: rustix::process::Signal) -> Failure {
    Failure::silent(128 + signal.as_raw() as u8)
}

/// Waits until the server has released the locks, so that the next client finds them free. If that fails, or
/// a signal ends the wait, the locks end with the lease. But if they had been lost before, the command ran
/// without them.
async fn released(guard: impl Held, job: &mut Job) -> Result<Release, Failure> {
    tokio::select! {
        released = guard.release() => match released {
            Err(error @ ClientError::LeaseLost(_)) => Err(Failure::new(Code::LockLost, error)),
            _ => Ok(Release::Done),
        },
        () = job.wish_to_end() => {
            tell("geolock: the server did not confirm that the locks are released; they go with the lease");
            Ok(Release::GivenUp)
        }
    }
}

pub(super) fn not_started(error: io::Error, command: &OsString) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::NotFound => Code::NotFound,
        _ => Code::NotRunnable,
    };
    Failure::new(code, anyhow!(error).context(format!("cannot run {}", command.display())))
}

impl LockArgs {
    fn names(&self, home: Home) -> Result<Vec<LockName>, Failure> {
        self.names.iter().map(|name| home.lock(name)).collect()
    }

    fn mode(&self) -> Mode {
        if self.shared { Mode::Shared } else { Mode::Exclusive }
    }

    /// Returns for how long a refusal that passes by itself is waited for.
    fn patience(&self) -> Duration {
        match self.wait {
            _ if self.try_once => Duration::ZERO,
            wait => wait.map_or(UNDERSTOOD_WITHIN, |wait| wait.min(UNDERSTOOD_WITHIN)),
        }
    }

    fn label(&self) -> String {
        self.label.clone().unwrap_or_else(|| default_label(&self.command[0]))
    }

    /// `names`: at least one, which clap guarantees.
    fn request(&self, names: &[LockName]) -> AcquireRequest {
        let mode = self.mode();
        let mut request = match mode {
            Mode::Shared => AcquireRequest::shared(names[0].clone()),
            Mode::Exclusive => AcquireRequest::exclusive(names[0].clone()),
        };
        for other in &names[1..] {
            request = request.and(other.clone(), mode);
        }
        request.wait(self.wait()).label(self.label())
    }

    fn wait(&self) -> Wait {
        match self.wait {
            _ if self.try_once => Wait::Try,
            Some(time) => Wait::AtMost(time),
            None => Wait::Forever,
        }
    }

    /// Returns the locks of a semaphore's permits, and the request for some of them.
    async fn permits(
        &self,
        client: &Client,
        (names, home): (&[LockName], Home),
        permits: u32,
    ) -> Result<(Vec<LockName>, AcquireRequest), Failure> {
        let name = match names {
            [name] => std::str::from_utf8(name.as_bytes()).or_fail(Code::Usage)?,
            _ => return Err(Failure::new(Code::Usage, anyhow!("--permits takes the name of one semaphore"))),
        };
        let semaphore = match home.0 {
            Some(home) => Semaphore::homed(client, name, permits, home),
            None => Semaphore::new(client, name, permits),
        };
        let prepare = async {
            let semaphore = semaphore?.with_wait(self.wait()).with_label(self.label());
            let request = semaphore.request(self.take.unwrap_or(1))?;
            semaphore.check().await?;
            Ok((semaphore.locks().to_vec(), request))
        };
        prepare.await.map_err(permits_failure)
    }
}

fn permits_failure(error: SemaphoreError) -> Failure {
    match error {
        SemaphoreError::Acquire(error) => Failure::new(code(&error), error),
        SemaphoreError::Client(error) => connect::failure(error),
        SemaphoreError::Commit(error) => kv::failure(error),
        SemaphoreError::NoNumber(_) => Failure::new(Code::Failed, error),
        error => Failure::new(Code::Usage, error),
    }
}

/// Returns the exit code for locks that were not acquired.
pub fn code(error: &AcquireError) -> Code {
    match error {
        AcquireError::TimedOut { .. }
        | AcquireError::NotFree
        | AcquireError::NotEnoughFree { .. }
        | AcquireError::Exhausted { .. } => Code::NotAcquired,
        AcquireError::Draining | AcquireError::Unreachable | AcquireError::LeaseLost(_) => Code::Unreachable,
        AcquireError::Refused(reason, _) => refused(*reason),
        _ => Code::Failed,
    }
}

/// Returns the reason, lock by lock if the server sent that.
pub(super) async fn not_acquired(error: AcquireError, client: &Client) -> Failure {
    let code = code(&error);
    match &error {
        AcquireError::TimedOut { locks, .. } if !locks.is_empty() => {
            let names = DcNames::of_answer(client.status().await);
            let explained: String =
                locks.iter().map(|lock| format!("\n{}", describe::text(lock, &names))).collect();
            Failure::new(code, anyhow!("{error}\n{}", explained.trim_end()))
        }
        _ => Failure::new(code, error),
    }
}

/// Returns `user@host: command`, cut to the longest label. The command's arguments are left out, because they
/// may be private.
pub(super) fn default_label(command: &OsString) -> String {
    let user = std::env::var("USER").unwrap_or_else(|_| rustix::process::getuid().as_raw().to_string());
    let host = rustix::system::uname();
    let name = Path::new(command).file_name().unwrap_or(command).display();
    let label = format!("{user}@{}: {name}", host.nodename().to_string_lossy());
    let label: String = label.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    label[..label.floor_char_boundary(MAX_LABEL)].to_owned()
}

/// Parses a time of the command line, such as `20s`.
pub fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| format!("a number and one of {}, such as 20s", units_of_durations()))
}
