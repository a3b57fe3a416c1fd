//! The command of `geolock once`, and the check if it is needed: both run as jobs.

use std::ffi::OsString;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::anyhow;
use rustix::process::Signal;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::cli::failure::{Code, Failure};
use crate::cli::job::{Ended, Event, Job, Signals};
use crate::cli::lock::{LEFT_BEHIND, ended_by, grace, not_started};
use crate::cli::print::tell;
use crate::cli::waiting::{Telling, Waiting};
use geolock_client::{Client, LostReason};
use geolock_recipes::Run;

/// The command line, and its options.
pub struct Command<'a> {
    pub args: &'a [OsString],
    pub needed: Option<&'a OsString>,
    pub max_runtime: Option<Duration>,
}

/// The state that the loop, its commands and the signals share.
pub struct Shared {
    ttl: Duration,
    /// A job runs, and gets the signals.
    runs: watch::Sender<bool>,
    /// A signal came while one ran.
    ends: AtomicBool,
    /// The exit code of the last command.
    code: AtomicU8,
    /// The last command could not be started; the code says why.
    not_started: AtomicBool,
    /// The others know that the command failed.
    failed: Notify,
    /// The failure of a command that cannot be started, when the others know of it.
    unable: Mutex<Option<Failure>>,
    unable_told: Notify,
    /// The job of a section that was dropped.
    left: Mutex<Option<Left>>,
}

/// A job whose lock is lost.
pub struct Left {
    job: Job,
    reason: Option<LostReason>,
    ttl: Duration,
}

impl Left {
    /// Ends it, before another machine can have the lock if that is still possible.
    pub async fn end(mut self) {
        let reason = self.reason.unwrap_or(LostReason::LeaseEnded);
        tell(format_args!("geolock: the lock is lost ({reason}): ending the command"));
        self.job.end(grace(&reason, self.ttl)).await;
        self.job.tidy_terminal();
    }
}

impl Shared {
    pub fn new(ttl: Duration) -> Shared {
        Shared {
            ttl,
            runs: watch::Sender::new(false),
            ends: AtomicBool::new(false),
            code: AtomicU8::new(0),
            not_started: AtomicBool::new(false),
            failed: Notify::new(),
            unable: Mutex::new(None),
            unable_told: Notify::new(),
            left: Mutex::new(None),
        }
    }

    /// Returns the exit code of the last command; 0 if none has ended.
    pub fn code(&self) -> u8 {
        self.code.load(Ordering::Relaxed)
    }

    /// Returns the exit code for a last command that could not be started.
    pub fn not_started(&self) -> Option<Code> {
        let code = if self.code() == Code::NotFound as u8 { Code::NotFound } else { Code::NotRunnable };
        self.not_started.load(Ordering::Relaxed).then_some(code)
    }

    /// Waits for a signal that asks geolock to end while nothing runs.
    pub async fn signal_at_rest(&self, signals: &mut Signals) -> Signal {
        loop {
            let signal = signals.wish_to_end().await;
            if !*self.runs.borrow() {
                return signal;
            }
        }
    }

    /// Notes that the others know of a failure here. Returns true if the command is tried again here.
    pub fn note_failed(&self, error: &str) -> bool {
        let unable = self.not_started();
        if let Some(code) = unable {
            let failure = Failure::new(code, anyhow!(error.to_owned()));
            *self.unable.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
            self.unable_told.notify_one();
        }
        self.failed.notify_one();
        unable.is_none() && !self.ends.load(Ordering::Relaxed)
    }

    /// Returns the failure of a command that cannot be started.
    pub fn take_unable(&self) -> Option<Failure> {
        self.unable.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub fn take_left(&self) -> Option<Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Waits for a signal that ends this process: at once while nothing runs, otherwise when the others know
    /// the result of the command. A command that cannot be started ends it, too.
    pub async fn asked_to_end(&self, signals: &mut Signals) -> Failure {
        loop {
            let signal = tokio::select! {
                signal = signals.wish_to_end() => signal,
                () = self.unable_told.notified() => match self.take_unable() {
                    Some(failure) => return failure,
                    None => continue,
                },
            };
            if !*self.runs.borrow() {
                return ended_by(signal);
            }
            self.ends.store(true, Ordering::Relaxed);
            self.failed.notified().await;
            if self.ends.load(Ordering::Relaxed) {
                return Failure::silent(self.code.load(Ordering::Relaxed));
            }
        }
    }

    /// Prints the reason of the wait, while nothing runs here. Never returns.
    pub async fn tell_waits(&self, waiting: &Waiting<'_>, client: &Client, how: Telling) {
        let mut runs = self.runs.subscribe();
        loop {
            // The sender lives as long as this.
            let _ = runs.wait_for(|runs| !runs).await;
            let mut again = self.runs.subscribe();
            tokio::select! {
                () = waiting.tell(client, how) => {}
                _ = again.wait_for(|runs| *runs) => {}
            }
        }
    }
}

/// A job that runs. If it is dropped before its end, it is left for [`Shared::take_left`].
struct Running<'a> {
    job: Option<Job>,
    run: Option<&'a Run>,
    shared: &'a Shared,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.shared.runs.send_replace(false);
        if let Some(job) = self.job.take() {
            let reason = self.run.and_then(Run::lost);
            let left = Left { job, reason, ttl: self.shared.ttl };
            *self.shared.left.lock().unwrap_or_else(PoisonError::into_inner) = Some(left);
        }
    }
}

impl<'a> Running<'a> {
    fn start(
        command: &mut process::Command,
        name: &OsString,
        run: Option<&'a Run>,
        shared: &'a Shared,
    ) -> Result<Running<'a>, Failure> {
        // The signals between this and the end belong to the job.
        shared.runs.send_replace(true);
        let started = Signals::listen().and_then(|signals| Job::start(command, signals));
        match started {
            Ok(job) => {
                shared.not_started.store(false, Ordering::Relaxed);
                Ok(Running { job: Some(job), run, shared })
            }
            Err(error) => {
                shared.runs.send_replace(false);
                let failure = not_started(error, name);
                shared.code.store(failure.code(), Ordering::Relaxed);
                shared.not_started.store(true, Ordering::Relaxed);
                Err(failure)
            }
        }
    }

    /// Waits until the job has ended with all of its group. Cancel-safe until its command has ended.
    async fn ended(&mut self) -> Result<Ended, Failure> {
        let Some(job) = &mut self.job else { return Err(Failure::silent(Code::Failed as u8)) };
        let ended = loop {
            match job.next().await {
                Ok(Event::Ended(ended)) => break ended,
                Ok(Event::Stopped) => {
                    job.stop_along();
                    // Another machine may run it by now, so no process of the group may run again.
                    if self.run.is_some_and(|run| run.lost().is_some()) {
                        std::future::pending::<()>().await;
                    }
                    job.resume();
                }
                Err(error) => return Err(anyhow!(error).context("cannot wait for the command").into()),
            }
        };
        job.end(LEFT_BEHIND).await;
        if matches!(ended, Ended::Killed(_)) {
            job.tidy_terminal();
        }
        self.job = None;
        self.shared.code.store(ended.exit_code(), Ordering::Relaxed);
        Ok(ended)
    }

    async fn stop(mut self) {
        if let Some(job) = &mut self.job {
            job.end(LEFT_BEHIND).await;
            job.tidy_terminal();
        }
        self.job = None;
    }
}

impl Command<'_> {
    /// Asks the check if the command is needed.
    pub async fn is_needed(&self, shared: &Arc<Shared>) -> Result<bool, Failure> {
        let Some(check) = self.needed else { return Ok(true) };
        let mut command = process::Command::new("sh");
        command.arg("-c").arg(check);
        match Running::start(&mut command, check, None, shared)?.ended().await? {
            Ended::Exited(0) => Ok(true),
            Ended::Exited(1) => Ok(false),
            ended => {
                let text = anyhow!("`--needed {}` {}", check.display(), said(ended));
                Err(Failure::new(Code::Failed, text))
            }
        }
    }

    /// Runs the command under the lock.
    pub async fn run(&self, run: Run, shared: &Arc<Shared>) -> Result<(), Failure> {
        let mut command = process::Command::new(&self.args[0]);
        command.args(&self.args[1..]).env("GEOLOCK_TOKEN", run.token().to_string());
        if let Some(until) = self.max_runtime.and_then(|time| SystemTime::now().checked_add(time)) {
            let since = until.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            command.env("GEOLOCK_RUN_UNTIL", since.as_secs().to_string());
        }
        let mut running = Running::start(&mut command, &self.args[0], Some(&run), shared)?;
        let ended = match self.max_runtime {
            None => running.ended().await?,
            Some(most) => match timeout(most, running.ended()).await {
                Ok(ended) => ended?,
                Err(_) => {
                    running.stop().await;
                    return Err(anyhow!("it took longer than {most:?}").into());
                }
            },
        };
        match ended {
            Ended::Exited(0) => Ok(()),
            ended => Err(anyhow!("it {}", said(ended)).into()),
        }
    }
}

fn said(ended: Ended) -> String {
    match ended {
        Ended::Exited(code) => format!("exited with {code}"),
        Ended::Killed(signal) => format!("was killed by signal {signal}"),
    }
}
