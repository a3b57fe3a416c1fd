//! Amendments: a waiting request for enough locks gets other candidates, and keeps its place
//! (`docs/algorithm/ownership.md#29-enough-of-many-locks`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::acquire::LocalRequests;
use super::enough::{AnyOf, Rank, choose};
use super::lock::LockIndex;
use super::request::RequestIndex;
use super::tables::Tables;
use crate::base::bugs::Bug;
use crate::base::time::Instant;
use crate::base::work;

impl LocalRequests<'_> {
    /// Replaces the candidates of a waiting request for enough locks. That costs as much as a new request.
    /// The next run of the schedule grants the request if enough of them are free.
    pub fn amend(self, request: RequestIndex, of: &Arc<AnyOf>, revision: u64, now: Instant) {
        let tables = self.tables;
        assert!(!tables.requests[request].is_held(), "only a waiting request is amended");
        tables.amend(request, of, revision, now);
        if tables.view.permissions.append && tables.asks_for_others(request) {
            tables.enough.ask_again(request);
        }
    }
}

impl Tables {
    fn amend(&mut self, request: RequestIndex, of: &Arc<AnyOf>, revision: u64, now: Instant) {
        // Marks the target: a lock that leaves it may be free for others.
        self.dequeue(request);
        self.take_offers(request);
        let locks: Vec<LockIndex> = of.names().map(|name| self.activate(name)).collect();
        work::count(locks.len());
        let stay: BTreeSet<LockIndex> =
            self.enough.get(request).into_iter().flat_map(|row| row.target()).map(|(_, lock)| lock).collect();
        let before = self.enough.replace(request, of, revision, locks);
        if self.view.bugs.has(Bug::AmendLosesPlace) {
            self.delay(request, now);
        }
        let mut ranked = self.ranked(request, now);
        let Some(row) = self.enough.get(request) else { return };
        // They have been asked for: others would have to be asked for anew.
        for it in &mut ranked {
            if let Rank::Elsewhere { was_asked, distance } = &mut it.rank
                && stay.contains(&row.locks[it.place as usize])
            {
                (*was_asked, *distance) = (false, Duration::ZERO);
            }
        }
        let target = choose(ranked.clone(), of.limits()).expect("the candidates reach the amount");
        self.enqueue_for_target(request, &ranked, &target);
        self.put_offers(request);
        let Tables { locks, requests, policies, .. } = self;
        requests[request].wants.iter().for_each(|want| locks.mark(want.lock));
        before.into_iter().for_each(|lock| locks.note_idle(lock, policies, now));
    }

    /// Returns true if the log says that a request wants something else than its candidates.
    fn asks_for_others(&self, request: RequestIndex) -> bool {
        let Some(row) = self.enough.get(request) else { return false };
        let mut asked = row.published.iter().flat_map(|wants| wants.locks());
        asked.any(|(name, _)| self.locks.find(name).and_then(|lock| row.place_of(lock)).is_none())
    }
}
