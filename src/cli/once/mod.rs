//! `geolock once`: runs a command once, on one of all machines that start it.

mod runner;
mod section;
mod show;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;

use super::connect::{failure, refused};
use super::failure::{Code, Failure, OrFail as _};
use super::job::Signals;
use super::kv;
use super::lock::{duration, ended_by};
use super::print::{print, tell};
use super::waiting::{Telling, Waiting};
use geolock_api::names::DcId;
use geolock_client::{Client, Mode};
use geolock_recipes::{CriticalSection, LastSeen, OnceError, OnceOptions, Outcome, Progress, Takeover};
pub use runner::RunnerArgs;
pub use section::{Command, Shared};

/// The heading of options for a machine that waits for another one.
const TURNS: &str = "Waiting and taking over";

/// Run a command once, on one of all machines that start it.
///
/// Many machines may start this at the same time, with the same name. One runs the command. The others wait
/// until it is done, and then end, too. If the first one dies or fails, another one takes over.
///
/// Without --needed, the command is needed unless a run of it is done that is younger than --staleness. With
/// it, that check decides: it runs first, and again after every run elsewhere. The report of another machine
/// alone is never enough.
///
/// The command finds the number of its run in GEOLOCK_TOKEN: it increases from run to run. If the lock is
/// lost, the command is ended before another machine can run it, also if geolock itself is killed. That is
/// not possible while geolock is stopped, or if its guard is killed, too, so let the resources that the
/// command changes refuse numbers below the highest they have seen.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Exit codes: 0: it is done, by any machine (with --tell: 10 if another machine did it, 11 if nothing was to be done), \
75: given up, the command is still needed, 74: the lock was lost while the command ran, 69: no server reachable, \
72: the server's disk is full, 77: the server does not allow it, 64: wrong usage, 126 and 127: the command cannot be \
run or found here. A command that fails is tried again, here or elsewhere, after a pause that grows.

--needed CMD is run by the shell and exits with 0: needed, 1: not needed, more: an error, which ends this, too.

Examples:
  geolock once migrate -- ./migrate && ./serve
  geolock once --needed './migrate --is-behind' migrate -- ./migrate
  geolock once --tell --max-runtime 10min report -- ./report.sh
  geolock once --status migrate
  geolock once --forget migrate")]
pub struct OnceArgs {
    /// Check that exits with 0 if the command is needed, with 1 if not [default: needed if no run of it is
    /// done]
    #[arg(long, value_name = "CMD")]
    needed: Option<OsString>,
    /// Pause between rounds when the command is still needed after a run elsewhere, or that run is not over
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s", help_heading = TURNS)]
    wait: Duration,
    /// Maximum number of rounds
    #[arg(long, value_name = "N", default_value_t = 50, help_heading = TURNS)]
    max_retries: u32,
    /// Give up when the command has not begun by then [default: never]
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = TURNS)]
    give_up_after: Option<Duration>,
    /// Take a run over when the lease of its machine ends, or when the machine was silent for --watermark
    #[arg(long, value_name = "WHEN", value_enum, default_value_t, help_heading = TURNS)]
    takeover: When,
    /// Time without a sign of life after which the running machine counts as dead
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "300s", help_heading = TURNS)]
    watermark: Duration,
    /// Age after which a run is ignored
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "600s")]
    staleness: Duration,
    /// Longest run; a longer one is ended, and counts as failed [default: none]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    max_runtime: Option<Duration>,
    /// Exit with 10 if another machine did it, with 11 if nothing was to be done
    #[arg(long)]
    tell: bool,
    /// Print the outcome, or the status, as JSON
    #[arg(long)]
    json: bool,
    /// Print the status of the command, and run nothing
    #[arg(long, conflicts_with_all = ["needed", "command"])]
    status: bool,
    /// Remove the record of the command, and run nothing: the next start runs it, whatever was done before
    #[arg(long, conflicts_with_all = ["needed", "command", "status"])]
    forget: bool,
    /// While waiting, print the reason to standard error even if that is no terminal
    #[arg(long)]
    verbose: bool,
    #[command(flatten)]
    runner: RunnerArgs,
    /// The name of the job: any bytes, up to 1011
    #[arg(value_name = "NAME", value_parser = clap::value_parser!(OsString))]
    name: OsString,
    /// The command and its arguments
    #[arg(last = true, required_unless_present_any = ["status", "forget"], value_name = "CMD", value_parser = clap::value_parser!(OsString))]
    command: Vec<OsString>,
}

/// The moment at which a run is taken over.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default)]
enum When {
    #[default]
    Lease,
    Watermark,
}

/// With `--tell`: another machine did it.
const BY_OTHER: u8 = 10;
/// With `--tell`: nothing was to be done.
const NOT_NEEDED: u8 = 11;

/// Signals to geolock itself end it while no command runs; after that they are passed to the command.
pub async fn run(args: OnceArgs) -> Result<ExitCode, Failure> {
    let home = args.runner.home().await?;
    let mut signals = Signals::listen()?;
    let client = tokio::select! {
        client = args.runner.connect() => client?,
        signal = signals.wish_to_end() => return Err(ended_by(signal)),
    };
    let section =
        CriticalSection::new(&client, args.name.as_bytes(), args.options(home)).or_fail(Code::Usage)?;
    if args.status {
        let status = section.status().await.map_err(failure)?;
        print(show::status(&args.name, &status, args.json))?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.forget {
        return tokio::select! {
            forgotten = section.forget() => forgotten.map(|()| ExitCode::SUCCESS).map_err(kv::failure),
            signal = signals.wish_to_end() => Err(ended_by(signal)),
        };
    }
    let outcome = args.run_section(&client, section, signals).await;
    if !matches!(&outcome, Err(failure) if failure.code() > 128) {
        // If this fails, the lease expires; only the outcome counts. A signal ends the wait.
        let mut signals = Signals::listen()?;
        tokio::select! {
            _ = client.close() => {}
            _ = signals.wish_to_end() => {}
        }
    }
    outcome
}

impl OnceArgs {
    fn options(&self, home: Option<DcId>) -> OnceOptions {
        let mut options = OnceOptions::default();
        options.wait = self.wait;
        options.max_retries = self.max_retries;
        options.give_up_after = self.give_up_after;
        options.takeover = match self.takeover {
            When::Lease => Takeover::Lease,
            When::Watermark => Takeover::Watermark,
        };
        options.watermark = self.watermark;
        options.staleness = self.staleness;
        // Its section ends the command, and then says so.
        options.max_runtime = None;
        options.home = home;
        options.who = self.runner.who(&self.command);
        options
    }

    async fn run_section(
        &self,
        client: &Client,
        section: CriticalSection,
        mut signals: Signals,
    ) -> Result<ExitCode, Failure> {
        let shared = Arc::new(Shared::new(client.ttl()));
        let section = section.on_progress({
            let (shared, verbose) = (Arc::clone(&shared), self.verbose);
            move |progress| {
                if let Progress::Failed { error, pause } = &progress {
                    if shared.note_failed(error) {
                        tell(format_args!(
                            "geolock: the command failed ({error}); the next attempt is {pause:.0?} away"
                        ));
                    }
                } else if verbose {
                    tell(format_args!("geolock: {progress:?}"));
                }
            }
        });
        let names = [section.lock().clone()];
        let waiting =
            Waiting { names: &names, mode: Mode::Exclusive, label: &self.runner.who(&self.command) };
        let command =
            Command { args: &self.command, needed: self.needed.as_ref(), max_runtime: self.max_runtime };
        let outcome = tokio::select! {
            biased;
            outcome = self.run_loop(&section, &command, &shared) => outcome,
            failure = shared.asked_to_end(&mut signals) => return Err(failure),
            () = shared.tell_waits(&waiting, client, Telling::of(self.verbose)) => unreachable!("it goes on for ever"),
        };
        if let Some(job) = shared.take_left() {
            job.end().await;
        }
        match shared.take_unable() {
            Some(failure) => Err(failure),
            None => self.report(outcome),
        }
    }

    async fn run_loop(
        &self,
        section: &CriticalSection,
        command: &Command<'_>,
        shared: &Arc<Shared>,
    ) -> Result<Outcome, OnceError<Failure>> {
        let run = |run| command.run(run, shared);
        match &self.needed {
            Some(_) => section.run(|| command.is_needed(shared), run).await,
            None => section.run_unless_done(run).await,
        }
    }

    fn report(&self, outcome: Result<Outcome, OnceError<Failure>>) -> Result<ExitCode, Failure> {
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(OnceError::Needed(failure)) => return Err(failure),
            Err(OnceError::Refused { reason, message }) => {
                return Err(Failure::new(refused(reason), anyhow!("the server refused: {message}")));
            }
            Err(error) => return Err(Failure::new(Code::Failed, anyhow!(error.to_string()))),
        };
        if self.json {
            print(show::outcome(&outcome))?;
        }
        match outcome {
            Outcome::DoneByOther { .. } if self.tell => Ok(ExitCode::from(BY_OTHER)),
            Outcome::NotNeeded if self.tell => Ok(ExitCode::from(NOT_NEEDED)),
            Outcome::GaveUp { last: LastSeen::LostWhileRunning { run }, .. } => {
                let text = anyhow!(
                    "the lock was lost while run {run} ran here: the command may run again elsewhere"
                );
                Err(Failure::new(Code::LockLost, text))
            }
            Outcome::GaveUp { attempts, last } => {
                let text = anyhow!("given up after {attempts} rounds: {last}");
                Err(Failure::new(Code::NotAcquired, text))
            }
            _ => Ok(ExitCode::SUCCESS),
        }
    }
}
