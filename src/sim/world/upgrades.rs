//! Servers that are restarted one after the other as the next release, while members come and go.

use crate::base::wire::NEXT_VERSION;
use crate::membership::Command;
use crate::sim::failure::FailureKind;
use crate::sim::world::{Action, World};
use geolock_api::names::DcId;

impl World {
    /// Plans when each server is upgraded. The founders come last, so that members are upgraded while others
    /// join.
    pub(super) fn plan_upgrades(&mut self) {
        let Some(between) = self.plan.upgrade else { return };
        for (number, node) in (1..).zip(self.nodes.iter().rev()) {
            let after = self.plan.trouble / 8 + between * number;
            self.queue.push(self.now + after.min(self.plan.trouble), Action::Upgrade { node: node.dc });
        }
    }

    /// A server stops, if it runs, and is the next release from its next start on.
    pub(super) fn on_upgrade(&mut self, dc: DcId) {
        self.nodes[dc.index()].will_speak(NEXT_VERSION);
        self.tally.upgrades += 1;
        if self.is_running(dc) {
            self.crash(dc);
            self.restart_later(dc, self.plan.down);
        }
    }

    /// Checks that all members speak the version that the cluster uses from now on.
    pub(super) fn check_version(&mut self, command: &Command) {
        let Command::Version { version } = command else { return };
        let lags = |dc: &DcId| self.node(*dc).speaks() < *version;
        if let Some(dc) = self.control.config.slots().member_set().iter().find(lags) {
            let what = format!("the cluster uses version {version}, and {dc} does not speak it");
            self.fail(FailureKind::Contract, what);
        }
    }

    /// Returns true while the cluster does not use the version that all servers will speak at the end.
    pub(in crate::sim) fn lacks_version(&self) -> bool {
        self.plan.upgrade.is_some() && self.control.config.version() < NEXT_VERSION
    }
}
