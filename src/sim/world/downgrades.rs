//! Clients that downgrade what they hold.

use std::time::Duration;

use crate::replica::call::IdempotencyKey;
use crate::sim::client::Timer;
use crate::sim::oracle::HolderId;
use crate::sim::world::{Action, World};
use geolock_api::names::LockName;

impl World {
    /// A client holds a lock shared from now on.
    pub(super) fn on_downgrades(&mut self, holder: HolderId, lock: &LockName) {
        self.tally.downgrades += 1;
        let what = || format!("downgrades {lock} of {}", holder.key);
        self.trace.line(self.now, format_args!("c{}", holder.client), what);
        self.holders.downgrade(self.now, holder, lock);
    }

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
