//! Samples of a server's figures: counters to rates, histograms to quantiles.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use geolock_api::proto::{Histogram, HistogramBucket, PeerStatus};
use geolock_client::{HotLock, Status};

/// The figures of a server at one moment.
pub(super) struct Sample {
    pub status: Status,
    /// Or the reason why they are not shown.
    pub hot: Result<Vec<HotLock>, String>,
    at: Instant,
}

/// Shortest time over which quantiles are computed.
const QUANTILES_OF: Duration = Duration::from_secs(10);

/// Time for which a restart is reported.
const NEWS: Duration = Duration::from_secs(60);

/// The last samples of one run of a server, the latest last.
#[derive(Default)]
pub(super) struct Window {
    samples: VecDeque<Sample>,
    restarted: Option<Instant>,
}

/// The latest sample, with the one before it.
pub(super) struct Picture<'a> {
    pub now: &'a Sample,
    before: Option<&'a Sample>,
    /// A sample of about 10 s before, or the first.
    long_before: Option<&'a Sample>,
    /// Time since the restart of the server was noticed.
    pub restarted: Option<Duration>,
}

impl Sample {
    pub fn new(status: Status, hot: Result<Vec<HotLock>, String>) -> Sample {
        Sample { status, hot, at: Instant::now() }
    }

    pub fn count(&self, name: &str) -> u64 {
        self.status.counts.get(name).copied().unwrap_or(0)
    }
}

impl Window {
    pub fn push(&mut self, sample: Sample) {
        if self.samples.back().is_some_and(|last| last.status.boot_id != sample.status.boot_id) {
            // Its counters start at 0 again.
            self.samples.clear();
            self.restarted = Some(sample.at);
        }
        self.samples.push_back(sample);
        let at = |place: usize, samples: &VecDeque<Sample>| samples.get(place).map(|sample| sample.at);
        while self.samples.len() > 2
            && at(1, &self.samples).is_some_and(|second| second.elapsed() >= QUANTILES_OF)
        {
            self.samples.pop_front();
        }
    }

    /// Returns a window with two samples a second apart.
    #[cfg(test)]
    pub fn of(samples: [(Status, Result<Vec<HotLock>, String>); 2]) -> Window {
        let start = Instant::now();
        let mut window = Window::default();
        for (second, (status, hot)) in samples.into_iter().enumerate() {
            window.push(Sample { status, hot, at: start + Duration::from_secs(second as u64) });
        }
        window
    }

    /// Returns `None` before the first sample.
    pub fn picture(&self) -> Option<Picture<'_>> {
        let (now, before) = (self.samples.back()?, self.samples.len().checked_sub(2));
        Some(Picture {
            now,
            before: before.and_then(|place| self.samples.get(place)),
            long_before: before.and_then(|_| self.samples.front()),
            restarted: self.restarted.map(|at| at.elapsed()).filter(|ago| *ago < NEWS),
        })
    }
}

/// Traffic with a peer, per second.
pub(super) struct Traffic {
    pub messages_sent: f64,
    pub messages_received: f64,
    pub bytes_sent: f64,
    pub bytes_received: f64,
}

/// Figures of a lock, per second.
pub(super) struct LockRates {
    pub grants: f64,
    pub hand_offs: f64,
}

impl Picture<'_> {
    /// Returns the time over which rates are computed; `None` if there is no earlier sample.
    pub fn interval(&self) -> Option<Duration> {
        let interval = self.now.at.saturating_duration_since(self.before?.at);
        (!interval.is_zero()).then_some(interval)
    }

    fn rate(&self, now: u64, before: u64) -> Option<f64> {
        Some(now.saturating_sub(before) as f64 / self.interval()?.as_secs_f64())
    }

    /// Returns the growth of a counter, per second.
    pub fn counted(&self, name: &str) -> Option<f64> {
        self.rate(self.now.count(name), self.before?.count(name))
    }

    pub fn traffic(&self, peer: &PeerStatus) -> Option<Traffic> {
        let before = self.before?.status.peers.iter().find(|before| before.dc == peer.dc)?;
        Some(Traffic {
            messages_sent: self.rate(peer.messages_sent, before.messages_sent)?,
            messages_received: self.rate(peer.messages_received, before.messages_received)?,
            bytes_sent: self.rate(peer.bytes_sent, before.bytes_sent)?,
            bytes_received: self.rate(peer.bytes_received, before.bytes_received)?,
        })
    }

    /// Returns the rates of a lock. All that was counted belongs to the interval if the lock was added to the
    /// hottest only since.
    pub fn lock(&self, hot: &HotLock) -> Option<LockRates> {
        let name = |hot: &HotLock| hot.lock.as_ref().map(|lock| lock.name.clone());
        let before = self.before?.hot.as_ref().ok()?.iter().find(|before| name(before) == name(hot));
        // A lock that was removed from the table meanwhile counts from 0 again.
        let before = before.filter(|before| before.tracked_ms <= hot.tracked_ms);
        let (grants, hand_offs) = before.map_or((0, 0), |before| (before.grants, before.hand_offs));
        let interval = self.interval()?.max(Duration::from_millis(1));
        // It may have been among the hottest before, but not on the page.
        let since = if before.is_some() { interval } else { Duration::from_millis(hot.tracked_ms.max(1)) };
        let seconds = since.max(interval).as_secs_f64();
        Some(LockRates {
            grants: hot.grants.saturating_sub(grants) as f64 / seconds,
            hand_offs: hot.hand_offs.saturating_sub(hand_offs) as f64 / seconds,
        })
    }

    /// Returns a quantile, from 0 to 1, of recent durations; `None` without values.
    pub fn took(&self, name: &str, quantile: f64) -> Option<Duration> {
        let now = self.now.status.durations.get(name)?;
        self.quantile_since(now, self.long_before?.status.durations.get(name), quantile)
    }

    fn quantile_since(&self, now: &Histogram, before: Option<&Histogram>, quantile: f64) -> Option<Duration> {
        let before: BTreeMap<u64, u64> =
            before.into_iter().flat_map(|it| &it.buckets).map(|one| (one.above_us, one.count)).collect();
        let since = |bucket: &HistogramBucket| {
            bucket.count.saturating_sub(before.get(&bucket.above_us).copied().unwrap_or(0))
        };
        let all: u64 = now.buckets.iter().map(since).sum();
        let rank = quantile * all as f64;
        let mut passed = 0;
        for bucket in &now.buckets {
            let count = since(bucket);
            if count > 0 && (passed + count) as f64 >= rank {
                // Interpolates as if the values were spread evenly over the bucket.
                let within = ((rank - passed as f64) / count as f64).clamp(0.0, 1.0);
                let width = bucket.up_to_us.saturating_sub(bucket.above_us) as f64;
                return Some(Duration::from_secs_f64((bucket.above_us as f64 + within * width) / 1e6));
            }
            passed += count;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use geolock_client::LockDescription;

    fn counted(boot_id: u64, grants: u64) -> Status {
        let buckets = vec![
            HistogramBucket { above_us: 0, up_to_us: 1, count: grants },
            HistogramBucket { above_us: 1_024, up_to_us: 1_280, count: grants / 5 },
        ];
        Status {
            boot_id,
            counts: [("grants_total".to_owned(), grants)].into(),
            durations: [("acquire_local".to_owned(), Histogram { count: 0, sum_us: 0, buckets })].into(),
            ..Status::default()
        }
    }

    fn hot(name: &'static [u8], tracked_ms: u64, grants: u64) -> HotLock {
        let lock = LockDescription { name: name.into(), ..LockDescription::default() };
        HotLock { lock: Some(lock), tracked_ms, grants, hand_offs: 2 * grants, ..HotLock::default() }
    }

    #[test]
    fn rates_and_quantiles_are_of_what_happened_since() {
        let window = Window::of([(counted(1, 1_000), Ok(vec![])), (counted(1, 1_100), Ok(vec![]))]);
        let picture = window.picture().expect("there are two");
        assert_eq!(picture.counted("grants_total"), Some(100.0));
        assert_eq!(picture.counted("commits_total"), Some(0.0));
        // 100 values of up to 1 us, 20 of 1 024 to 1 280 us.
        assert_eq!(picture.took("acquire_local", 0.5), Some(Duration::from_nanos(600)));
        assert_eq!(picture.took("acquire_local", 1.0), Some(Duration::from_micros(1_280)));
        assert_eq!(picture.took("acquire_remote", 0.5), None);
    }

    #[test]
    fn a_restart_begins_anew() {
        let window = Window::of([(counted(1, 1_000), Ok(vec![])), (counted(2, 10), Ok(vec![]))]);
        let picture = window.picture().expect("there is one");
        assert_eq!((picture.counted("grants_total"), picture.took("acquire_local", 0.5)), (None, None));
        assert!(picture.restarted.is_some());
    }

    #[test]
    fn a_lock_is_counted_from_when_it_was_seen() {
        let before = vec![hot(b"old", 5_000, 10), hot(b"back", 5_000, 10)];
        let now = vec![hot(b"old", 6_000, 30), hot(b"back", 200, 3), hot(b"unseen", 4_000, 8)];
        let window = Window::of([(counted(1, 0), Ok(before)), (counted(1, 0), Ok(now))]);
        let picture = window.picture().expect("there are two");
        let rates: Vec<f64> = picture
            .now
            .hot
            .iter()
            .flatten()
            .map(|hot| picture.lock(hot).expect("there are two").grants)
            .collect();
        assert_eq!(rates, [20.0, 3.0, 2.0]);
    }

    #[test]
    fn the_window_is_as_long_as_quantiles_need() {
        let start = Instant::now() - Duration::from_secs(20);
        let mut window = Window::default();
        for second in 0..=20 {
            let (status, hot) = (counted(1, second), Ok(vec![]));
            window.push(Sample { status, hot, at: start + Duration::from_secs(second) });
        }
        assert!((11..=12).contains(&window.samples.len()), "{}", window.samples.len());
    }
}
