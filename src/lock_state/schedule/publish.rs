//! Published requests: `docs/algorithm/ownership.md#22-publishing`. Publishing puts a request into the log,
//! and withdrawing takes it back.

use super::{Output, Schedule};
use crate::base::time::Instant;
use crate::causal_log::Op;
use crate::lock_state::lock::{Lock, LockIndex};
use crate::lock_state::queue::Class;
use crate::lock_state::request::{Publication, RequestIndex, RequestRow};
use crate::lock_state::tables::Tables;
use crate::lock_state::view::View;
use geolock_api::names::Mode;

/// Returns the waiters of a lock that must be in the log: those that lack a part of it and have no earlier
/// local waiter for it in the same or a stronger mode. So any number of waiters costs one published request,
/// or two.
fn to_publish(lock: &Lock, view: &View) -> [Option<RequestIndex>; 2] {
    let exclusive = lock.queue.first(Class::LocalExclusive);
    let shared = lock.queue.first(Class::LocalShared);
    let shared = shared.filter(|shared| exclusive.is_none_or(|first| *shared < first));
    let exclusive = exclusive.filter(|_| !view.has_parts(lock, Mode::Exclusive));
    let shared = shared.filter(|_| !view.has_parts(lock, Mode::Shared));
    [shared, exclusive].map(|waiter| waiter.map(|(_, request)| request))
}

impl Schedule {
    /// Publishes the waiters of a lock that must be in the log.
    pub(in crate::lock_state) fn publish(&mut self, tables: &mut Tables, index: LockIndex, now: Instant) {
        if !tables.view.permissions.append {
            return;
        }
        for request in to_publish(&tables.locks[index], &tables.view).into_iter().flatten() {
            if tables.enough.has(request) {
                self.publish_enough(tables, request, index, now);
            } else if tables.requests.publish(request) {
                self.output.requests.push(request);
            }
        }
    }

    /// Withdraws a published request. The withdrawal is in the same step as the event that ends the wait, so
    /// it is in the log before any later transfer of the same parts. If no entry can be made, the request
    /// becomes abandoned.
    #[inline]
    pub(in crate::lock_state) fn withdraw(&mut self, tables: &mut Tables, request: RequestIndex) {
        match tables.requests.withdraw(request) {
            (_, Publication::Unpublished | Publication::Withdrawn) => {}
            (_, Publication::InThisStep) => {
                self.output.requests.retain(|other| *other != request);
                let replaced = self.output.replaced.remove(&request);
                self.output.withdraws.extend(replaced.map(|id| Op::Withdraw { id }));
            }
            (id, Publication::Published { seq }) => {
                tables.note_before(id);
                tables.request_table.remove(id);
                if tables.view.permissions.append {
                    self.output.withdraws.push(Op::Withdraw { id });
                } else {
                    let (at, wants) = tables.as_published(request);
                    tables.request_table.insert_abandoned(RequestRow { id, at, wants, seq });
                }
            }
        }
    }

    /// Withdraws all abandoned requests in the next entry, because entries may be made again.
    pub fn withdraw_abandoned(&mut self, tables: &mut Tables) {
        while let Some(id) = tables.request_table.first_abandoned() {
            tables.note_before(id);
            tables.request_table.remove_abandoned(id);
            self.output.withdraws.push(Op::Withdraw { id });
        }
    }

    /// Takes the operations of a step, in the order of an entry: withdrawals, transfers, requests.
    pub fn take_ops(&mut self, tables: &Tables) -> Vec<Op> {
        let Output { withdraws, transfers, kept, requests, replaced, granted: _ } = &mut self.output;
        let mut ops = std::mem::take(withdraws);
        let mut transfers = std::mem::take(transfers);
        transfers.sort_by_key(|(to, _)| *to);
        debug_assert!(transfers.iter().all(|(_, moved)| !moved.parts.is_empty()), "a transfer has parts");
        for group in transfers.chunk_by(|a, b| a.0 == b.0) {
            let parts = group.iter().map(|(_, lock)| lock.clone()).collect();
            ops.push(Op::Transfer { to: group[0].0, parts });
        }
        if !kept.is_empty() {
            ops.push(Op::Keep { parts: std::mem::take(kept) });
        }
        for request in std::mem::take(requests) {
            let row = &tables.requests[request];
            debug_assert!(!row.is_held(), "request {} is published while it waits", row.id);
            let (at, wants) = tables.as_published(request);
            // Beside each other, so that they are in one entry.
            ops.extend(replaced.remove(&request).map(|id| Op::Withdraw { id }));
            ops.push(Op::Request { id: row.id, at, wants });
        }
        ops
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::Timestamp;
    use crate::causal_log::Wants;
    use crate::lock_state::{Acquired, IfNotFree, Locks, NewRequest, Permissions};
    use geolock_api::names::{DcId, DcSet, LeaseId, LockName, RequestId};

    /// Seed 91 of the simulator: a request was cancelled while the clock was too far ahead to make entries.
    /// It was dropped here and stayed in the request table of all others.
    #[test]
    fn a_request_cancelled_while_no_entry_can_be_made_is_withdrawn_later() {
        let dc = |id| DcId::new(id).expect("a small id");
        let (now, members) = (Instant::ZERO, DcSet::from_iter([dc(0), dc(1)]));
        let mut locks = Locks::new(dc(0), members, Vec::new(), 0);
        locks.permit(Permissions { grant: true, append: true });
        let name = LockName::try_from("a").expect("valid");
        let wants = Wants::all(vec![(name, Mode::Exclusive)]).expect("one lock");
        let (id, at) = (RequestId { dc: dc(0), n: 7 }, Timestamp::from_millis(3));
        let label = "test".into();
        let new = NewRequest { id, at, wants: &wants, lease: LeaseId::new(dc(0), 1), label: &label };
        let Acquired::Waiting(request) = locks.local_requests().acquire(&new, IfNotFree::Wait, now) else {
            panic!("a part is elsewhere");
        };
        locks.schedule(now);
        let ops = locks.take_ops();
        assert_eq!(ops, [Op::Request { id, at, wants: wants.clone() }]);
        locks.log_operations().note_own_entry(1, &ops, now);

        locks.permit(Permissions { grant: true, append: false });
        locks.local_requests().cancel(request, now);
        locks.schedule(now);
        assert_eq!(locks.take_ops(), []);
        let kept: Vec<_> = locks.inspect().request_table().iter().map(|row| (row.id, row.seq)).collect();
        assert_eq!(kept, [(id, 1)], "others still know it");

        locks.permit(Permissions { grant: true, append: true });
        assert_eq!(locks.take_ops(), [Op::Withdraw { id }]);
        assert_eq!(locks.inspect().asked(), 0);
    }
}
