//! Requests for enough of many locks. In some seeds there are no faults: then no request may wait for long.

use std::time::Duration;

use crate::base::rng::Rng;
use crate::sim::failure::FaultKind;
use crate::sim::plan::{Habits, MS, Plan};

impl Plan {
    pub(super) fn enough(mut self, rng: &mut Rng) -> Plan {
        if rng.percent(70) {
            self.faults = vec![
                (FaultKind::Crash, 3_000 * MS),
                (FaultKind::LinkReset, 1_000 * MS),
                (FaultKind::CutPair, 4_000 * MS),
                (FaultKind::ClientDies, 3_000 * MS),
                (FaultKind::ClientDisconnects, 800 * MS),
            ];
        }
        let most = *rng.pick(&[5, 40]);
        self.net.delays.iter_mut().for_each(|(_, delay)| *delay = *rng.pick(&[5, most]) * MS);
        self.net.encoded = rng.percent(10);
        (self.down, self.cut) = (300 * MS, 1_500 * MS);
        (self.heartbeat, self.peer_timeout) = (100 * MS, 600 * MS);
        self.disk.sync = 2 * MS;
        self.disk.checkpoint_every = *rng.pick(&[None, Some(1_500 * MS)]);
        self.load.clients = vec![rng.between(2, 4) as usize; 3];
        self.load.hot_locks = *rng.pick(&[3, 6, 12]);
        self.load.max_locks = *rng.pick(&[1, 3]);
        self.load.homed_percent = *rng.pick(&[0, 50]);
        self.load.shared_percent = (0..3).map(|_| *rng.pick(&[0, 30])).collect();
        self.load.think = 10 * MS;
        self.load.hold = *rng.pick(&[10 * MS, 100 * MS, 800 * MS]);
        self.load.distance = *rng.pick(&[Duration::ZERO, MS]);
        self.load.try_percent = *rng.pick(&[0, 20]);
        self.load.at_most_percent = *rng.pick(&[0, 30]);
        self.load.at_most = 500 * MS;
        self.load.cancel_percent = *rng.pick(&[0, 20]);
        self.load.release_on_disconnect_percent = *rng.pick(&[0, 50]);
        self.load.ttl = (2_000 * MS, 4_000 * MS);
        self.habits.enough_percent = *rng.pick(&[40, 70, 100]);
        self.habits.amend_percent = *rng.pick(&[0, 50, 80]);
        if self.faults.is_empty() {
            self.max_wait = Some(15_000 * MS);
        }
        self
    }

    /// Requests for hundreds of locks, and for enough of up to 3 000. The number of rows that a step examines
    /// must not grow with the square of that.
    pub(super) fn many_locks(mut self, rng: &mut Rng) -> Plan {
        if rng.percent(60) {
            self.faults = vec![
                (FaultKind::Crash, 5_000 * MS),
                (FaultKind::LinkReset, 2_000 * MS),
                (FaultKind::CutPair, 4_000 * MS),
                (FaultKind::ClientDies, 4_000 * MS),
                (FaultKind::ClientDisconnects, 2_000 * MS),
            ];
        }
        let most = *rng.pick(&[5, 20]);
        self.net.delays.iter_mut().for_each(|(_, delay)| *delay = *rng.pick(&[5, most]) * MS);
        (self.down, self.cut) = (300 * MS, 1_500 * MS);
        (self.heartbeat, self.peer_timeout) = (200 * MS, 1_000 * MS);
        self.load.clients = vec![1; 3];
        self.load.hot_locks = *rng.pick(&[1_000, 3_000]);
        self.load.max_locks = *rng.pick(&[3, 400]);
        self.load.homed_percent = *rng.pick(&[0, 0, 50]);
        self.load.think = 1_500 * MS;
        self.load.hold = *rng.pick(&[50 * MS, 500 * MS]);
        self.load.concurrent = *rng.pick(&[1, 2]);
        self.load.at_most_percent = *rng.pick(&[0, 30]);
        self.load.at_most = 800 * MS;
        self.load.cancel_percent = *rng.pick(&[0, 20]);
        self.load.ttl = (2_000 * MS, 4_000 * MS);
        self.habits = Habits::NONE;
        self.habits.enough_percent = *rng.pick(&[60, 90]);
        self.habits.amend_percent = *rng.pick(&[0, 30]);
        self
    }
}
