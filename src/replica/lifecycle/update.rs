//! The replica's side of its lifecycle: performs the transitions, and changes what depends on the state.

use super::{Action, Settled};
use crate::base::capacity::DiskSpace;
use crate::lock_state::Permissions;
use crate::replica::Replica;
use crate::replica::effect::Report;
use crate::replica::lend::lend;
use crate::replica::lifecycle::Judgement;
use crate::replica::message::Message;
use crate::replica::peers::clock_skew::Clocks;

impl Replica {
    /// Updates the lifecycle, and all that depends on it. Most steps have nothing to update.
    #[inline]
    pub(in crate::replica) fn update_lifecycle(&mut self) {
        if self.lifecycle.needs_update(self.log.entries().weight()) || !self.clients.deferred.is_empty() {
            self.follow_lifecycle();
        }
    }

    #[inline(never)]
    fn follow_lifecycle(&mut self) {
        while let Some(action) =
            self.lifecycle.poll(self.now.mono, self.log.applied(), self.log.peers().linked())
        {
            match action {
                Action::JudgeClock => {
                    if lend!(Clocks, self).judge_clock() == Judgement::Right {
                        assert!(self.ids.may_stamp, "only a right clock ends a start");
                        self.begin_stamping();
                    }
                }
                Action::AwaitRegained => self.out.regained = self.out.position,
                Action::Join => lend!(LogRecovery, self).join(),
            }
        }
        // Before the phase is settled: reclaims end the grace of their leases.
        lend!(ClientCalls, self).resume_deferred();
        let Settled { phase, log_full, permissions } = self.lifecycle.settle(self.log.entries().weight());
        phase.into_iter().for_each(|phase| self.out.report(Report::PhaseChanged(phase)));
        log_full.into_iter().for_each(|full| self.out.report(Report::LogFull { full }));
        lend!(Clocks, self).permit(permissions);
        let reason = self.lifecycle.not_serving(self.clients.grace_left(&self.config, self.now));
        if self.lifecycle.announced.announce(reason) {
            // At once, not with the next heartbeat: the peers park and send by it.
            lend!(LinkHandler, self).tell_links();
        }
        debug_assert!(
            self.lifecycle.is_settled(self.log.entries().weight()),
            "an update leaves only waits for the time"
        );
        debug_assert_eq!(
            self.locks.view().permissions.is_alone(),
            permissions.is_alone(),
            "locks obey the lifecycle"
        );
    }

    /// The room on the journal's disk has changed.
    pub(in crate::replica) fn on_disk_space(&mut self, room: DiskSpace) {
        let before = self.lifecycle.on_disk_space(room);
        if room != before {
            self.out.report(Report::DiskRoom { room });
        }
        if before == DiskSpace::Full && room != DiskSpace::Full {
            self.drain_inbox();
            // Entries that arrived meanwhile were dropped, and their senders believe that they are here.
            for peer in self.log.peers().linked().iter() {
                let durable = (**self.log.durable()).clone();
                self.out.send(&mut self.log, peer, Message::HeldBack { durable });
            }
        }
    }
}

impl Clocks<'_> {
    fn permit(&mut self, permissions: Permissions) {
        if self.locks.permit(permissions) {
            self.park_what_needs_others();
        }
    }
}
