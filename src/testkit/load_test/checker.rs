//! Checks grants: no two conflicting holders, and increasing tokens.
//!
//! Every grant of every client is entered here when it arrives, and every end before the release is sent, so
//! holds that overlap here really overlapped. A holder may have lost its lock without knowing it yet. So an
//! overlap is a violation only if the end of the earlier hold shows that it was not lost.

use std::sync::Mutex;

use rustc_hash::FxHashMap;

use super::workload::{Ask, Key};
use geolock_api::names::Mode;

const SHARDS: usize = 64;
/// Most violations that are described; more are counted.
const DESCRIBED: usize = 20;

/// The number of an acquisition, unique in the test.
pub(super) type Hold = u64;

#[derive(Debug, Default)]
struct Lock {
    /// At most one, or all shared.
    holds: Vec<(Hold, Mode)>,
    exclusive_token: u64,
    shared_token: u64,
}

/// The present holds of all locks, and the violations found.
#[derive(Debug)]
pub(super) struct Checker {
    shards: Vec<Mutex<FxHashMap<Key, Lock>>>,
    found: Mutex<Found>,
}

#[derive(Debug, Default)]
struct Found {
    /// By the earlier hold: the violations if that hold was not lost.
    suspected: FxHashMap<Hold, Vec<String>>,
    violations: Vec<String>,
    count: u64,
}

impl Found {
    fn add(&mut self, what: String) {
        self.count += 1;
        if self.violations.len() < DESCRIBED {
            self.violations.push(what);
        }
    }
}

/// The result of the checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub count: u64,
    pub described: Vec<String>,
}

impl Checker {
    pub(super) fn new() -> Checker {
        Checker { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), found: Mutex::default() }
    }

    fn with<T>(&self, key: Key, look: impl FnOnce(&mut Lock) -> T) -> T {
        let shard = &self.shards[key as usize % SHARDS];
        look(shard.lock().expect("nothing panics while it holds this").entry(key).or_default())
    }

    fn found(&self) -> std::sync::MutexGuard<'_, Found> {
        self.found.lock().expect("nothing panics while it holds this")
    }

    /// Enters the grant of `hold`.
    pub(super) fn granted(&self, hold: Hold, ask: &Ask, token: u64) {
        for &(key, mode) in &ask.locks {
            let (before, highest) = self.with(key, |lock| lock.begin(hold, mode, token));
            for other in before {
                let what = format!("lock {key}: {other} still held it when {hold} got it, {mode}");
                self.found().suspected.entry(other).or_default().push(what);
            }
            if highest >= token {
                let what = format!("lock {key}: {hold} got token {token}, before it was {highest}");
                self.found().add(what);
            }
        }
    }

    /// Enters that `hold` is about to be released.
    pub(super) fn ending(&self, hold: Hold, ask: &Ask) {
        for &(key, _) in &ask.locks {
            self.with(key, |lock| lock.holds.retain(|(other, _)| *other != hold));
        }
    }

    /// Enters that `hold` was released; `was_lost` if it had ended before.
    pub(super) fn ended(&self, hold: Hold, was_lost: bool) {
        let mut found = self.found();
        let suspected = found.suspected.remove(&hold).unwrap_or_default();
        if !was_lost {
            suspected.into_iter().for_each(|what| found.add(what));
        }
    }

    /// Adds a violation that was found elsewhere.
    pub(super) fn blame(&self, what: String) {
        self.found().add(what);
    }

    /// Returns the number of violations so far.
    pub(super) fn count(&self) -> u64 {
        self.found().count
    }

    /// Returns the violations. A hold that has not ended counts as not lost.
    pub(super) fn verdict(&self) -> Verdict {
        let mut found = self.found();
        let suspected = std::mem::take(&mut found.suspected);
        suspected.into_values().flatten().for_each(|what| found.add(what));
        Verdict { count: found.count, described: found.violations.clone() }
    }
}

impl Lock {
    /// Enters a hold of a lock. Returns all conflicting holds, and the highest token that must be below the
    /// new one.
    fn begin(&mut self, hold: Hold, mode: Mode, token: u64) -> (Vec<Hold>, u64) {
        let conflicting = self.holds.iter().filter(|(_, other)| other.conflicts_with(mode));
        let conflicting = conflicting.map(|(other, _)| *other).collect();
        self.holds.push((hold, mode));
        let highest = match mode {
            Mode::Exclusive => self.exclusive_token.max(self.shared_token),
            Mode::Shared => self.exclusive_token,
        };
        let own = if mode == Mode::Exclusive { &mut self.exclusive_token } else { &mut self.shared_token };
        *own = (*own).max(token);
        (conflicting, highest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(mode: Mode) -> Ask {
        Ask { locks: vec![(7, mode)], is_txn: false }
    }

    fn hold(checker: &Checker, hold: Hold, mode: Mode, token: u64) {
        checker.granted(hold, &ask(mode), token);
    }

    fn end(checker: &Checker, hold: Hold, was_lost: bool) {
        checker.ending(hold, &ask(Mode::Exclusive));
        checker.ended(hold, was_lost);
    }

    #[test]
    fn one_after_the_other_is_right() {
        let checker = Checker::new();
        for (n, mode) in
            [Mode::Exclusive, Mode::Shared, Mode::Shared, Mode::Exclusive].into_iter().enumerate()
        {
            hold(&checker, n as u64, mode, 10 + n as u64);
            end(&checker, n as u64, false);
        }
        assert_eq!(checker.verdict(), Verdict::default());
    }

    #[test]
    fn readers_hold_together_and_nobody_else_does() {
        let checker = Checker::new();
        hold(&checker, 1, Mode::Shared, 5);
        hold(&checker, 2, Mode::Shared, 5);
        assert_eq!(checker.verdict().count, 0);
        hold(&checker, 3, Mode::Exclusive, 6);
        end(&checker, 1, false);
        let verdict = checker.verdict();
        // Either of them may have lost it without the other.
        assert_eq!(verdict.count, 2, "{verdict:?}");
        assert!(verdict.described[0].contains("1 still held it when 3"), "{verdict:?}");
        assert!(verdict.described[1].contains("2 still held it when 3"), "{verdict:?}");
    }

    #[test]
    fn who_had_lost_it_was_not_overlapped() {
        let checker = Checker::new();
        hold(&checker, 1, Mode::Exclusive, 5);
        hold(&checker, 2, Mode::Exclusive, 6);
        end(&checker, 1, true);
        end(&checker, 2, false);
        assert_eq!(checker.verdict().count, 0);
    }

    #[test]
    fn tokens_that_do_not_increase_are_found() {
        for (first, second) in [
            (Mode::Exclusive, Mode::Exclusive),
            (Mode::Exclusive, Mode::Shared),
            (Mode::Shared, Mode::Exclusive),
        ] {
            let checker = Checker::new();
            hold(&checker, 1, first, 5);
            end(&checker, 1, false);
            hold(&checker, 2, second, 5);
            assert_eq!(checker.verdict().count, 1, "{first:?} {second:?}");
        }
    }
}
