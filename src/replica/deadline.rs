//! When the next step is due.
//!
//! Every step asks, so the deadlines are remembered where they arise, and those that acquires and releases
//! do not change are looked at only after other steps.

use super::Replica;
use super::clients::deferral::knows_earlier_runs;
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
        let now = || Due::after(self, false).next;
        let due = self.due.next.or_else(now).expect("a step has a deadline");
        debug_assert_eq!(Some(due), now(), "only a step changes the next deadline");
        due
    }
}

impl Due {
    /// Returns true if the time alone can change something. If not, the previous step has left no work.
    #[inline]
    pub fn has_come(&self, now: Instant) -> bool {
        self.next.is_none_or(|due| due <= now)
    }

    /// Returns the deadlines after a step. `only_locks`: the step has changed nothing but locks.
    #[inline]
    pub fn after(replica: &Replica, only_locks: bool) -> Due {
        let beside_locks = if only_locks { replica.due.beside_locks } else { beside_locks(replica) };
        Due { next: Some(of_locks(replica).min(beside_locks)), beside_locks }
    }
}

/// Returns the earliest deadline that an acquire or a release may change.
#[inline]
fn of_locks(replica: &Replica) -> Instant {
    let Replica { locks, clients, data, now, .. } = replica;
    if locks.has_work(now.mono) {
        return now.mono;
    }
    let of_clients = clients.leases.next_deadline().min(clients.waits.next_or_never());
    // A grant may open a transaction.
    locks.next_deadline().min(of_clients).min(data.transactions.next_deadline())
}

fn beside_locks(replica: &Replica) -> Instant {
    let Replica { config, now, ids, log, lifecycle, members, peers, clients, data, .. } = replica;
    if has_work_beside_locks(replica) {
        return now.mono;
    }
    let next = peers.heartbeat_at.min(ids.renew_reservation_at).min(peers.anti_entropy.next_at);
    let next = next.min(clients.descriptions.next_deadline()).min(clients.deferred.next_deadline());
    let next = next.min(lifecycle.next_deadline(log.peers().linked()));
    let keys = data.expiry.next_deadline(Keepers { config, members, peers });
    let sooner = [peers.links.retry_at(), peers.reachability.next_deadline(), keys];
    sooner.into_iter().flatten().fold(next, Instant::min)
}

/// Returns true if work is left that is spread over several steps.
fn has_work_beside_locks(replica: &Replica) -> bool {
    let Replica { out, log, lifecycle, members, clients, data, copies, watches, .. } = replica;
    let is_asked = copies.transfers.has_work(out.output_commit.durable());
    let is_busy =
        data.store_backlog || copies.checkpoint_builder.is_some() || watches.are_scanning() || is_asked;
    let goes_on = out.pump
        || (members.have_work() && lifecycle.may_enter())
        || (data.counter_escrow.is_handing(out.output_commit.durable()) && lifecycle.may_enter())
        || out.has_more_durable()
        || out.truncates
        || data.acknowledgements.have_news()
        || (lifecycle.admission.has_ended() && clients.leases.len() > 0)
        || clients.deferred.are_ready()
        || (clients.deferred.has_reclaims() && knows_earlier_runs(lifecycle, log));
    is_busy || goes_on
}
