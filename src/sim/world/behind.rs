//! Servers whose clock is far behind all others for a while: they restart so, and their clock is set right
//! without a restart. Meanwhile they hold back what the others write. So they must say so, get no parts, and
//! block nothing that does not need them.

use std::time::Duration;

use crate::sim::failure::FailureKind;
use crate::sim::oracle::HolderId;
use crate::sim::world::{Action, Phase, World};
use geolock_api::names::{DcId, Mode};

/// Time after its start at which all others know that a server is behind: its links are up, it has heard two
/// heartbeats, and the others have heard it.
const KNOWN_AFTER: Duration = Duration::from_secs(4);
/// Longest wait for a lock that nobody holds and that does not need the server that is behind.
const SPARED_WAIT: Duration = Duration::from_secs(4);
/// Least and most by which a server is behind, far above `max_clock_skew`, in milliseconds.
const BEHIND_MS: (u64, u64) = (30_000, 7_200_000);
/// Shortest and longest time for which it is.
const LASTS: (Duration, Duration) = (Duration::from_secs(12), Duration::from_secs(16));

impl World {
    pub(super) fn plan_clocks(&mut self) {
        if let Some(every) = self.plan.clock.falls_behind {
            let at = self.now + self.chance.others.around(every);
            self.queue.push(at, Action::FallBehind);
        }
    }

    pub(super) fn on_fall_behind(&mut self) {
        let Some(every) = self.plan.clock.falls_behind.filter(|_| self.phase == Phase::Trouble) else {
            return;
        };
        let rng = &mut self.chance.others;
        let (by, lasts) = (rng.between(BEHIND_MS.0, BEHIND_MS.1), rng.duration(LASTS.0, LASTS.1));
        let dc = self.nodes[rng.index(self.nodes.len())].dc;
        self.queue.push(self.now + rng.around(every), Action::FallBehind);
        if self.is_running(dc) && self.nodes.iter().all(|node| node.behind_ms.is_none()) {
            self.trace.line(self.now, dc, || format!("restarts {by} ms behind"));
            self.nodes[dc.index()].behind_ms = Some(by as i64);
            self.crash(dc);
            self.restart_later(dc, self.plan.down);
            self.queue.push(self.now + lasts, Action::SetClock { node: dc });
        }
    }

    /// An operator sets the wall clock of a server right.
    pub(super) fn set_clock_right(&mut self, dc: DcId) {
        let node = &mut self.nodes[dc.index()];
        node.behind_ms = None;
        node.clock.set_right();
    }

    /// Returns true if a server has been far behind for so long that all others know.
    pub(super) fn is_known_behind(&self, dc: DcId) -> bool {
        let node = self.node(dc);
        node.behind_ms.is_some() && node.replica.is_some() && self.now.since(node.started) > KNOWN_AFTER
    }

    /// A server that is far behind says so.
    pub(super) fn check_behind(&mut self) {
        for dc in self.members().iter().filter(|dc| self.is_known_behind(*dc)) {
            if self.node(dc).inspect().is_some_and(|replica| replica.status().clock_behind_ms == 0) {
                let what = format!("{dc} is far behind all others and does not know");
                return self.fail(FailureKind::Contract, what);
            }
        }
    }

    /// A request that needs nothing of a server that is behind waits only for those that hold its locks.
    pub(super) fn check_spared(&mut self, id: HolderId) {
        if self.plan.clock.falls_behind.is_none() {
            return;
        }
        if !self.is_spared(id) {
            self.at_home_since.remove(&id);
            return;
        }
        let since = *self.at_home_since.entry(id).or_insert(self.now);
        if self.now.since(since) > SPARED_WAIT {
            let what =
                format!("{id:?} waits since {since} for locks that nobody holds, while a clock is behind");
            self.fail(FailureKind::Starved, what);
        }
    }

    /// Returns true if a server is behind, all others serve, and nobody holds what this request wants, which
    /// needs no part of that server.
    fn is_spared(&self, id: HolderId) -> bool {
        let Some(behind) = self.members().iter().find(|dc| self.is_known_behind(*dc)) else { return false };
        let client = &self.clients[id.client];
        let serves = |node: &super::Node| {
            node.inspect().is_some_and(|replica| replica.away().iter().all(|dc| dc == behind))
        };
        let others_serve = self.nodes.iter().filter(|node| node.dc != behind).all(serves);
        let Some(replica) = self.node(client.dc).inspect() else { return false };
        client.dc != behind
            && client.is_ready()
            && others_serve
            && client.requests()[&id.key].order.wants.locks().iter().all(|(lock, mode)| {
                let needs = |part: &DcId| *mode == Mode::Exclusive || *part == client.dc;
                let mut parts = self.members().iter().filter(needs);
                parts.all(|part| replica.owner_of(lock, part) != behind)
                    && !self.holders.conflicts(lock, *mode)
            })
    }
}
