//! The only place where this server reads a clock for the machine.

use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

use crate::base::time::{Instant, Now, Wall};
use crate::testkit::faults;

/// A clock that runs on during suspend: a lease must not outlive its TTL because its server was suspended.
#[cfg(any(target_os = "linux", target_os = "android"))]
const MONOTONIC: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const MONOTONIC: ClockId = ClockId::Monotonic;

/// Reads the monotonic clock and the wall clock.
pub(super) fn now() -> Now {
    let reading = clock_gettime(MONOTONIC);
    // Seconds since boot are never negative, and the sum overflows after 584 years without a reboot.
    let nanos = (reading.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(reading.tv_nsec as u64);
    // A wall clock before 1970 counts as 1970: the hybrid clock follows it slowly, if at all.
    #[expect(clippy::disallowed_methods, reason = "this is where the edge reads it")]
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let wall = u64::try_from(wall.as_millis()).unwrap_or(u64::MAX);
    Now { mono: Instant::from_nanos(faults::mono(nanos)), wall: Wall(faults::wall(wall)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_goes_back() {
        let readings: Vec<Now> = (0..1000).map(|_| now()).collect();
        assert!(readings.is_sorted_by_key(|now| now.mono));
        assert!(readings[0].wall.0 > 1_700_000_000_000, "milliseconds, and past 2023");
    }
}
