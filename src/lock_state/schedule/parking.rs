//! A request that needs a datacenter which is away is parked: absent in every rule, but keeping its place.
//! Parking is this datacenter's own view and affects only speed, never safety
//! (`docs/algorithm/ownership.md#23-parking`).

use super::Schedule;
use crate::base::work;
use crate::lock_state::lock::LockIndex;
use crate::lock_state::queue::Class;
use crate::lock_state::request::RequestIndex;
use crate::lock_state::tables::Tables;
use geolock_api::names::DcId;

impl Schedule {
    /// Parks or unparks the waiters of a lock after the owner of a part changed. Parking depends on that only
    /// if one of the two owners is away and the other is not.
    pub(super) fn repark_lock(&mut self, tables: &mut Tables, index: LockIndex, from: DcId, to: DcId) {
        if tables.view.away.contains(from) == tables.view.away.contains(to) {
            return;
        }
        let queue = &tables.locks[index].queue;
        // Each waiter has to be examined, to know its wants.
        if !self.sweeps.may_repark(queue.len()) {
            return self.sweeps.repark_all();
        }
        work::count(queue.len());
        // A request that the lock is only offered to does not need it.
        let waits = |class: &Class| *class != Class::Offer;
        let waiting: Vec<RequestIndex> =
            queue.iter().filter(|(class, ..)| waits(class)).map(|(.., request)| request).collect();
        for request in waiting {
            let wants = tables.requests[request].wants.len();
            if !self.sweeps.may_repark(wants - 1) {
                return self.sweeps.repark_all();
            }
            tables.repark(request);
        }
    }

    /// Examines the parking of all requests again, some of them in each of the next steps.
    pub fn repark_all(&mut self) {
        self.sweeps.repark_all();
    }
}
