//! Operators: they take locks by force, read the audit, and ask for descriptions and status.

use std::sync::Arc;

use crate::base::capacity::{DiskSpace, Load};
use crate::replica::Event;
use crate::replica::call::{Call, Phase as ServerPhase, Refusal, Reply};
use crate::replica::force_release::{ForceRelease, ForceReleased};
use crate::sim::failure::FailureKind;
use crate::sim::world::{Action, Phase, World};
use geolock_api::names::{DcId, ForceReason, Position};

impl World {
    pub(super) fn plan_operators(&mut self) {
        if let Some(every) = self.plan.habits.overload_every {
            let at = self.now + self.chance.others.around(every);
            self.queue.push(at, Action::Overload);
        }
        if let Some(every) = self.plan.habits.force_every {
            let at = self.now + self.chance.habits.around(every);
            self.queue.push(at, Action::Force);
        }
    }

    /// An operator takes a lock by force, mostly a held one, and mostly in the datacenter of the holder.
    pub(super) fn on_force(&mut self) {
        let Some(every) = self.plan.habits.force_every else { return };
        if self.phase == Phase::Healing {
            return;
        }
        let rng = &mut self.chance.habits;
        self.queue.push(self.now + rng.around(every), Action::Force);
        let elsewhere = self.nodes[rng.index(self.nodes.len())].dc;
        let Some((lock, dc)) = self.holders.some_held(rng) else { return };
        let dc = if rng.percent(90) { dc } else { elsewhere };
        if !self.is_running(dc) || self.node(dc).is_paused() {
            return;
        }
        let reason = ForceReason::new("somebody has to").expect("it is a line of text");
        let force = ForceRelease { lock, operator: Arc::from("operator"), reason };
        self.operator_call(dc, self.now.0, Call::ForceRelease(force));
    }

    /// Overloads some server for a while: it accepts no new calls.
    pub(super) fn on_overload(&mut self) {
        let Some(every) = self.plan.habits.overload_every.filter(|_| self.phase != Phase::Healing) else {
            return;
        };
        let rng = &mut self.chance.others;
        let (dc, lasts) = (self.nodes[rng.index(self.nodes.len())].dc, rng.around(every / 3));
        self.queue.push(self.now + rng.around(every), Action::Overload);
        self.queue.push(self.now + lasts, Action::Relief { node: dc });
        if !self.node(dc).is_paused() {
            self.step(dc, Event::Load { load: Load::TooMuch });
        }
    }

    pub(super) fn on_relief(&mut self, dc: DcId) {
        self.step(dc, Event::Load { load: Load::Fits });
    }

    /// Checks that holders from before a restart keep others from the locks for at most two times to live.
    pub(super) fn check_graces(&mut self) {
        let most = 2 * self.plan.load.ttl.1;
        for dc in self.members().iter() {
            let (now, node) = (self.now, &mut self.nodes[dc.index()]);
            let phase = node.inspect().map(|replica| replica.phase());
            let is_in_grace = matches!(phase, Some(ServerPhase::Grace { .. }));
            if !is_in_grace || node.is_paused() {
                node.grace_since = None;
                continue;
            }
            let since = *node.grace_since.get_or_insert(now);
            // Clocks may run slow by 1 %.
            if now.since(since) > most + most / 50 {
                let what =
                    format!("{dc} has been in grace since {since}; leases live for {:?} at most", most / 2);
                self.fail(FailureKind::GraceTooLong, what);
            }
        }
    }

    pub(super) fn on_operator_reply(&mut self, dc: DcId, reply: Reply) {
        // It may be evicted before it has a state.
        let is_joining = self.still_joining().contains(dc) || self.is_leaving(dc);
        let node = &mut self.nodes[dc.index()];
        match reply {
            Reply::Status(status) => node.status = Some(status),
            Reply::Described(description) => {
                node.described_at = None;
                node.description = Some(*description);
            }
            // Not all datacenters were heard yet, and the lock has a home.
            Reply::Refused(Refusal::NotYet { .. }) => node.described_at = None,
            // It knows no member but itself yet.
            Reply::Refused(Refusal::UnknownHome { .. }) if is_joining => node.described_at = None,
            Reply::ForceReleased(outcome) => self.tally.forced += outcome.taken.len() as u64,
            Reply::Audited(_) | Reply::Refused(Refusal::HoldersUnknown(_)) => {}
            Reply::Refused(Refusal::DiskFull) if node.disk.room != DiskSpace::Enough => {}
            other => self.fail(FailureKind::Contract, format!("{dc} answered the operator with {other:?}")),
        }
    }

    /// A force release is appended to the journal.
    pub(super) fn on_forced(&mut self, dc: DcId, position: Position, forced: &Arc<ForceReleased>) {
        let node = &mut self.nodes[dc.index()];
        node.promises.on_forced(forced, position);
        node.forced.on_forced(position, forced, self.now);
        let victims = self.clients.iter_mut().filter(|client| client.lease() == Some(forced.lease));
        victims.for_each(|client| client.lost_to_operator = Some(forced.lease));
    }

    /// Force releases that are durable now are final: the victims hold nothing of them.
    pub(super) fn settle_forced(&mut self, dc: DcId, durable: Position) {
        for (forced, since) in self.nodes[dc.index()].forced.on_durable(durable) {
            self.holders.force_out(self.now, since, dc, &forced);
        }
    }

    /// In the quiet: people can still read which locks were taken from which holders.
    pub(super) fn check_audits(&mut self) {
        for dc in self.members().iter() {
            self.operator_call(dc, self.now.0, Call::Audit);
        }
    }
}
