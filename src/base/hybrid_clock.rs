//! The hybrid logical clock of a datacenter (Kulkarni et al., "Logical Physical Clocks", 2014).
//!
//! Its physical part is the wall clock at start plus the monotonic clock, slewed slowly towards the wall
//! clock: a jump of the wall clock does not move it. A difference of up to 1 s is corrected at 1 % of the
//! elapsed time, a forward difference beyond that at 10 %, a backward one always at 1 %, so that the clock
//! never stands still. A difference beyond 1 s is reported once. A forward step that other clocks confirm may
//! be followed at once: no reading is repeated by that. The readings are strictly increasing and
//! never behind a received one.

use std::time::Duration;

use crate::base::time::{Instant, Now, Timestamp};

/// The hybrid logical clock.
#[derive(Clone, Debug)]
pub struct HybridClock {
    /// The physical part, in nanoseconds since the Unix epoch, as it was at `at`.
    physical: u64,
    at: Instant,
    last: Timestamp,
    far_off: bool,
}

const JUMP: i64 = 1_000_000_000;

impl HybridClock {
    /// Returns a clock that starts above `floor`.
    pub fn new(now: Now, floor: Timestamp) -> HybridClock {
        HybridClock {
            physical: now.wall.0.saturating_mul(1_000_000),
            at: now.mono,
            last: floor,
            far_off: false,
        }
    }

    /// Advances to `now`. If the wall clock has jumped, returns once by how many milliseconds it is ahead.
    pub fn advance(&mut self, now: Now) -> Option<i64> {
        let before = self.physical;
        let elapsed = now.mono.as_nanos().saturating_sub(self.at.as_nanos());
        self.at = now.mono.max(self.at);
        self.physical = self.physical.saturating_add(elapsed);
        let error = now.wall.0.saturating_mul(1_000_000).wrapping_sub(self.physical) as i64;
        let most = if error > JUMP { elapsed / 10 } else { elapsed / 100 } as i64;
        self.physical = self.physical.saturating_add_signed(error.clamp(-most, most));

        debug_assert!(self.physical >= before, "the physical part never goes back");
        let far_off = error.unsigned_abs() > JUMP as u64;
        let jumped = far_off && !self.far_off;
        self.far_off = far_off;
        jumped.then_some(error / 1_000_000)
    }

    /// Follows a forward step of the wall clock at once, by at most `most_ms` milliseconds: for a step that
    /// other clocks confirm. Returns by how many milliseconds the physical part was set forward; 0 if that
    /// would be no step.
    pub fn step_forward(&mut self, now: Now, most_ms: u64) -> u64 {
        let ahead = now.wall.0.saturating_sub(self.physical_millis());
        let by_ms = ahead.min(most_ms);
        if by_ms <= JUMP as u64 / 1_000_000 {
            return 0;
        }
        self.physical = self.physical.saturating_add(by_ms * 1_000_000);
        debug_assert!(self.physical_millis() <= now.wall.0, "a step ends at the wall clock, not beyond it");
        by_ms
    }

    /// Sets the physical part to the wall clock at once: for a clock that no reading was taken from.
    pub fn set(&mut self, now: Now) {
        self.physical = now.wall.0.saturating_mul(1_000_000);
        self.at = now.mono.max(self.at);
        self.far_off = false;
    }

    /// Returns a new reading, above all earlier ones.
    pub fn tick(&mut self) -> Timestamp {
        let before = self.last;
        self.last = before.next().max(Timestamp::from_millis(self.physical_millis()));
        debug_assert!(self.last > before || before == Timestamp::MAX, "no reading is repeated");
        self.last
    }

    /// Raises the clock: further readings are above `seen`.
    pub fn observe(&mut self, seen: Timestamp) {
        self.last = self.last.max(seen);
    }

    /// Returns the latest reading or observed stamp, whichever is higher.
    pub fn latest(&self) -> Timestamp {
        self.last
    }

    /// Returns the physical part, in milliseconds since the Unix epoch.
    pub fn physical_millis(&self) -> u64 {
        self.physical / 1_000_000
    }

    /// Returns true while the clock follows a step of the wall clock.
    pub fn is_following_step(&self) -> bool {
        self.far_off
    }

    /// Returns a bound for the readings in the next `ahead`, unless a higher stamp is observed.
    pub fn bound(&self, ahead: Duration) -> Timestamp {
        let bound = self.last.max(Timestamp::from_millis(self.physical_millis())).plus(ahead);
        debug_assert!(bound >= self.last, "a bound is above all readings so far");
        bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::Wall;

    fn now(mono_ms: u64, wall_ms: u64) -> Now {
        Now { mono: Instant::ZERO + Duration::from_millis(mono_ms), wall: Wall(wall_ms) }
    }

    #[test]
    fn readings_strictly_increase_and_stay_above_what_was_observed() {
        let mut clock = HybridClock::new(now(0, 1_000), Timestamp::ZERO);
        let first = clock.tick();
        assert_eq!(first, Timestamp::from_millis(1_000));
        assert_eq!(clock.tick(), first.next());
        clock.observe(Timestamp::from_millis(5_000));
        assert_eq!(clock.tick(), Timestamp::from_millis(5_000).next());
    }

    #[test]
    fn a_jump_of_the_wall_clock_is_followed_slowly_and_reported_once() {
        let mut clock = HybridClock::new(now(0, 1_000_000), Timestamp::ZERO);
        assert_eq!(clock.advance(now(1_000, 1_061_000)), Some(60_000));
        assert_eq!(clock.physical_millis(), 1_001_100);
        assert_eq!(clock.advance(now(2_000, 1_062_000)), None);
        assert_eq!(clock.physical_millis(), 1_002_200);
    }

    #[test]
    fn a_forward_step_that_others_confirm_is_followed_as_far_as_they_are() {
        let mut clock = HybridClock::new(now(0, 1_000_000), Timestamp::ZERO);
        let before = clock.tick();
        assert_eq!(clock.step_forward(now(0, 1_000_900), u64::MAX), 0, "that is no step");
        assert_eq!(clock.step_forward(now(0, 1_060_000), 40_000), 40_000);
        assert_eq!(clock.step_forward(now(0, 1_060_000), u64::MAX), 20_000);
        assert_eq!(clock.step_forward(now(0, 900_000), u64::MAX), 0, "it never goes back");
        assert_eq!(clock.physical_millis(), 1_060_000);
        assert!(clock.tick() > before);
    }

    #[test]
    fn a_wall_clock_set_back_slows_it_by_one_percent() {
        let mut clock = HybridClock::new(now(0, 1_000_000), Timestamp::ZERO);
        assert_eq!(clock.advance(now(1_000, 0)), Some(-1_001_000));
        assert_eq!(clock.physical_millis(), 1_000_990);
    }
}
