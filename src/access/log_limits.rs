//! As [`LogLimit`](super::LogLimit), with one limit per key, so that no key suppresses the lines of another.

use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use rustc_hash::FxHashMap;

use super::log_limit::INTERVAL;

/// Most keys at a time. Beyond it no line of a new key is due until some keys have had none for a while.
const MOST: usize = 1_000;

/// Limits the log to one line a second for each key.
#[derive(Debug)]
pub(super) struct LogLimits<K>(Mutex<FxHashMap<K, Instant>>);

impl<K> Default for LogLimits<K> {
    fn default() -> LogLimits<K> {
        LogLimits(Mutex::default())
    }
}

impl<K: Hash + Eq> LogLimits<K> {
    /// Returns true, and counts the line, if a line about this key is due.
    pub fn allows(&self, of: K, now: Instant) -> bool {
        let is_recent = |last: &Instant| now.saturating_duration_since(*last) < INTERVAL;
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.get(&of).is_some_and(is_recent) {
            return false;
        }
        if last.len() >= MOST {
            last.retain(|_, last| is_recent(last));
            if last.len() >= MOST {
                return false;
            }
        }
        last.insert(of, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_has_a_line_a_second_and_there_are_not_too_many() {
        let (limits, start) = (LogLimits::default(), Instant::now());
        let said = |of: usize, millis| limits.allows(of, start + Duration::from_millis(millis));
        assert_eq!([said(1, 0), said(1, 999), said(2, 999), said(1, 1_000)], [true, false, true, true]);
        assert_eq!((3..5_000).filter(|of| said(*of, 1_500)).count(), MOST - 2);
        assert!(said(1, 2_500));
    }
}
