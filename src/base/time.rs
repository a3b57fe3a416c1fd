//! Time as the core sees it: values that enter with every event. No clock can be read here.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Of the client, too.
pub use geolock_api::time::{DEFAULT_LEASE_TTL, Instant, brief};

/// A reading of the wall clock: milliseconds since the Unix epoch. It may jump; only the hybrid clock reads
/// it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug, Serialize, Deserialize)]
pub struct Wall(pub u64);

/// Readings of the edge's clocks when an event was submitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Now {
    /// The monotonic clock.
    pub mono: Instant,
    /// The wall clock.
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

    /// Returns whole milliseconds.
    pub const fn millis(self) -> u64 {
        self.0
    }

    /// Returns the time to live as a duration.
    pub const fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

// A stamp plus a time to live is a stamp.
const _: () = assert!(TimeToLive::MAX_MILLIS < 1 << 40, "ten years leave most of the 48 bits");

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
    /// Before every reading.
    pub const ZERO: Timestamp = Timestamp(0);
    /// After every reading.
    pub const MAX: Timestamp = Timestamp(u64::MAX);

    /// Returns the first reading of that millisecond.
    pub const fn from_millis(millis: u64) -> Timestamp {
        debug_assert!(millis >> 48 == 0, "milliseconds of a stamp have 48 bits");
        Timestamp(millis << 16)
    }

    /// Returns the reading with these bits.
    pub const fn from_raw(raw: u64) -> Timestamp {
        Timestamp(raw)
    }

    /// Returns all bits.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Returns whole milliseconds.
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

#[cfg(test)]
mod tests {
    use super::*;

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
