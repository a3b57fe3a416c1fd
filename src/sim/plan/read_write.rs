//! Readers and writers: holders that downgrade, beside readers and writers that wait, here and elsewhere.

use std::time::Duration;

use crate::base::rng::Rng;
use crate::sim::failure::FaultKind;
use crate::sim::plan::{MS, Plan};

impl Plan {
    pub(super) fn read_write(mut self, rng: &mut Rng) -> Plan {
        self.faults = vec![
            (FaultKind::Crash, 2_500 * MS),
            (FaultKind::LinkReset, 1_000 * MS),
            (FaultKind::ClientDies, 3_000 * MS),
            (FaultKind::ClientDisconnects, 800 * MS),
        ];
        self.net.delays.iter_mut().for_each(|(_, delay)| *delay = *rng.pick(&[5 * MS, 40 * MS]));
        self.net.encoded = rng.percent(10);
        self.down = 300 * MS;
        self.disk.sync = 2 * MS;
        self.disk.checkpoint_every = Some(1_500 * MS);
        self.load.clients = vec![4; 3];
        self.load.hot_locks = rng.between(1, 4) as usize;
        self.load.max_locks = *rng.pick(&[1, 2, 3]);
        self.load.homed_percent = *rng.pick(&[0, 50]);
        self.load.shared_percent = (0..3).map(|_| *rng.pick(&[20, 50, 80])).collect();
        self.load.think = 10 * MS;
        self.load.hold = *rng.pick(&[20 * MS, 300 * MS, 1_200 * MS]);
        self.load.distance = *rng.pick(&[Duration::ZERO, MS, 20 * MS]);
        self.load.at_most_percent = *rng.pick(&[0, 30]);
        self.load.at_most = 300 * MS;
        self.load.cancel_percent = *rng.pick(&[0, 20]);
        self.load.release_on_disconnect_percent = *rng.pick(&[0, 50]);
        self.load.ttl = (2_000 * MS, 4_000 * MS);
        self.habits.downgrade_percent = *rng.pick(&[60, 90]);
        self.habits.watchers = *rng.pick(&[0, 2]);
        self
    }
}
