//! Clients that downgrade what they hold.

use std::time::Duration;

use crate::replica::call::IdempotencyKey;
use crate::sim::client::Timer;
use crate::sim::world::{Action, World};

impl World {
    /// Decides if a client downgrades a new grant, before it is half over.
    pub(super) fn plan_downgrade(&mut self, client: usize, key: IdempotencyKey) {
        if self.plan.habits.downgrade_percent == 0
            || !self.chance.others.percent(self.plan.habits.downgrade_percent)
        {
            return;
        }
        let half = self.plan.load.hold / 2;
        let at = self.now + self.chance.others.duration(Duration::ZERO, half);
        self.queue.push(at, Action::Client { client, timer: Timer::Downgrade(key) });
    }
}
