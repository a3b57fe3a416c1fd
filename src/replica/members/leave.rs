//! Leaving: what members do for one that leaves in order, and what that one does, until it is gone.
//!
//! ```text
//! decision  Leaving   every member enters its epoch, and gives that member nothing from then on
//! log       Leave     of the one that leaves: nobody holds or waits there, and it has only its own parts.
//!                     They count no more
//! decision  Left      proposed by the one that leaves, once all others have all of its log; it ends
//! ```

use super::Members;
use crate::base::bugs::Bug;
use crate::causal_log::Op;
use crate::membership::Command;
use crate::replica::Replica;
use crate::replica::call::Refusal;
use crate::replica::clients::grants::Requests;
use crate::replica::effect::Effect;
use crate::replica::lend::lend;
use crate::replica::members::Decisions;
use crate::replica::writer::Writer;
use geolock_api::names::{DcId, DcSet, Position};

/// Most waiting requests that one step turns away.
const TURNED_AWAY_PER_STEP: usize = 64;

impl Members {
    /// Returns true if all other members have said that they give nothing to this one any more, and nothing
    /// else changes.
    fn are_parted(&self) -> bool {
        let Members { decided, entered, .. } = self;
        let is_entered = self.pending.is_empty() && entered.epoch() == decided.config().epoch();
        decided.is_leaving()
            && !entered.has_left(decided.me())
            && is_entered
            && self.joins.is_empty()
            && !self.rehoming.is_owed()
            && entered.have_entered(entered.all(), entered.epoch())
    }
}

impl Writer<'_> {
    /// Appends the last entry of this datacenter, if it leaves and nothing is left here.
    pub(super) fn leave_if_done(&mut self) {
        // After a restart nobody seems to hold anything before clients have reclaimed.
        let may_be_held = self.lifecycle.awaits_reclaims() && !self.config.bugs.has(Bug::LeavesInGrace);
        // One that is away may be lost for good, and this member the only one that can evict it.
        let is_free = self.members.are_parted()
            && self.locks.inspect().hears_all()
            && !may_be_held
            && (!self.members.stay.is_promised() || self.config.bugs.has(Bug::LeavesAfterCancel))
            && self.data.transactions.len() == 0
            && !self.data.expiry.has_done()
            && self.locks.inspect().has_nothing()
            && !self.out.is_regaining();
        if !is_free {
            self.data.counter_escrow.stop_handing();
        } else if self.hand_rights_over() {
            self.make_entry(vec![Op::Leave]);
        }
    }

    /// `dc` has left.
    pub(in crate::replica) fn take_in_leave(&mut self, dc: DcId, position: Position) {
        self.members.entered.note_left(dc);
        self.locks.member_changes().take_leave(dc, position);
    }
}

impl Decisions<'_> {
    /// A member that has left proposes its end, once all others have all of its log on disk, and a majority
    /// of the voters that remain can be reached: until then its vote may be needed. A proposal may be lost,
    /// so it is repeated with each heartbeat. While versions differ, it waits.
    pub(in crate::replica) fn propose_left(&mut self) {
        let me = self.config.dc;
        if !self.members.entered.has_left(me) || self.members.decided.is_over() {
            return;
        }
        let Some(generation) = self.members.decided.config().slots().generation(me) else { return };
        let (cut, epoch) = (self.log.applied().get(me), self.members.decided.config().epoch());
        let others = self.members.entered.all().difference(DcSet::only(me));
        let have_all = others.iter().all(|dc| self.log.peer(dc).acknowledged().has(me, cut));
        if have_all && self.members.entered.have_entered(others, epoch) && self.log.durable().get(me) >= cut {
            let command = Command::Left { dc: me, generation, cut };
            if let Ok(proposal) = self.checked(command) {
                self.out.effects.push_back(Effect::Propose(Box::new(proposal)));
            }
        }
    }
}

impl Requests<'_> {
    /// This datacenter leaves, and others give it nothing any more: who waits has to ask another one.
    pub(in crate::replica) fn turn_waiters_away(&mut self) {
        if self.locks.requests().counts().waiting == 0 {
            return;
        }
        for request in self.locks.inspect().some_waiting(TURNED_AWAY_PER_STEP) {
            self.end_waiting(request, Refusal::Draining);
        }
    }
}

impl Replica {
    /// Nothing follows the last entry of a datacenter that leaves: it grants and transfers nothing.
    pub(in crate::replica) fn stop_if_left(&mut self) {
        if self.members.entered.has_left(self.config.dc) {
            lend!(Decisions, self).follow_peers();
            self.update_lifecycle();
        }
    }

    /// One that has left follows epochs without entries: those of its last run again while its journal is
    /// read.
    pub(in crate::replica) fn follow_if_left(&mut self) {
        if self.members.entered.has_left(self.config.dc) {
            lend!(Writer, self).follow_epochs();
        }
    }

    /// Follows the end of a member that this step has entered. Its link stays until the control group has let
    /// it go.
    pub(in crate::replica) fn forget_who_left(&mut self) {
        if !self.peers.reachability.peers().intersection(self.members.entered.ended()).is_empty() {
            lend!(Decisions, self).follow_peers();
        }
    }
}
