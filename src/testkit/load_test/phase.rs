//! One phase of a test: all clients work for a while.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{interval_at, sleep, sleep_until, timeout};

use super::checker::Checker;
use super::keys::Choice;
use super::options::{Options, Workload};
use super::pace::{Hold, Missed, Pace};
use super::recorder::{Recorder, Span};
use super::target::{Failure, Target};
use super::workload::{Ask, Locks, Mind, Turn};
use crate::runtime::tasks::joined;

/// Time for clients to release their locks at the end of a phase.
const END_WITHIN: Duration = Duration::from_secs(60);
/// Pause of a client after a failure, because it might fail again at once.
const AFTER_FAILURE: Duration = Duration::from_millis(100);
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The state that lasts from one phase to the next.
pub(super) struct Stage<T> {
    pub options: Arc<Options>,
    pub locks: Arc<Locks>,
    pub choice: Arc<Choice>,
    pub checker: Arc<Checker>,
    /// By datacenter, and there by client: the target of its requests. Clients with one connection have the
    /// same target.
    pub targets: Vec<Vec<Arc<T>>>,
    pub counts: Arc<Counts>,
}

/// Counts across all phases.
#[derive(Debug, Default)]
pub(super) struct Counts {
    holds: AtomicU64,
    pub committed: AtomicU64,
    /// Commits with an unknown outcome.
    pub unknown: AtomicU64,
}

/// Clients that did not end in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0} clients still held or released something {END_WITHIN:?} after time was up: the servers do not answer"
)]
pub struct Stuck(usize);

/// The progress of a phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    pub elapsed: Duration,
    pub of: Duration,
    /// Acquisitions per second since the last report.
    pub per_second: f64,
    pub p50: Duration,
    pub p99: Duration,
    pub violations: u64,
}

/// One client.
struct Worker<T> {
    target: Arc<T>,
    mind: Mind,
    pace: Pace,
    locks: Arc<Locks>,
    checker: Arc<Checker>,
    recorder: Arc<Recorder>,
    counts: Arc<Counts>,
    begins: Instant,
    lasts: Duration,
    /// The start of the wait in progress.
    waits_since: Option<Instant>,
    hold: Hold,
    is_hot: bool,
}

impl<T: Target> Stage<T> {
    /// Runs all clients for `lasts`, with these recorders, one for each datacenter. Returns the turns that
    /// each datacenter missed. The requests of different phases are independent.
    pub(super) async fn run(
        &self,
        phase: u32,
        lasts: Duration,
        recorders: &[Arc<Recorder>],
        mut tell: impl FnMut(&Progress),
    ) -> Result<Vec<Missed>, Stuck> {
        let (end, ended) = watch::channel(false);
        let (begins, mut tasks) = (Instant::now(), JoinSet::new());
        let paces: Vec<Pace> = self.targets.iter().map(|_| Pace::new(begins, self.options.rate)).collect();
        for (dc, clients) in self.targets.iter().enumerate() {
            for n in 0..clients.len() {
                let (pace, recorder) = (paces[dc].clone(), Arc::clone(&recorders[dc]));
                let mind = Mind::new(&self.options, &self.locks, &self.choice, (dc, paces.len()), (n, phase));
                let target = Arc::clone(&self.targets[dc][n]);
                let worker = self.worker(target, mind, pace, recorder, (begins, lasts));
                tasks.spawn(worker.run(ended.clone()));
            }
        }
        let mut looks = interval_at((begins + LOOK_EVERY).into(), LOOK_EVERY);
        let mut over = pin!(sleep_until((begins + lasts).into()));
        loop {
            tokio::select! {
                () = &mut over => break,
                _ = looks.tick() => tell(&self.progress(begins.elapsed(), lasts, recorders)),
            }
        }
        let now = Instant::now();
        let missed = paces.iter().map(|pace| pace.missed(now)).collect();
        end.send_replace(true);
        let all = async {
            while let Some(ended) = tasks.join_next().await {
                joined(ended);
            }
        };
        if timeout(END_WITHIN, all).await.is_err() {
            return Err(Stuck(tasks.len()));
        }
        Ok(missed)
    }

    fn worker(
        &self,
        target: Arc<T>,
        mind: Mind,
        pace: Pace,
        recorder: Arc<Recorder>,
        (begins, lasts): (Instant, Duration),
    ) -> Worker<T> {
        Worker {
            target,
            mind,
            pace,
            locks: Arc::clone(&self.locks),
            checker: Arc::clone(&self.checker),
            recorder,
            counts: Arc::clone(&self.counts),
            begins,
            lasts,
            waits_since: None,
            hold: Hold::new(self.options.hold, self.targets.iter().map(Vec::len).sum()),
            is_hot: self.options.workload == Workload::Hot,
        }
    }

    fn progress(&self, elapsed: Duration, of: Duration, recorders: &[Arc<Recorder>]) -> Progress {
        let mut recent = recorders[0].progress();
        for other in &recorders[1..] {
            recent.add(other.progress()).expect("all have the same bounds");
        }
        let at = |quantile| Duration::from_nanos(recent.value_at_quantile(quantile));
        Progress {
            elapsed,
            of,
            per_second: recent.len() as f64 / LOOK_EVERY.as_secs_f64(),
            p50: at(0.5),
            p99: at(0.99),
            violations: self.checker.count(),
        }
    }
}

impl<T: Target> Worker<T> {
    /// Works until the phase ends, and then releases its locks.
    async fn run(mut self, mut ended: watch::Receiver<bool>) {
        let mut ended = pin!(ended.wait_for(|ended| *ended));
        while self.begins.elapsed() < self.lasts {
            let turn = tokio::select! {
                biased;
                turn = self.turn() => Some(turn),
                _ = &mut ended => None,
            };
            let Some(turn) = turn else {
                // The longest waits are those that were not complete.
                if let Some(since) = self.waits_since {
                    self.recorder.unfinished(since.elapsed());
                }
                return;
            };
            if let Some((ask, held, granted)) = turn {
                self.hold(&ask, held, granted).await;
            }
        }
    }

    /// Waits for its turn, and for the locks that it then wants. If it is cancelled at any point, it holds
    /// nothing.
    async fn turn(&mut self) -> Option<(Ask, T::Held, Instant)> {
        let due = self.pace.next().await;
        let ask = match self.mind.next(self.begins.elapsed()) {
            Turn::Ask(ask) => ask,
            Turn::Rest(until) => {
                sleep(until.saturating_sub(self.begins.elapsed())).await;
                return None;
            }
        };
        self.waits_since = Some(due);
        let acquired = self.target.acquire(&ask, &self.locks).await;
        self.waits_since = None;
        match acquired {
            Ok(held) => {
                let granted = Instant::now();
                let latency = granted.saturating_duration_since(due);
                let at = granted.saturating_duration_since(self.begins);
                if at <= self.lasts {
                    self.recorder.granted(at, latency, ask.locks.len());
                } else {
                    self.recorder.unfinished(latency);
                }
                Some((ask, held, granted))
            }
            Err(failure) => {
                self.note(&failure);
                sleep(if let Failure::Refused(again) = failure { again } else { AFTER_FAILURE }).await;
                None
            }
        }
    }

    async fn hold(&mut self, ask: &Ask, mut held: T::Held, granted: Instant) {
        let hold = self.counts.holds.fetch_add(1, Ordering::Relaxed);
        self.checker.granted(hold, ask, self.target.token(&held));
        let worked = self.target.work(&mut held).await;
        self.hold.pass().await;
        self.checker.ending(hold, ask);
        let released = Instant::now();
        let outcome = match worked {
            Ok(()) => self.target.release(held).await,
            // Dropping it releases it.
            Err(failure) => Err(failure),
        };
        self.checker.ended(hold, matches!(outcome, Err(Failure::Lost(_))));
        if self.is_hot {
            let since = |at: Instant| at.saturating_duration_since(self.begins);
            self.recorder.held(Span { from: since(granted), until: since(released) });
        }
        match outcome {
            Ok(()) => {
                self.recorder.released(released.elapsed());
                self.counts.committed.fetch_add(u64::from(ask.is_txn), Ordering::Relaxed);
            }
            Err(failure) => {
                self.note(&failure);
                sleep(AFTER_FAILURE).await;
            }
        }
    }

    fn note(&self, failure: &Failure) {
        match failure {
            Failure::Refused(_) => self.recorder.refused(),
            Failure::Lost(_) => self.recorder.lost(),
            Failure::Unknown(why) => {
                self.counts.unknown.fetch_add(1, Ordering::Relaxed);
                self.recorder.failed(why.clone());
            }
            Failure::Other(why) => self.recorder.failed(why.clone()),
        }
    }
}
