//! Time as the core sees it: values that enter with every event. No clock can be read here.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A point on one process's monotonic clock, in nanoseconds since an origin that the edge chooses. The clock
/// continues during suspend. It has no meaning in another process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Instant(u64);

impl Instant {
    pub const ZERO: Instant = Instant(0);
    pub const FAR_FUTURE: Instant = Instant(u64::MAX);

    pub const fn from_nanos(nanos: u64) -> Instant {
        Instant(nanos)
    }

    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns zero if `earlier` is later.
    pub fn saturating_since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    /// Saturates: a deadline centuries away is equivalent to none.
    fn add(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;

    /// Saturates at the origin.
    fn sub(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_sub(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// A reading of the wall clock: milliseconds since the Unix epoch. It may jump; only the hybrid clock reads
/// it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug, Serialize, Deserialize)]
pub struct Wall(pub u64);

/// Readings of the edge's clocks when an event was submitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Now {
    pub mono: Instant,
    pub wall: Wall,
}

/// The time to live of a key, in milliseconds: 1 to [`TimeToLive::MAX_MILLIS`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct TimeToLive(u64);

/// A time to live that is out of range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a key expires in 1 to {max} ms (10 years), not in {asked}", max = TimeToLive::MAX_MILLIS)]
pub struct TimeToLiveError {
    /// In milliseconds.
    pub asked: i128,
}

impl TimeToLive {
    /// Ten years.
    pub const MAX_MILLIS: u64 = 3_652 * 24 * 60 * 60 * 1_000;

    /// Checks `millis` from a client or a peer.
    pub fn from_millis(millis: impl Into<i128>) -> Result<TimeToLive, TimeToLiveError> {
        let millis = millis.into();
        match u64::try_from(millis) {
            Ok(valid @ 1..=TimeToLive::MAX_MILLIS) => Ok(TimeToLive(valid)),
            _ => Err(TimeToLiveError { asked: millis }),
        }
    }

    pub const fn millis(self) -> u64 {
        self.0
    }

    pub const fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl TryFrom<u64> for TimeToLive {
    type Error = TimeToLiveError;

    fn try_from(millis: u64) -> Result<TimeToLive, TimeToLiveError> {
        TimeToLive::from_millis(millis)
    }
}

impl From<TimeToLive> for u64 {
    fn from(ttl: TimeToLive) -> u64 {
        ttl.0
    }
}

/// A reading of a hybrid logical clock: 48 bits of milliseconds since the Unix epoch, 16 bits of counter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Timestamp(u64);

impl Timestamp {
    pub const ZERO: Timestamp = Timestamp(0);
    pub const MAX: Timestamp = Timestamp(u64::MAX);

    /// Returns the first reading of that millisecond.
    pub const fn from_millis(millis: u64) -> Timestamp {
        Timestamp(millis << 16)
    }

    pub const fn from_raw(raw: u64) -> Timestamp {
        Timestamp(raw)
    }

    pub const fn raw(self) -> u64 {
        self.0
    }

    pub const fn millis(self) -> u64 {
        self.0 >> 16
    }

    /// Returns the next reading. A counter that overflows takes readings of the next millisecond.
    pub const fn next(self) -> Timestamp {
        Timestamp(self.0.saturating_add(1))
    }

    /// Saturates.
    pub fn plus(self, duration: Duration) -> Timestamp {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX >> 16);
        Timestamp(self.0.saturating_add(millis.min(u64::MAX >> 16) << 16))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.millis(), self.0 & 0xffff)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Formats a duration for people, in the units of all output: `850 us`, `1.2 ms`, `350 ms`, `12.5 s`, `3 min
/// 20 s`, `2 h 5 min`, `3 d 4 h`.
pub fn brief(duration: Duration) -> String {
    let (micros, seconds) = (duration.as_micros(), duration.as_secs());
    match (seconds, micros) {
        (0, 1..1_000) => format!("{micros} us"),
        (0, 1_000..10_000) if micros % 1_000 != 0 => format!("{:.1} ms", micros as f64 / 1e3),
        (0, _) => format!("{} ms", duration.as_millis()),
        (1..60, _) => format!("{:.1} s", duration.as_secs_f64()),
        (60..3_600, _) => format!("{} min {} s", seconds / 60, seconds % 60),
        (3_600..86_400, _) => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_brief() {
        let shown =
            [0, 96, 999, 1_234, 5_000, 350_000, 12_500_000, 200_000_000, 7_500_000_000, 273_600_000_000];
        let shown = shown.map(Duration::from_micros).map(brief);
        let expected = [
            "0 ms",
            "96 us",
            "999 us",
            "1.2 ms",
            "5 ms",
            "350 ms",
            "12.5 s",
            "3 min 20 s",
            "2 h 5 min",
            "3 d 4 h",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_time_to_live_is_above_0_and_not_above_ten_years() {
        let millis = |asked: i128| TimeToLive::from_millis(asked).map(TimeToLive::millis);
        assert_eq!((millis(1), millis(315_532_800_000)), (Ok(1), Ok(TimeToLive::MAX_MILLIS)));
        for asked in [0, -1, i128::from(i64::MIN), 315_532_800_001, i128::from(u64::MAX)] {
            assert_eq!(millis(asked), Err(TimeToLiveError { asked }));
        }
        let said = TimeToLiveError { asked: -5 }.to_string();
        assert_eq!(said, "a key expires in 1 to 315532800000 ms (10 years), not in -5");
    }
}
