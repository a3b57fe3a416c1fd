//! `geolock every`: runs a command at most once in a period, on one of all machines that start it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use serde_json::json;

use super::connect::failure;
use super::dc_names::DcNames;
use super::failure::{Code, Failure};
use super::job::Signals;
use super::kv;
use super::lock::{code, duration, ended_by};
use super::once::{Command, RunnerArgs, Shared};
use super::print::{number, print};
use geolock_api::names::DcId;
use geolock_client::Client;
use geolock_recipes::{Periodic, PeriodicError, PeriodicOptions, PeriodicOutcome};

/// Run a command at most once in a period, on one of all machines that start it.
///
/// Start it from cron or a timer on every machine, as often as you like. The command runs if no run of it
/// began within the period, less the slack, and none runs at the moment. The datacenters measure the period;
/// the clocks of the machines do not matter.
///
/// The command finds the number of its run in GEOLOCK_TOKEN, as with `geolock once`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Exit codes: 0 if there was nothing to do (with --tell: 10), or that of the command; 74: the lock was lost while the \
command ran, 75: the command did not run, and it is not known if it ran in this period, because a datacenter that has \
a part of the lock is out of reach; 69: no server reachable, 72: the server's disk is full, 77: the server does not \
allow it, 64: wrong usage, 126 and 127: the command cannot be run or found.

Examples:
  geolock every 1h report -- ./report.sh
  geolock every --again-after-failure 24h backup -- ./backup.sh")]
pub struct EveryArgs {
    /// A run that fails does not count: the next start may run the command at once
    #[arg(long)]
    again_after_failure: bool,
    /// Longest wait for the lock, which is held while the command runs elsewhere
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5s")]
    patience: Duration,
    /// A run may begin by so much before the period since the last one is over, so that a timer with the same
    /// period runs the command each time: at most half of the period [default: a tenth of it, at most 1min]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    slack: Option<Duration>,
    /// Exit with 10 if there was nothing to do
    #[arg(long)]
    tell: bool,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    runner: RunnerArgs,
    /// The period, such as 1h: at least 1s
    #[arg(value_name = "PERIOD", value_parser = duration)]
    every: Duration,
    /// The name of the job: any bytes, up to 1010
    #[arg(value_name = "NAME", value_parser = clap::value_parser!(OsString))]
    name: OsString,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD", value_parser = clap::value_parser!(OsString))]
    command: Vec<OsString>,
}

/// With `--tell`: there was nothing to do.
const SKIPPED: u8 = 10;

/// Signals to geolock itself end it while no command runs; after that they are passed to the command.
pub async fn run(args: EveryArgs) -> Result<ExitCode, Failure> {
    let home = args.runner.home().await?;
    let mut signals = Signals::listen()?;
    let client = tokio::select! {
        client = args.runner.connect() => client?,
        signal = signals.wish_to_end() => return Err(ended_by(signal)),
    };
    let outcome = args.attempt(&client, home, &mut signals).await;
    tokio::select! {
        _ = client.close() => {}
        _ = signals.wish_to_end() => {}
    }
    outcome
}

impl EveryArgs {
    async fn attempt(
        &self,
        client: &Client,
        home: Option<DcId>,
        signals: &mut Signals,
    ) -> Result<ExitCode, Failure> {
        let mut options = PeriodicOptions::default();
        options.again_after_failure = self.again_after_failure;
        options.patience = self.patience;
        options.slack = self.slack;
        options.home = home;
        options.who = self.runner.who(&self.command);
        let job = Periodic::new(client, self.name.as_bytes(), self.every, options).map_err(explained)?;
        let shared = Arc::new(Shared::new(client.ttl()));
        let command = Command { args: &self.command, needed: None, max_runtime: None };
        let outcome = tokio::select! {
            biased;
            outcome = job.run(|run| command.run(run, &shared)) => outcome,
            // While the command runs, the signals are its own, and it ends by them.
            signal = shared.signal_at_rest(signals) => return Err(ended_by(signal)),
        };
        if let Some(job) = shared.take_left() {
            job.end().await;
        }
        let outcome = outcome.map_err(explained)?;
        let names = match &outcome {
            PeriodicOutcome::Unknown { unreachable } if !unreachable.is_empty() => {
                DcNames::of_answer(client.status().await)
            }
            _ => DcNames::default(),
        };
        self.report(outcome, &names, &shared)
    }

    fn report(
        &self,
        outcome: PeriodicOutcome,
        names: &DcNames,
        shared: &Shared,
    ) -> Result<ExitCode, Failure> {
        if self.json {
            print(match &outcome {
                PeriodicOutcome::Ran { run } => json!({ "outcome": "ran", "run": number(*run) }),
                PeriodicOutcome::Failed { run, error } => {
                    json!({ "outcome": "failed", "run": number(*run), "error": error })
                }
                PeriodicOutcome::Lost { run } => json!({ "outcome": "lost", "run": number(*run) }),
                PeriodicOutcome::Skipped { by } => json!({ "outcome": "skipped", "by": by }),
                PeriodicOutcome::Unknown { unreachable } => {
                    json!({ "outcome": "unknown", "unreachable_dcs": ids(unreachable) })
                }
                _ => json!({ "outcome": "other" }),
            })?;
        }
        match outcome {
            PeriodicOutcome::Skipped { .. } if self.tell => Ok(ExitCode::from(SKIPPED)),
            PeriodicOutcome::Failed { error, .. } => Err(match (shared.not_started(), shared.code()) {
                (Some(code), _) => Failure::new(code, anyhow!(error)),
                // No caller could wait for its end.
                (None, 0) => anyhow!(error).into(),
                (None, code) => Failure::silent(code),
            }),
            PeriodicOutcome::Lost { run } => {
                let text = anyhow!("the lock was lost while run {run} ran here");
                Err(Failure::new(Code::LockLost, text))
            }
            PeriodicOutcome::Unknown { unreachable } => {
                let why = match unreachable.is_empty() {
                    true => "its lock could not be had".to_owned(),
                    false => format!(
                        "a part of its lock is in {}, out of reach",
                        names.list_unheard(&ids(&unreachable))
                    ),
                };
                let text = "the command did not run here, and it is not known if it ran in this period";
                Err(Failure::new(Code::NotAcquired, anyhow!("{text}: {why}")))
            }
            _ => Ok(ExitCode::SUCCESS),
        }
    }
}

fn ids(dcs: &[DcId]) -> Vec<u32> {
    dcs.iter().map(|dc| dc.get().into()).collect()
}

fn explained(error: PeriodicError) -> Failure {
    match error {
        PeriodicError::Config(why) => Failure::new(Code::Usage, anyhow!(why)),
        PeriodicError::Client(error) => failure(error),
        PeriodicError::Acquire(error) => Failure::new(code(&error), error),
        PeriodicError::Commit(error) => kv::failure(error),
        error => Failure::new(Code::Failed, error),
    }
}
