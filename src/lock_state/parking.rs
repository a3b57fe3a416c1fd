//! Requests that need a datacenter which cannot be reached, or does not serve, are parked: absent in every rule, in their place.
//! Parking is this datacenter's own view and affects only speed; safety never depends on it.

use super::lock::LockIndex;
use super::locks::Locks;
use super::request::RequestIndex;
use super::sweep::FEW;
use crate::names::{DcId, DcSet};

impl Locks {
    /// Who cannot be reached now, or does not serve. Every request is looked at, in this step and those that follow.
    pub fn set_unreachable(&mut self, unreachable: DcSet) {
        if unreachable == self.unreachable {
            return;
        }
        self.unreachable = unreachable;
        self.repark_all();
    }

    /// The owner of a part of this lock changed. Parking depends on that only if one of them can be reached and one cannot.
    pub(super) fn repark_lock(&mut self, index: LockIndex, from: DcId, to: DcId) {
        if self.unreachable.contains(from) == self.unreachable.contains(to) {
            return;
        }
        if self.lock(index).queue.len() > FEW {
            return self.repark_all();
        }
        let waiting: Vec<RequestIndex> =
            self.lock(index).queue.iter().map(|(_, _, request)| request).collect();
        waiting.into_iter().for_each(|request| self.repark(request));
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
