//! Plans in which disks lose durable data.

use std::time::Duration;

use crate::base::rng::Rng;
use crate::sim::failure::FaultKind;
use crate::sim::plan::{LoadPlan, MS, Plan, TxnPlan};

impl Plan {
    /// Disks are found empty, rolled back or restored, among crashes and lost links. In plans with empty
    /// disks only, wall clocks are also far ahead at some starts: the server then does not know the readings
    /// that it has handed out. Plans with copies have right clocks, because a copy continues from the numbers
    /// of a wrong clock, which would be used twice once the clock is right again.
    pub(super) fn disks(mut self, rng: &mut Rng) -> Plan {
        let kinds: &[FaultKind] = match rng.below(6) {
            0 => &[FaultKind::DiskLost],
            1 => &[FaultKind::DiskRestored],
            2 => &[FaultKind::DiskRestored, FaultKind::DiskLost],
            3 => &FaultKind::DISKS,
            _ => &[FaultKind::DiskRolledBack],
        };
        let often = 2_500 * MS * kinds.len() as u32;
        self.faults = kinds.iter().map(|kind| (*kind, often)).collect();
        self.faults.extend([
            (FaultKind::Crash, 3_000 * MS),
            (FaultKind::LinkReset, 1_500 * MS),
            (FaultKind::CutPair, 4_000 * MS),
            (FaultKind::ClientDisconnects, 2_000 * MS),
        ]);
        self.net.delays.iter_mut().for_each(|(_, delay)| *delay /= 8);
        self.net.reconnect = 30 * MS;
        (self.down, self.cut) = (300 * MS, 800 * MS);
        self.heartbeat = 200 * MS;
        self.peer_timeout = 1_000 * MS;
        self.max_lease_ttl = 2_000 * MS;
        self.disk.sync = 5 * MS;
        self.disk.slow_percent = 20;
        self.disk.slow = 100 * MS;
        self.disk.checkpoint_every = Some(1_500 * MS);
        self.disk.is_copied = true;
        self.disk.away_percent = *rng.pick(&[0, 30, 100]);
        if kinds == [FaultKind::DiskLost] {
            self.clock.restart_ahead = Duration::from_secs(12);
        }
        self.load = LoadPlan {
            hot_locks: 4,
            shared_percent: vec![30; 3],
            hold: 300 * MS,
            ttl: (1_000 * MS, 2_000 * MS),
            concurrent: 2,
            distance: MS,
            ..self.load
        };
        self.max_log = *rng.pick(&[super::LARGE, 20_000]);
        self.txns = TxnPlan { percent: 50, plain_percent: 60, least_commits: 20, ..TxnPlan::some() };
        self
    }

    /// Disks are rolled back or restored while prefixes get homes: the disk lacks decisions that the others
    /// know, and that its own entries have followed. No disk is found empty: the server of a cluster with
    /// decisions would be another one, and its datacenter is evicted.
    pub(super) fn ruled_disks(self, rng: &mut Rng) -> Plan {
        let mut plan = self.disks(rng);
        let often = plan.faults.first().map_or(2_500 * MS, |(_, often)| *often);
        let kinds = [FaultKind::DiskRolledBack, FaultKind::DiskRestored];
        let keeps = |(kind, _): &(FaultKind, Duration)| !FaultKind::DISKS.contains(kind);
        plan.faults.retain(keeps);
        plan.faults.insert(0, (*rng.pick(&kinds), often));
        plan.clock.restart_ahead = Duration::ZERO;
        plan.founders = plan.dcs;
        plan.rules = *rng.pick(&[2, 4, 8]);
        plan.hold.iter_mut().for_each(|rule| rule.idle_return_after = *rng.pick(&[500, 3_000]) * MS);
        plan
    }

    /// Returns how long a server whose disk was lost or rolled back may take until it serves, once it can
    /// reach all; it may start again meanwhile. A server that never joined, because it crashed again and
    /// again, takes its own disk for a lost one.
    pub fn doubts_for(&self) -> Duration {
        if self.disk.is_copied { 3 * self.max_lease_ttl } else { self.max_lease_ttl }
    }
}
