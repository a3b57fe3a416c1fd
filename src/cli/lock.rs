//! `geolock lock`: runs a command while holding locks.
//!
//! When the locks are lost, the client library says so [`lease_margin`] (a tenth of the time to live) before the
//! lease can end at the server. The command's group gets `SIGTERM` at once and `SIGKILL` after half of that margin;
//! the other half is for the machine to do it. If the lease has ended already (the server said so), there is no time
//! to lose: `SIGKILL` follows at once.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context as _, anyhow};

use super::connect::ConnectArgs;
use super::dc_names::DcNames;
use super::describe;
use super::failure::{Code, Failure, OrFail as _};
use super::job::{Ended, Event, Job, Signals};
use crate::client::{
    AcquireError, AcquireRequest, Client, ClientError, LockGuard, LostReason, Mode, Reason, Wait,
    lease_margin,
};
use crate::config::{parse_duration, units_of_durations};
use crate::names::{LockName, MAX_LABEL};

/// Run a command while holding locks.
///
/// Waits until all of the named locks are held, runs the command, and releases them when it has ended. The command
/// finds the fencing token in GEOLOCK_TOKEN: a number that grows from holder to holder. If the locks are lost, the
/// command is ended before anybody else can have them; when geolock itself is killed (SIGKILL) or stopped that
/// cannot be done, so let what the locks protect refuse smaller tokens than it has seen.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Exit codes: that of the command (128 + N if signal N killed it), or 75: not acquired in time, 74: lost while the \
command ran, 69: no server reachable, 64: wrong usage, 126 and 127: the command cannot be run or found.

Ctrl-Z stops the command and geolock with it; the locks are then lost when the time to live is over.
What is left of the command's process group when it ends is ended, too; use setsid to outlive it.

Examples:
  geolock lock nightly-report -- ./report.sh
  geolock lock --shared --wait 20s config -- cat config.yml
  geolock lock account/7 account/9 -- sh -c './move --token $GEOLOCK_TOKEN 7 9'")]
pub struct LockArgs {
    /// Together with others that want them shared, too
    #[arg(long)]
    shared: bool,
    /// How long to wait for the locks, such as 20s or 5min [default: for ever]
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "try_once")]
    wait: Option<Duration>,
    /// Do not wait, and do not ask other datacenters
    #[arg(long = "try")]
    try_once: bool,
    /// Who this is, for those who ask who has a lock [default: user@host: command]
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
    /// After how long without contact to the server the locks are lost
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s")]
    ttl: Duration,
    #[command(flatten)]
    connect: ConnectArgs,
    /// The locks: any bytes, up to 1024 each
    #[arg(required = true, value_name = "NAME", value_parser = clap::value_parser!(OsString))]
    names: Vec<OsString>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD", value_parser = clap::value_parser!(OsString))]
    command: Vec<OsString>,
}

/// Signals to geolock itself end it before the locks are held; then they are the command's.
pub async fn run(args: LockArgs) -> Result<ExitCode, Failure> {
    let request = args.request().or_fail(Code::Usage)?;
    let mut signals = Signals::listen()?;
    let waited = tokio::select! {
        acquired = args.acquire(request) => Ok(acquired?),
        signal = signals.wish_to_end() => Err(signal),
    };
    let (client, guard) = match waited {
        Ok(held) => held,
        // Dropping the acquire gives it up.
        Err(signal) => return Err(Failure::silent(128 + signal.as_raw() as u8)),
    };
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]).env("GEOLOCK_TOKEN", guard.token().to_string());
    let outcome = match Job::start(&mut command, signals) {
        Ok(job) => hold(job, guard, args.ttl).await,
        Err(error) => {
            drop(guard);
            Err(not_started(error, &args.command[0]))
        }
    };
    // The lease ends by itself if this fails; the command has ended, and that is what counts.
    let _ = client.close().await;
    outcome.map(|ended| ExitCode::from(ended.exit_code()))
}

/// Watches over the command until it has ended, and all of its group.
async fn hold(mut job: Job, guard: LockGuard, ttl: Duration) -> Result<Ended, Failure> {
    let lost = guard.lost();
    tokio::pin!(lost);
    loop {
        let event = tokio::select! {
            biased;
            reason = &mut lost => return Err(end_lost(job, reason, ttl).await),
            event = job.next() => event,
        };
        match event {
            Ok(Event::Ended(ended)) => {
                end_rest(job, ended).await;
                return released(guard).await.map(|()| ended);
            }
            Ok(Event::Stopped) => {
                job.stop_along();
                if let Some(reason) = guard.is_lost() {
                    return Err(end_lost(job, reason, ttl).await);
                }
                job.go_on();
            }
            Err(error) => {
                job.end_and_tidy(Duration::ZERO).await;
                return Err(Failure::new(
                    Code::Failed,
                    anyhow!(error).context("cannot wait for the command"),
                ));
            }
        }
    }
}

/// What the command leaves behind may take this long to end after `SIGTERM`; the locks are held meanwhile.
const LEFT_BEHIND: Duration = Duration::from_secs(2);

async fn end_rest(job: Job, ended: Ended) {
    match ended {
        Ended::Exited(_) => job.end(LEFT_BEHIND).await,
        Ended::Killed(_) => job.end_and_tidy(LEFT_BEHIND).await,
    }
}

async fn end_lost(job: Job, reason: LostReason, ttl: Duration) -> Failure {
    let grace = match reason {
        LostReason::Expired => lease_margin(ttl) / 2,
        // Others may have them now.
        _ => Duration::ZERO,
    };
    eprintln!("geolock: the locks are lost ({reason}): ending the command");
    job.end_and_tidy(grace).await;
    Failure::silent(Code::LockLost as u8)
}

/// Waits until the server has released, so that whoever comes next finds them free. If that fails the locks go with
/// the lease; but if they had been lost before, the command ran on without them.
async fn released(guard: LockGuard) -> Result<(), Failure> {
    match guard.release().await {
        Err(error @ ClientError::LeaseLost(_)) => Err(Failure::new(Code::LockLost, error)),
        _ => Ok(()),
    }
}

fn not_started(error: io::Error, command: &OsString) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::NotFound => Code::NotFound,
        _ => Code::NotRunnable,
    };
    Failure::new(code, anyhow!(error).context(format!("cannot run {}", command.display())))
}

impl LockArgs {
    fn request(&self) -> anyhow::Result<AcquireRequest> {
        let mode = if self.shared { Mode::Shared } else { Mode::Exclusive };
        let name = |name: &OsString| {
            LockName::new(name.as_bytes())
                .with_context(|| format!("{:?} cannot name a lock", name.display().to_string()))
        };
        let (first, others) = self.names.split_first().context("name at least one lock")?;
        let mut request = match mode {
            Mode::Shared => AcquireRequest::shared(name(first)?),
            Mode::Exclusive => AcquireRequest::exclusive(name(first)?),
        };
        for other in others {
            request = request.and(name(other)?, mode);
        }
        let wait = match self.wait {
            _ if self.try_once => Wait::Try,
            Some(time) => Wait::AtMost(time),
            None => Wait::Forever,
        };
        let label = self.label.clone().unwrap_or_else(|| default_label(&self.command[0]));
        Ok(request.wait(wait).label(label))
    }

    async fn acquire(&self, request: AcquireRequest) -> Result<(Client, LockGuard), Failure> {
        let client = self.connect.connect(|config| config.ttl = self.ttl).await?;
        match client.acquire(request).await {
            Ok(guard) => Ok((client, guard)),
            Err(error) => {
                let failure = not_acquired(error, &client).await;
                // As above: the lease ends by itself.
                let _ = client.close().await;
                Err(failure)
            }
        }
    }
}

/// Says why, lock by lock if the server told.
async fn not_acquired(error: AcquireError, client: &Client) -> Failure {
    let code = match &error {
        AcquireError::TimedOut { .. } | AcquireError::NotFree | AcquireError::Exhausted { .. } => {
            Code::NotAcquired
        }
        AcquireError::Draining | AcquireError::Unreachable | AcquireError::LeaseLost(_) => Code::Unreachable,
        AcquireError::Refused(reason, _) if is_usage(*reason) => Code::Usage,
        _ => Code::Failed,
    };
    match &error {
        AcquireError::TimedOut { locks } if !locks.is_empty() => {
            let names = DcNames::ask(client).await;
            let explained: String =
                locks.iter().map(|lock| format!("\n{}", describe::text(lock, &names))).collect();
            Failure::new(code, anyhow!("{error}\n{}", explained.trim_end()))
        }
        _ => Failure::new(code, error),
    }
}

/// What the caller of geolock did wrong.
fn is_usage(reason: Reason) -> bool {
    use Reason::{LabelTooLong, NamesTooLong, TooManyLocks, TtlOutOfRange};
    matches!(reason, LabelTooLong | NamesTooLong | TooManyLocks | TtlOutOfRange)
}

/// `user@host: command`, in at most as many bytes as a label can have. Without the command's arguments, which may
/// be nobody else's business.
fn default_label(command: &OsString) -> String {
    let user = std::env::var("USER").unwrap_or_else(|_| rustix::process::getuid().as_raw().to_string());
    let host = rustix::system::uname();
    let name = Path::new(command).file_name().unwrap_or(command).display();
    let label = format!("{user}@{}: {name}", host.nodename().to_string_lossy());
    let label: String = label.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    label[..label.floor_char_boundary(MAX_LABEL)].to_owned()
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text)
        .ok_or_else(|| format!("a whole number and one of {}, such as 20s", units_of_durations()))
}
