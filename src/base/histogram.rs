//! A histogram of durations. Recording is a few integer operations and allocates nothing, so it may be done
//! in the hot path; the edges export it (metrics, status).
//!
//! There are four buckets for each doubling, from 1 us to 134 s: a quantile read from them is wrong by an
//! eighth at most, below 4 us by half a microsecond. Shorter durations are in the first bucket, longer ones
//! in the last.

use std::fmt;
use std::time::Duration;

/// Number of buckets for each doubling, as a power of two.
const FINE: u32 = 2;
/// The doubling of the last finite buckets: 2^26 to 2^27 us.
const LAST_DOUBLING: u32 = 26;
/// Number of buckets, with one for all longer durations.
const BUCKETS: usize = (LAST_DOUBLING as usize) << FINE | 1;

// The last finite bucket ends where the one for longer durations begins.
const _: () = assert!(LAST_DOUBLING > FINE && BUCKETS < 128, "a copy of a histogram is cheap");

/// A histogram of durations.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; BUCKETS],
    sum_nanos: u64,
}

/// The durations longer than `above_us` and at most `up_to_us`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bucket {
    /// Lower bound, in microseconds; not included.
    pub above_us: u64,
    /// `None` for the last bucket, which has no upper bound.
    pub up_to_us: Option<u64>,
    /// Number of durations between the bounds.
    pub count: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: [0; BUCKETS], sum_nanos: 0 }
    }
}

impl Histogram {
    /// Counts a duration.
    pub fn record(&mut self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.counts[place(nanos)] += 1;
        self.sum_nanos = self.sum_nanos.saturating_add(nanos);
    }

    /// Returns the number of recorded durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of the recorded durations.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_nanos)
    }

    /// Returns all buckets, the shortest first.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> {
        self.counts.iter().enumerate().map(|(place, count)| Bucket {
            above_us: begin(place),
            up_to_us: (place + 1 < BUCKETS).then(|| begin(place + 1)),
            count: *count,
        })
    }
}

/// Returns the bucket of a duration. A bucket includes its upper bound and not its lower bound.
fn place(nanos: u64) -> usize {
    let micros = nanos.saturating_sub(1) / 1_000;
    if micros < 1 << FINE {
        return micros as usize;
    }
    let doubling = micros.ilog2();
    if doubling > LAST_DOUBLING {
        return BUCKETS - 1;
    }
    let within = (micros >> (doubling - FINE)) as usize & ((1 << FINE) - 1);
    let place = ((doubling - FINE + 1) as usize) << FINE | within;
    debug_assert!((begin(place)..begin(place + 1)).contains(&micros), "a duration is within its bucket");
    place
}

/// Returns the lower bound of a bucket, in microseconds.
fn begin(place: usize) -> u64 {
    let (doubling, within) = (place >> FINE, (place & ((1 << FINE) - 1)) as u64);
    match doubling {
        0 => within,
        doubling => (1 << FINE | within) << (doubling - 1),
    }
}

/// Without its buckets: there are many.
impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Histogram({} in {:?})", self.count(), self.sum())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bucket_of(took: Duration) -> Bucket {
        let mut histogram = Histogram::default();
        histogram.record(took);
        assert_eq!((histogram.count(), histogram.sum()), (1, took));
        histogram.buckets().find(|bucket| bucket.count == 1).expect("it was counted")
    }

    #[test]
    fn buckets_follow_each_other_without_gaps() {
        let buckets: Vec<Bucket> = Histogram::default().buckets().collect();
        assert_eq!((buckets[0].above_us, buckets[0].up_to_us), (0, Some(1)));
        for pair in buckets.windows(2) {
            assert_eq!(pair[0].up_to_us, Some(pair[1].above_us));
        }
        let last = buckets.last().expect("there are some");
        assert_eq!((last.above_us, last.up_to_us), (1 << 27, None));
        // The metrics export one bucket per doubling, so every power of two is an upper bound.
        for doubling in 0..=27 {
            assert!(buckets.iter().any(|bucket| bucket.up_to_us == Some(1 << doubling)), "{doubling}");
        }
    }

    #[test]
    fn a_bucket_has_its_end_and_not_its_beginning() {
        for (nanos, above, up_to) in [(0, 0, 1), (1_000, 0, 1), (1_001, 1, 2), (8_000, 7, 8), (8_001, 8, 10)]
        {
            let bucket = bucket_of(Duration::from_nanos(nanos));
            assert_eq!((bucket.above_us, bucket.up_to_us), (above, Some(up_to)), "{nanos} ns");
        }
        assert_eq!(bucket_of(Duration::from_secs(200)).up_to_us, None);
    }

    proptest! {
        #[test]
        fn whatever_took_how_long_is_in_its_bucket(micros in 1_u64..1 << 27, nanos in 0_u64..1_000) {
            let took = Duration::from_micros(micros) - Duration::from_nanos(nanos);
            let bucket = bucket_of(took);
            let up_to = bucket.up_to_us.expect("it is not too long");
            prop_assert!(took > Duration::from_micros(bucket.above_us) || bucket.above_us == 0);
            prop_assert!(took <= Duration::from_micros(up_to));
            prop_assert!(up_to - bucket.above_us <= 1.max(bucket.above_us / 4));
        }
    }
}
