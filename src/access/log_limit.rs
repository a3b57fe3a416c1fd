//! Something that strangers can make happen at will must not fill the log.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// At most one line in so long.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);

/// Whether to say something once more, which may happen at any rate: at most once a second.
#[derive(Debug, Default)]
pub struct LogLimit(Mutex<Option<Instant>>);

impl LogLimit {
    /// Whether it is time for a line, which then is said.
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
