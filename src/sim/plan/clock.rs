//! The clocks of one seed.

use std::time::Duration;

use super::MS;
use crate::base::rng::Rng;

#[derive(Clone, Debug)]
pub struct ClockPlan {
    /// Maximum drift of a monotonic clock, fast or slow.
    pub drift_ppm: i64,
    /// Maximum offset of a wall clock at a start.
    pub skew: Duration,
    /// Maximum jump of a wall clock while its node runs.
    pub jump: Duration,
    /// Maximum by which a wall clock is ahead at a restart. Beyond `max_clock_skew`, healing takes as long.
    pub restart_ahead: Duration,
    /// Maximum by which a wall clock is behind at a restart.
    pub restart_behind: Duration,
    /// Now and then a server restarts far behind all others, and stays so for a while: average interval.
    pub falls_behind: Option<Duration>,
}

impl ClockPlan {
    pub const RIGHT: ClockPlan = ClockPlan {
        drift_ppm: 0,
        skew: Duration::ZERO,
        jump: Duration::ZERO,
        restart_ahead: Duration::ZERO,
        restart_behind: Duration::ZERO,
        falls_behind: None,
    };

    /// Returns true if all wall clocks are right, at every start.
    pub fn is_right(&self) -> bool {
        let most = [self.skew, self.jump, self.restart_ahead, self.restart_behind];
        most.iter().all(Duration::is_zero) && self.falls_behind.is_none()
    }

    pub fn general(rng: &mut Rng) -> ClockPlan {
        let skewed = rng.percent(70);
        let hours = Duration::from_secs(2 * 3_600);
        ClockPlan {
            drift_ppm: *rng.pick(&[0, 100, 10_000]),
            skew: if skewed { 300 * MS } else { Duration::ZERO },
            jump: *rng.pick(&[1_000 * MS, 120_000 * MS, hours]),
            restart_ahead: *rng.pick(&[Duration::ZERO, Duration::ZERO, 1_000 * MS, 30_000 * MS]),
            restart_behind: *rng.pick(&[Duration::ZERO, 2_000 * MS, hours]),
            falls_behind: None,
        }
    }
}
