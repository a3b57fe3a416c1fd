//! Plans with a high load, of clocks or of everything at once.

use std::time::Duration;

use crate::base::rng::Rng;
use crate::lock_state::HoldRule;
use crate::sim::failure::FaultKind;
use crate::sim::plan::{Habits, LoadPlan, MS, Plan};

impl Plan {
    pub(super) fn clocks(mut self, rng: &mut Rng) -> Plan {
        self.faults = vec![
            (FaultKind::WallJump, 700 * MS),
            (FaultKind::ClientDisconnects, 2_000 * MS),
            (FaultKind::LinkReset, 2_000 * MS),
        ];
        // The effects of timers have to be in the log before a checkpoint reads the state, however late the
        // timer.
        self.disk.checkpoint_every = Some(300 * MS);
        self.disk.checkpoint_before_timer = true;
        self.clock.drift_ppm = 10_000;
        self.clock.jump = Duration::from_secs(2 * 3_600);
        self.load.hot_locks = 4;
        self.load.hold = 500 * MS;
        // A client that lost its session keeps its lock until the lease is over, some 4 s: five of these may
        // be in front.
        self.max_wait = Some(20_000 * MS);
        if rng.percent(50) {
            self.clock.falls_behind = Some(self.trouble / 4);
            // Requests that need that server wait for it; `check_spared` judges the rest.
            self.max_wait = None;
        }
        self
    }

    /// Locks with a home, which come and go, also within states of other datacenters.
    pub(super) fn homed(mut self) -> Plan {
        self.faults.push((FaultKind::ClientDies, 3_000 * MS));
        self.load.homed_percent = 80;
        self.load.shared_percent = vec![40; 3];
        self.load.hot_percent = 50;
        self.load.think = 60 * MS;
        self.hold = vec![HoldRule { idle_return_after: 1_000 * MS, ..HoldRule::default() }];
        self
    }

    /// Crowds of waiters: the number of rows that a step examines must not grow with them.
    pub(super) fn crowds(mut self) -> Plan {
        self.faults = vec![
            (FaultKind::Crash, self.trouble / 2),
            (FaultKind::LinkReset, 2_000 * MS),
            (FaultKind::ClientDisconnects, self.trouble / 2),
        ];
        self.net.delays.iter_mut().for_each(|(_, delay)| *delay /= 8);
        (self.net.reconnect, self.down) = (30 * MS, 300 * MS);
        self.disk.checkpoint_every = Some(2_000 * MS);
        self.load = LoadPlan {
            clients: vec![2; 3],
            hot_locks: 2,
            shared_percent: vec![30; 3],
            think: 300 * MS,
            hold: 400 * MS,
            ..self.load
        };
        self.habits = Habits { crowd: 2_500, ..Habits::NONE };
        self
    }

    /// All kinds of faults, each now and then, and as much load as leaves room for them.
    pub(super) fn busy(mut self) -> Plan {
        let every = |kind| match kind {
            FaultKind::Crash | FaultKind::Isolate | FaultKind::Split | FaultKind::DiskFull => {
                self.trouble / 3
            }
            FaultKind::CrashAll | FaultKind::Pause => self.trouble / 2,
            _ => self.trouble / 8,
        };
        self.faults = FaultKind::ALL.into_iter().map(|kind| (kind, every(kind))).collect();
        self.net.delays.iter_mut().for_each(|(_, delay)| *delay /= 8);
        self.net.reconnect = 100 * MS;
        (self.down, self.cut) = (500 * MS, 500 * MS);
        self.heartbeat = 200 * MS;
        self.peer_timeout = 1_000 * MS;
        self.clock.drift_ppm = 10_000;
        self.clock.jump = 1_000 * MS;
        self.load = LoadPlan {
            clients: vec![4; 3],
            hot_locks: 3,
            cold_locks: 60,
            hot_percent: 3,
            home_percent: 91,
            think: 80 * MS,
            hold: 5 * MS,
            at_most_percent: 10,
            at_most: 500 * MS,
            cancel_percent: 2,
            concurrent: 3,
            ..self.load
        };
        self
    }
}
