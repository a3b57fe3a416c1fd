//! Limits log lines: events that strangers can cause at will must not fill the log.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Least time between two lines.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);

/// Limits a log line whose event may occur at any rate to one per second.
#[derive(Debug, Default)]
pub struct LogLimit(Mutex<Option<Instant>>);

impl LogLimit {
    /// Returns true if a line is due; the caller then logs it.
    pub fn allows(&self, now: Instant) -> bool {
        let mut last = self.0.lock().expect("nothing panics while it holds this");
        let allows = last.is_none_or(|last| now.saturating_duration_since(last) >= INTERVAL);
        if allows {
            *last = Some(now);
        }
        allows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_one_line() {
        let (limit, start) = (LogLimit::default(), Instant::now());
        let said: Vec<u64> =
            (0..3_000).filter(|millis| limit.allows(start + Duration::from_millis(*millis))).collect();
        assert_eq!(said, [0, 1_000, 2_000]);
    }
}
