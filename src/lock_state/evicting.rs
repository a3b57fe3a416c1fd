//! A member that is evicted: all that it did up to its cut is applied here, and nothing more of it counts.
//!
//! Its parts are at home from now on, wherever they belong: the ownership map reads its registers so, and no
//! lock is enumerated. Only the rows of locks in use here are walked once. Its requests are over, and its
//! parts count no more. A transfer to it that was made before its maker knew the end falls home when it is
//! applied.

use super::apply::LogOperations;
use super::member_changes::MemberChanges;
use super::tables::Tables;
use crate::base::bugs::Bug;
use crate::base::time::Instant;
use geolock_api::names::{DcSet, RequestId};

impl MemberChanges<'_> {
    /// This datacenter enters the epoch in which these members are evicted. Call [`MemberChanges::rest_on`]
    /// with the record of that.
    pub fn end_evicted(&mut self, evicted: DcSet, epoch: u64, now: Instant) {
        let tables = &mut *self.tables;
        debug_assert!(!evicted.contains(tables.view.me), "{} does not enter its own end", tables.view.me);
        tables.view.members = tables.view.members.difference(evicted);
        tables.view.leaving = tables.view.leaving.difference(evicted);
        let left = tables.owners.left().union(evicted);
        tables.owners.set_members(tables.view.members, left);
        let outlive = tables.view.bugs.has(Bug::RequestsOutlive);
        let requests = if outlive { Vec::new() } else { requests_of(tables, evicted) };
        let mut log = LogOperations { tables, schedule: self.schedule };
        requests.into_iter().for_each(|id| log.apply_withdraw(id, now));
        self.end(evicted, epoch);
    }
}

fn requests_of(tables: &Tables, evicted: DcSet) -> Vec<RequestId> {
    let published = tables.request_table.published().keys();
    published.filter(|id| evicted.contains(id.dc)).copied().collect()
}
