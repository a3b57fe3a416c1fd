//! When the next step is due.
//!
//! Every step asks, so the deadlines are remembered where they arise, and those that acquires and releases
//! do not change are looked at only after other steps.

use super::Replica;
use super::clients::deferred_calls::knows_earlier_runs;
use super::data::expiry::Keepers;
use crate::base::time::Instant;

/// The deadlines as the last step has left them.
#[derive(Default)]
pub(super) struct Due {
    /// The earliest one; `None` before the first step.
    next: Option<Instant>,
    /// The earliest one of those that do not change if nothing but locks does.
    beside_locks: Instant,
}

impl Replica {
    /// Returns the time at which to call [`Replica::handle`] with
    /// [`Event::Tick`](crate::replica::Event::Tick) if no other event comes first. There always is one,
    /// because heartbeats never end.
    #[inline]
    pub fn next_deadline(&self) -> Instant {
        let due = self.due.next.unwrap_or_else(|| self.earliest_deadline());
        debug_assert_eq!(due, self.earliest_deadline(), "only a step changes the next deadline");
        due
    }

    /// Returns true if the time that passed can change anything. If not, the previous step has left no work.
    #[inline]
    pub(super) fn is_anything_due(&self) -> bool {
        self.peers.reachability.has_news() || self.due.next.is_none_or(|due| due <= self.now.mono)
    }

    /// Notes the deadlines at the end of a step. `only_locks`: the step has changed nothing but locks.
    #[inline]
    pub(super) fn note_deadline(&mut self, only_locks: bool) {
        if !only_locks {
            self.due.beside_locks = self.deadline_beside_locks();
        }
        self.due.next = Some(self.deadline_of_locks().min(self.due.beside_locks));
    }

    fn earliest_deadline(&self) -> Instant {
        self.deadline_of_locks().min(self.deadline_beside_locks())
    }

    /// Returns the earliest deadline that an acquire or a release may change.
    #[inline]
    fn deadline_of_locks(&self) -> Instant {
        if self.locks.has_work(self.now.mono) {
            return self.now.mono;
        }
        let of_clients = self.clients.leases.next_deadline().min(self.clients.waits.next_or_never());
        // A grant may open a transaction.
        self.locks.next_deadline().min(of_clients).min(self.data.transactions.next_deadline())
    }

    fn deadline_beside_locks(&self) -> Instant {
        if self.has_work_beside_locks() {
            return self.now.mono;
        }
        let mut next =
            self.peers.heartbeat_at.min(self.ids.renew_reservation_at).min(self.peers.anti_entropy.next_at);
        next = next.min(self.clients.descriptions.next_deadline());
        next = next.min(self.lifecycle.next_deadline(self.log.peers().linked()));
        let keepers = Keepers { config: &self.config, members: &self.members, peers: &self.peers };
        let (links, reachability) = (self.peers.links.retry_at(), self.peers.reachability.next_deadline());
        let sooner = [links, reachability, self.data.expiry.next_deadline(keepers)];
        sooner.into_iter().flatten().fold(next, Instant::min)
    }

    /// Returns true if work is left that is spread over several steps.
    fn has_work_beside_locks(&self) -> bool {
        let is_asked = self.copies.transfers.has_work(self.out.output_commit.durable());
        let is_busy = self.data.store_backlog
            || self.copies.checkpoint_builder.is_some()
            || self.watches.are_scanning()
            || is_asked;
        let goes_on = self.out.pump
            || (self.members.have_work() && self.lifecycle.may_enter())
            || (self.data.counter_escrow.is_handing() && self.lifecycle.may_enter())
            || self.out.has_more_durable()
            || self.out.truncates
            || self.data.acknowledgements.have_news()
            || (self.clients.deferred.has_reclaims() && knows_earlier_runs(&self.lifecycle, &self.log));
        is_busy || goes_on
    }
}
