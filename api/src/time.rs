//! Time as values: no clock is read here.

use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// Time to live of a lease whose client asks for none, unless the server permits only a shorter one.
pub const DEFAULT_LEASE_TTL: Duration = Duration::from_secs(10);

/// A point on the monotonic clock of one process, in nanoseconds since an origin that the reader of the clock
/// chooses. The clock continues during suspend. The value has no meaning in another process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Instant(u64);

impl Instant {
    /// The origin.
    pub const ZERO: Instant = Instant(0);
    /// A deadline that never comes.
    pub const FAR_FUTURE: Instant = Instant(u64::MAX);

    /// Returns the point that many nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Instant {
        Instant(nanos)
    }

    /// Returns the nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time since `earlier`; zero if `earlier` is later.
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
}
