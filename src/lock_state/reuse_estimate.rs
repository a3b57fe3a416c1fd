//! The reuse estimate: how soon a lock that was released here is wanted here again.
//!
//! It is the mean and the mean deviation of the time from the moment at which no local request holds or wants
//! a lock until the next local request for it. Both are smoothed as TCP smooths round trips (Jacobson 1988,
//! RFC 6298). The next request rarely comes later than the mean plus four deviations.

use std::time::Duration;

use crate::base::time::Instant;

/// Longer samples count as this one.
const LONGEST: Duration = Duration::from_millis(500);

/// The reuse estimate of a lock, in microseconds. It is unknown before the first sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct ReuseEstimate {
    smoothed: Option<Smoothed>,
    /// Time since which no local request holds or wants the lock, if that is being measured.
    away_since: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Smoothed {
    mean: u32,
    deviation: u32,
}

impl ReuseEstimate {
    /// Records a release. `wanted`: a local request already waits for the lock.
    pub fn note_release(&mut self, wanted: bool, now: Instant) {
        if wanted {
            self.sample(Duration::ZERO);
        } else {
            self.away_since = Some(now);
        }
    }

    /// Records a local request, waiting or granted at once. Returns true if the estimate changed.
    pub fn note_request(&mut self, now: Instant) -> bool {
        let since = self.away_since.take();
        if let Some(since) = since {
            self.sample(now.saturating_since(since));
        }
        since.is_some()
    }

    fn sample(&mut self, absence: Duration) {
        let absence = absence.min(LONGEST).as_micros() as u32;
        debug_assert!(
            self.smoothed.is_none_or(|smoothed| u128::from(smoothed.mean) <= LONGEST.as_micros()),
            "a mean of bounded samples has their bound"
        );
        self.smoothed = Some(match self.smoothed {
            None => Smoothed { mean: absence, deviation: absence / 2 },
            Some(Smoothed { mean, deviation }) => Smoothed {
                mean: mean - mean / 8 + absence / 8,
                deviation: deviation - deviation / 4 + mean.abs_diff(absence) / 4,
            },
        });
    }

    /// Returns true if the next request usually comes sooner than that. False before the first sample.
    pub fn is_sooner_than(&self, time: Duration) -> bool {
        self.expected().is_some_and(|(mean, _)| mean < time)
    }

    /// Returns the mean and an upper bound that is rarely exceeded, or `None` before the first sample.
    pub fn expected(&self) -> Option<(Duration, Duration)> {
        let Smoothed { mean, deviation } = self.smoothed?;
        let most = u64::from(mean) + 4 * u64::from(deviation);
        Some((Duration::from_micros(mean.into()), Duration::from_micros(most)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(micros)
    }

    #[test]
    fn what_comes_back_evenly_is_expected_then() {
        let mut reuse = ReuseEstimate::default();
        assert_eq!(reuse.expected(), None);
        for turn in 0..100 {
            reuse.note_release(false, at(turn * 10_000));
            reuse.note_request(at(turn * 10_000 + 800));
        }
        let (mean, most) = reuse.expected().expect("there were samples");
        assert!((790..=810).contains(&mean.as_micros()), "{mean:?}");
        assert!(most < Duration::from_millis(1), "{most:?}");
    }

    #[test]
    fn only_the_first_request_after_a_release_counts() {
        let mut reuse = ReuseEstimate::default();
        reuse.note_request(at(5));
        assert_eq!(reuse.expected(), None);
        reuse.note_release(false, at(10));
        reuse.note_request(at(110));
        let once = reuse;
        reuse.note_request(at(9_000));
        assert_eq!(reuse, once);
    }

    #[test]
    fn a_long_absence_counts_but_is_soon_forgotten() {
        let mut reuse = ReuseEstimate::default();
        reuse.note_release(false, at(0));
        reuse.note_request(at(3_600_000_000));
        assert_eq!(reuse.expected().map(|(mean, _)| mean), Some(LONGEST));
        for _ in 0..40 {
            reuse.note_release(true, at(3_600_000_000));
        }
        assert!(reuse.expected().is_some_and(|(mean, _)| mean < Duration::from_millis(4)), "{reuse:?}");
    }
}
