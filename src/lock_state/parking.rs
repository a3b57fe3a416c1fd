//! A request that needs a datacenter which is away is parked: absent in every rule, but keeping its place.
//! Parking is this datacenter's own view and affects only speed, never safety
//! (`docs/algorithm.md#53-parking`).

use super::lock::LockIndex;
use super::locks::Locks;
use super::request::RequestIndex;
use crate::names::{DcId, DcSet};
use crate::work;

impl Locks {
    /// Sets the datacenters that are away. All requests are examined again, some of them in each of the next
    /// steps.
    pub fn set_unreachable(&mut self, unreachable: DcSet) {
        if unreachable == self.unreachable {
            return;
        }
        self.unreachable = unreachable;
        self.repark_all();
    }

    /// Parks or unparks the waiters of a lock after the owner of a part changed. Parking depends on that only
    /// if one of the two owners is away and the other is not.
    pub(super) fn repark_lock(&mut self, index: LockIndex, from: DcId, to: DcId) {
        if self.unreachable.contains(from) == self.unreachable.contains(to) {
            return;
        }
        let queue = &self.locks[index].queue;
        // Each waiter has to be examined, to know its wants.
        if !self.sweeps.may_repark(queue.len()) {
            return self.repark_all();
        }
        let waiting: Vec<RequestIndex> = queue.iter().map(|(_, _, request)| request).collect();
        work::count(waiting.len());
        for request in waiting {
            let wants = self.get(request).wants.len();
            if !self.sweeps.may_repark(wants - 1) {
                return self.repark_all();
            }
            self.repark(request);
        }
    }

    pub(super) fn repark(&mut self, request: RequestIndex) {
        let row = self.get(request);
        let park = self.should_park(row);
        if park == row.parked {
            return;
        }
        #[cfg(test)]
        if park && self.mutated(crate::sim::Mutation::DeadDueBlocks) && self.is_due_somewhere(request) {
            return;
        }
        self.dequeue(request);
        self.request_mut(request).parked = park;
        if park {
            self.counts.parked += 1;
        } else {
            self.counts.parked -= 1;
        }
        self.enqueue(request);
        for i in 0..self.get(request).wants.len() {
            let lock = self.get(request).wants[i].lock;
            self.lock_mut(lock).recheck_shared = true;
            self.mark(lock);
        }
    }

    #[cfg(test)]
    fn is_due_somewhere(&self, request: RequestIndex) -> bool {
        use super::queue::Class;
        let due = |class| matches!(class, Class::RemoteExclusiveDue | Class::RemoteSharedDue(_));
        let row = self.get(request);
        row.wants.iter().any(|want| {
            self.lock(want.lock).queue.iter().any(|(class, _, other)| other == request && due(class))
        })
    }
}
