//! Plans in which commits wait for a majority.

use crate::base::rng::Rng;
use crate::sim::failure::FaultKind;
use crate::sim::plan::{MS, Plan, TxnPlan, general_net};

impl Plan {
    /// Many commits wait for a majority, among cut links, crashes and lost disks.
    pub(super) fn majority(self, rng: &mut Rng) -> Plan {
        let mut plan = self.transactions();
        plan.dcs = *rng.pick(&[3, 3, 3, 5, 2, 4]);
        plan.founders = plan.dcs;
        plan.net.delays = general_net(rng, plan.dcs).delays;
        plan.load.clients = vec![3; usize::from(plan.dcs)];
        plan.load.shared_percent = vec![30; usize::from(plan.dcs)];
        plan.faults.push((FaultKind::CutPair, 2_000 * MS));
        plan.faults.push((FaultKind::Isolate, 4_000 * MS));
        if plan.dcs > 2 && rng.percent(50) {
            plan.faults.push((FaultKind::DiskLost, 4_000 * MS));
            plan.max_lease_ttl = 2_000 * MS;
            plan.disk.is_copied = true;
        }
        plan.cut = 800 * MS;
        plan.heartbeat = 200 * MS;
        plan.peer_timeout = 1_000 * MS;
        plan.txns = TxnPlan {
            majority_percent: 50,
            majority_wait: *rng.pick(&[50 * MS, 1_000 * MS, 10_000 * MS]),
            old_links: rng.percent(25),
            locked_percent: 30,
            ..TxnPlan::some()
        };
        plan
    }
}
