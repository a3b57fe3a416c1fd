//! The armed faults of this process: one script for all its threads.

use std::io;
use std::num::NonZeroU64;
use std::sync::{Mutex, MutexGuard};
use std::thread;

use rustix::process::{Signal, getpid, kill_process};

use super::script::{Clock, Kill, Nth, When};
use super::{Script, Step};
use crate::telemetry::flush_log;

static ARMED: Mutex<Armed> = Mutex::new(Armed {
    kill: None,
    fail: None,
    clock: None,
    pace: Pace { ppm: 0, since: 0, shown: 0, next: None },
});

struct Armed {
    kill: Option<Kill>,
    fail: Option<Nth>,
    clock: Option<Wrong>,
    pace: Pace,
}

/// The rate of the monotonic clock. Its reading never jumps, also when the rate changes.
struct Pace {
    ppm: i64,
    /// The true reading when this rate began, and the shown reading then, in nanoseconds.
    since: u64,
    shown: u64,
    /// The rate to take at the next reading.
    next: Option<i64>,
}

impl Pace {
    fn shows(&mut self, nanos: u64) -> u64 {
        if let Some(ppm) = self.next.take() {
            let shown = self.at(nanos);
            *self = Pace { ppm, since: nanos, shown, next: None };
        }
        self.at(nanos)
    }

    fn at(&self, nanos: u64) -> u64 {
        let passed = i128::from(nanos.saturating_sub(self.since));
        let shown = i128::from(self.shown) + passed + passed * i128::from(self.ppm) / 1_000_000;
        u64::try_from(shown).unwrap_or(u64::MAX)
    }
}

/// A wrong wall clock.
struct Wrong {
    how: Clock,
    /// The true reading when it began to drift, in milliseconds.
    since: Option<u64>,
}

/// Arms this script from now on, in place of the one before.
pub fn arm(script: &Script) {
    let clock = (script.clock != Clock::default()).then_some(Wrong { how: script.clock, since: None });
    // The lock is held until the log line is written: no step ends the process before it.
    let mut armed = armed();
    armed.pace.next = Some(script.clock.mono_drift_ppm);
    (armed.kill, armed.fail, armed.clock) = (script.kill, script.fail, clock);
    tracing::warn!(?script, "faults are armed: this is no server to rely on");
}

fn armed() -> MutexGuard<'static, Armed> {
    ARMED.lock().expect("nothing panics while it holds the script")
}

pub(super) fn reach(when: When, step: Step) {
    let mut armed = armed();
    if armed
        .kill
        .as_mut()
        .is_some_and(|kill| (kill.when, kill.step) == (when, step) && is_time(&mut kill.time))
    {
        die(when, step);
    }
}

pub(super) fn attempt(step: Step) -> io::Result<()> {
    let mut armed = armed();
    match armed.fail.as_mut().is_some_and(|fail| fail.step == step && is_time(&mut fail.time)) {
        true => Err(io::Error::other(format!("{step:?} fails, as the fault script says"))),
        false => Ok(()),
    }
}

pub(super) fn wall(millis: u64) -> u64 {
    let mut armed = armed();
    let Some(Wrong { how, since }) = &mut armed.clock else { return millis };
    let passed = millis.saturating_sub(*since.get_or_insert(millis));
    let drift = i128::from(passed) * i128::from(how.drift_ppm) / 1_000_000;
    let shown = i128::from(millis) + i128::from(how.ahead_ms) + drift;
    u64::try_from(shown.max(0)).unwrap_or(u64::MAX)
}

pub(super) fn mono(nanos: u64) -> u64 {
    armed().pace.shows(nanos)
}

/// Counts down the remaining times. Returns true at the last one, once.
fn is_time(left: &mut NonZeroU64) -> bool {
    let after = NonZeroU64::new(left.get() - 1);
    *left = after.unwrap_or(NonZeroU64::MAX);
    after.is_none()
}

/// Kills the process. The lock is held, so that no other thread passes a step meanwhile.
fn die(when: When, step: Step) -> ! {
    tracing::error!(?when, ?step, "the fault script ends this process");
    // Tests wait for that line and for the lines before it.
    flush_log();
    // A process may always kill itself; and if it failed, this thread does not continue in any case.
    let _ = kill_process(getpid(), Signal::KILL);
    loop {
        thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_changes_its_pace_does_not_jump() {
        let mut pace = Pace { ppm: 0, since: 0, shown: 0, next: None };
        assert_eq!(pace.shows(5_000_000), 5_000_000);
        pace.next = Some(10_000);
        assert_eq!(pace.shows(6_000_000), 6_000_000);
        assert_eq!(pace.shows(7_000_000), 7_010_000, "1 % fast");
        pace.next = Some(-10_000);
        assert_eq!(pace.shows(7_000_000), 7_010_000);
        assert_eq!(pace.shows(8_000_000), 8_000_000, "1 % slow");
    }
}
