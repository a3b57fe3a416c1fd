//! The measurements of a load test: one recorder for each datacenter.

use std::sync::Mutex;
use std::time::Duration;

use hdrhistogram::Histogram;

/// Longest latency that is distinguished from longer ones.
const LONGEST: Duration = Duration::from_secs(3_600);
/// Most holds of the hot lock that are kept.
const MAX_SPANS: usize = 100_000;

/// A hold of the hot lock, in time since the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub from: Duration,
    pub until: Duration,
}

/// The measurements of one datacenter.
#[derive(Debug)]
pub(super) struct Recorder {
    slice: Duration,
    inner: Mutex<Recorded>,
}

/// The recorded values.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    /// Time from when a lock was wanted (or due) until it was granted, in ns.
    pub acquire: Histogram<u64>,
    /// Time from a release until the server had confirmed it, in ns.
    pub release: Histogram<u64>,
    /// `acquire` since the last report of progress.
    recent: Histogram<u64>,
    /// Acquisitions in each slice of time.
    pub slices: Vec<u64>,
    /// Locks that were acquired: more than acquisitions if requests want several.
    pub locks: u64,
    pub refused: u64,
    pub lost: u64,
    /// Other failures, and the first of them.
    pub failed: u64,
    pub failure: Option<String>,
    pub spans: Vec<Span>,
    /// The time from which on they are no longer kept.
    pub spans_until: Duration,
    /// Waiting times of acquisitions that were not complete at the end.
    pub unfinished: Vec<Duration>,
}

/// Returns a histogram of times in ns.
pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST.as_nanos() as u64, 3).expect("these bounds are good")
}

pub(super) fn nanos(duration: Duration) -> u64 {
    duration.min(LONGEST).as_nanos().max(1) as u64
}

impl Recorder {
    /// Creates a recorder with a count for each slice of that length.
    pub(super) fn new(slice: Duration) -> Recorder {
        let inner = Recorded {
            acquire: histogram(),
            release: histogram(),
            recent: histogram(),
            slices: Vec::new(),
            locks: 0,
            refused: 0,
            lost: 0,
            failed: 0,
            failure: None,
            spans: Vec::new(),
            spans_until: Duration::MAX,
            unfinished: Vec::new(),
        };
        Recorder { slice, inner: Mutex::new(inner) }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Recorded) -> T) -> T {
        change(&mut self.inner.lock().expect("nothing panics while it holds this"))
    }

    /// Records a grant of `locks`, `at` this time after the beginning, `latency` after they were wanted.
    pub(super) fn granted(&self, at: Duration, latency: Duration, locks: usize) {
        let slice = (at.as_nanos() / self.slice.as_nanos()) as usize;
        self.with(|inner| {
            inner.acquire.saturating_record(nanos(latency));
            inner.recent.saturating_record(nanos(latency));
            if inner.slices.len() <= slice {
                inner.slices.resize(slice + 1, 0);
            }
            inner.slices[slice] += 1;
            inner.locks += locks as u64;
        });
    }

    pub(super) fn released(&self, latency: Duration) {
        self.with(|inner| inner.release.saturating_record(nanos(latency)));
    }

    /// Records a hold of the hot lock.
    pub(super) fn held(&self, span: Span) {
        self.with(|inner| {
            if inner.spans.len() < MAX_SPANS {
                inner.spans.push(span);
            } else {
                inner.spans_until = inner.spans_until.min(span.from);
            }
        });
    }

    /// Records an acquisition that was not complete at the end.
    pub(super) fn unfinished(&self, waited: Duration) {
        self.with(|inner| {
            inner.unfinished.push(waited);
        });
    }

    pub(super) fn refused(&self) {
        self.with(|inner| inner.refused += 1);
    }

    pub(super) fn lost(&self) {
        self.with(|inner| inner.lost += 1);
    }

    pub(super) fn failed(&self, why: String) {
        self.with(|inner| {
            inner.failed += 1;
            inner.failure.get_or_insert(why);
        });
    }

    /// Returns the latencies of the acquisitions since the previous call.
    pub(super) fn progress(&self) -> Histogram<u64> {
        self.with(|inner| std::mem::replace(&mut inner.recent, histogram()))
    }

    pub(super) fn recorded(&self) -> Recorded {
        self.with(|inner| inner.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acquisitions_fall_into_their_slices() {
        let (recorder, ms) = (Recorder::new(Duration::from_millis(100)), Duration::from_millis);
        for at in [0, 99, 100, 350] {
            recorder.granted(ms(at), ms(2), 10);
        }
        assert_eq!(recorder.progress().len(), 4);
        assert_eq!(recorder.progress().len(), 0, "it was asked just before");
        let recorded = recorder.recorded();
        assert_eq!(recorded.slices, [2, 1, 0, 1]);
        assert_eq!((recorded.locks, recorded.acquire.len()), (40, 4));
        let p50 = recorded.acquire.value_at_quantile(0.5);
        assert!((1_990_000..2_010_000).contains(&p50), "{p50}");
    }
}
