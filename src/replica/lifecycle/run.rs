//! The beginning of this run.

use crate::base::time::Instant;

/// The beginning of this run.
#[derive(Default)]
pub(in crate::replica) struct Run {
    /// Time of the first step.
    began_at: Option<Instant>,
    /// The clock at the start, in milliseconds since the Unix epoch.
    clock_ms: u64,
}

impl Run {
    #[inline]
    pub(super) fn has_begun(&self) -> bool {
        self.began_at.is_some()
    }

    pub(super) fn begin(&mut self, now: Instant) {
        assert!(!self.has_begun(), "a run begins once");
        self.began_at = Some(now);
    }

    /// Nothing was stamped yet, and the clock is this.
    pub fn set_clock(&mut self, clock_ms: u64) {
        self.clock_ms = clock_ms;
    }

    /// Returns the time of the first step; before it, the origin of time.
    pub fn began_at(&self) -> Instant {
        self.began_at.unwrap_or(Instant::ZERO)
    }

    /// Returns the clock at the start of this run, in milliseconds since the Unix epoch.
    pub fn clock_at_start_ms(&self) -> u64 {
        self.clock_ms
    }
}
