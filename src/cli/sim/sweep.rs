//! Runs many seeds of one profile on some threads, and reports progress.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use crate::base::time::brief;
use crate::cli::print::{print, tell};
use crate::sim::{Failure, Outcome, Profile, SimOptions, TraceMode};

/// Time between two reports of progress, to a terminal and to a file.
const TO_TERMINAL: Duration = Duration::from_secs(3);
const TO_FILE: Duration = Duration::from_secs(30);

thread_local! {
    /// The seed that runs on this thread now.
    static RUNNING: Cell<Option<SimOptions>> = const { Cell::new(None) };
}

/// In a build in which panics abort, no [`Failure`] can be made of one: the panic message names the seed.
pub(super) fn name_the_seed_of_a_panic() {
    let earlier = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        earlier(panic);
        if let Some(options) = RUNNING.get() {
            tell(format_args!("seed {} panicked\n  again: {}", options.seed, options.replay()));
        }
    }));
}

/// The seeds to run, and how.
pub(super) struct Sweep {
    pub profile: Profile,
    pub seeds: Range<u64>,
    pub seconds: u64,
    pub jobs: u16,
    pub trace: bool,
}

/// The result of a sweep.
pub(super) struct Swept {
    /// Sum over the seeds that did not fail.
    pub total: Outcome,
    /// In increasing order.
    pub failed: Vec<u64>,
    pub took: Duration,
}

/// A seed and its result.
type Done = (u64, Result<Outcome, Failure>);

impl Sweep {
    /// Runs all seeds; each failure is shown as soon as it is known.
    pub fn run(&self, show: impl Fn(&Failure)) -> Swept {
        let next = AtomicU64::new(self.seeds.start);
        std::thread::scope(|scope| {
            let (done, results) = channel();
            for _ in 0..self.jobs {
                let (done, next) = (done.clone(), &next);
                scope.spawn(move || self.work(next, &done));
            }
            drop(done);
            self.collect(&results, show)
        })
    }

    /// The work of one thread.
    fn work(&self, next: &AtomicU64, done: &Sender<Done>) {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= self.seeds.end {
                return;
            }
            let trace = if self.trace { TraceMode::Each(print_line) } else { TraceMode::Off };
            let options = SimOptions { trace, profile: self.profile, ..SimOptions::new(seed, self.seconds) };
            RUNNING.set(Some(options));
            let result = crate::sim::run(&options);
            RUNNING.set(None);
            if done.send((seed, result)).is_err() {
                return;
            }
        }
    }

    fn collect(&self, results: &Receiver<Done>, show: impl Fn(&Failure)) -> Swept {
        let (started, mut said) = (Instant::now(), Instant::now());
        let every = if std::io::stderr().is_terminal() { TO_TERMINAL } else { TO_FILE };
        let (mut total, mut failed, mut count) = (Outcome::default(), Vec::new(), 0);
        // Adds results in the order of the seeds, so that the hash of the sum does not depend on the speed of
        // the threads.
        let (mut early, mut due) = (BTreeMap::new(), self.seeds.start);
        loop {
            match results.recv_timeout(every.saturating_sub(said.elapsed())) {
                Ok((seed, result)) => {
                    count += 1;
                    if let Err(failure) = &result {
                        show(failure);
                        failed.push(seed);
                    }
                    early.insert(seed, result.ok());
                }
                Err(RecvTimeoutError::Timeout) => {
                    said = Instant::now();
                    let (of, took) = (self.seeds.end - self.seeds.start, started.elapsed());
                    let (profile, failed) = (self.profile, failed.len());
                    tell(format_args!("{profile}: {count} of {of} seeds, {failed} failed, {}", brief(took)));
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
            while let Some(outcome) = early.remove(&due) {
                due += 1;
                outcome.iter().for_each(|outcome| total.add(outcome));
            }
        }
        failed.sort_unstable();
        Swept { total, failed, took: started.elapsed() }
    }
}

/// Once the output is closed, further lines are useless, and exiting is the only way out of a running seed.
fn print_line(line: &str) {
    if let Err(failure) = print(line) {
        failure.report();
        std::process::exit(failure.code().into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_is_the_same_on_any_number_of_threads() {
        let sweep = |jobs| {
            let sweep = Sweep { profile: Profile::Resets, seeds: 10..14, seconds: 5, jobs, trace: false };
            let swept = sweep.run(|failure| panic!("{failure}"));
            assert!(swept.failed.is_empty());
            swept.total
        };
        let one = sweep(1);
        assert!(one.grants > 0);
        assert_eq!(one, sweep(3));
    }
}
