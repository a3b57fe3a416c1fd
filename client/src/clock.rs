//! The only place where the client reads a clock.

use rustix::time::{ClockId, clock_gettime};

use geolock_api::time::Instant;

/// A clock that keeps running during suspend: a client that slept past the end of its lease has to notice.
#[cfg(any(target_os = "linux", target_os = "android"))]
const MONOTONIC: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const MONOTONIC: ClockId = ClockId::Monotonic;

pub(super) fn now() -> Instant {
    let reading = clock_gettime(MONOTONIC);
    // Seconds since boot are never negative, and the sum overflows after 584 years without a reboot.
    let nanos = (reading.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(reading.tv_nsec as u64);
    Instant::from_nanos(nanos)
}
