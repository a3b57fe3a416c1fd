//! A node's clocks, derived from the world's time: a monotonic clock that runs a little fast or slow from an
//! origin of its own, and a wall clock with any offset.

use std::time::Duration;

use crate::base::time::{Instant, Now, Wall};
use crate::sim::queue::Moment;

/// Reading of a wall clock without skew when the world begins, in ms since the Unix epoch.
const WALL_AT_START: i64 = 1_800_000_000_000;

/// Offset that a hybrid clock corrects by itself in a moderate time.
const MENDS_ITSELF_MS: i64 = 1_000;

const MILLION: i64 = 1_000_000;

/// The clocks of one node since its last start.
#[derive(Clone, Debug)]
pub(super) struct NodeClock {
    /// Reading of the monotonic clock at `since`.
    origin: Instant,
    since: Moment,
    /// By how much the monotonic clock runs fast, in millionths.
    drift_ppm: i64,
    /// By how much the wall clock is ahead, in ms.
    wall_ahead_ms: i64,
    /// The wall clock was off by more than [`MENDS_ITSELF_MS`] at some time since the start.
    was_ahead: bool,
    was_behind: bool,
}

impl NodeClock {
    pub fn new(origin: Instant, since: Moment, drift_ppm: i64, wall_ahead_ms: i64) -> NodeClock {
        let mut clock =
            NodeClock { origin, since, drift_ppm, wall_ahead_ms, was_ahead: false, was_behind: false };
        clock.jump(0);
        clock
    }

    pub fn drift_ppm(&self) -> i64 {
        self.drift_ppm
    }

    /// Moves the wall clock.
    pub fn jump(&mut self, by_ms: i64) {
        self.wall_ahead_ms += by_ms;
        self.was_ahead |= self.wall_ahead_ms > MENDS_ITSELF_MS;
        self.was_behind |= self.wall_ahead_ms < -MENDS_ITSELF_MS;
    }

    /// The monotonic clock shows the same until `lasts` after `now`; the wall clock runs on.
    pub fn stand_still(&mut self, now: Moment, lasts: Duration) {
        self.origin = self.mono(now);
        self.since = now + lasts;
        // The hybrid clock follows the monotonic one.
        self.was_behind |= lasts.as_millis() as i64 > MENDS_ITSELF_MS;
    }

    /// Sets the wall clock right. The node's hybrid clock follows a forward step at once if most others
    /// confirm it; a backward step only with a restart.
    pub fn set_right(&mut self) {
        self.wall_ahead_ms = 0;
    }

    /// Returns true if the wall clock was so far ahead since the start of its node that only a restart
    /// corrects the node's hybrid clock soon.
    pub fn was_ahead(&self) -> bool {
        self.was_ahead
    }

    /// Returns true if the wall clock was far off since the start of its node.
    pub fn was_wrong(&self) -> bool {
        self.was_ahead || self.was_behind
    }

    pub fn now(&self, at: Moment) -> Now {
        let wall = WALL_AT_START + (at.0 / 1_000_000) as i64 + self.wall_ahead_ms;
        Now { mono: self.mono(at), wall: Wall(wall.max(0) as u64) }
    }

    fn mono(&self, at: Moment) -> Instant {
        let passed = at.0.saturating_sub(self.since.0) as i64;
        // In two parts, so that no product is larger than 64 bits.
        let drifted = passed / MILLION * self.drift_ppm + passed % MILLION * self.drift_ppm / MILLION;
        Instant::from_nanos(self.origin.as_nanos() + (passed + drifted) as u64)
    }

    /// Returns the first moment at which the monotonic clock shows `deadline` or more; not before `since`.
    pub fn when(&self, deadline: Instant) -> Moment {
        let ahead = deadline.as_nanos().saturating_sub(self.origin.as_nanos()).min(u64::MAX / 8) as i64;
        let rate = MILLION + self.drift_ppm;
        let passed = (ahead / rate * MILLION + ahead % rate * MILLION / rate) as u64;
        // The division above rounds down, and so does `mono`: at most a few nanoseconds too early.
        let mut at = Moment(self.since.0 + passed);
        while self.mono(at) < deadline && (ahead as u64) < u64::MAX / 8 {
            at.0 += 1;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_has_come_when_the_world_says_so_and_not_before() {
        for drift in [-10_000, -3, 0, 7, 10_000] {
            let clock = NodeClock::new(Instant::from_nanos(77), Moment(1_000), drift, 0);
            for nanos in [78, 1_000, 123_456_789, 9_999_999_999] {
                let deadline = Instant::from_nanos(nanos);
                let at = clock.when(deadline);
                assert!(clock.now(at).mono >= deadline, "drift {drift}, {nanos}");
                assert!(clock.now(Moment(at.0 - 1)).mono < deadline, "drift {drift}, {nanos}");
            }
        }
    }

    #[test]
    fn the_far_future_does_not_overflow() {
        let clock = NodeClock::new(Instant::ZERO, Moment::START, -10_000, 0);
        assert!(clock.when(Instant::FAR_FUTURE) > Moment::START + Duration::from_secs(1_000_000_000));
    }

    #[test]
    fn a_clock_that_stands_still_goes_on_where_it_was() {
        let mut clock = NodeClock::new(Instant::from_nanos(77), Moment::START, 0, 0);
        let (stops, lasts) = (Moment::from_millis(40), Duration::from_millis(2_000));
        let before = clock.now(stops);
        clock.stand_still(stops, lasts);
        assert_eq!((clock.now(stops).mono, clock.now(stops + lasts).mono), (before.mono, before.mono));
        assert_eq!(clock.now(stops + lasts).wall.0, before.wall.0 + 2_000);
        assert_eq!(clock.now(stops + 2 * lasts).mono, before.mono + lasts);
        assert_eq!(clock.when(before.mono + lasts), stops + 2 * lasts);
    }

    #[test]
    fn the_wall_clock_is_off_by_its_skew() {
        let (right, ahead) = (NodeClock::new(Instant::ZERO, Moment::START, 0, 0), -250);
        let skewed = NodeClock { wall_ahead_ms: ahead, ..right.clone() };
        let at = Moment::from_millis(40);
        assert_eq!(right.now(at).wall.0 - 250, skewed.now(at).wall.0);
    }
}
