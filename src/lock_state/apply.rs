//! Operations of the log on locks: requests, withdrawals and transfers, of other datacenters and, when the
//! journal is read after a restart, of this one.

use crate::base::bugs::Bug;
use smallvec::SmallVec;

use super::lock::LockIndex;
use super::request::{Origin, Request, RequestRow, Want};
use super::schedule::Schedule;
use super::tables::Tables;
use crate::base::time::{Instant, Timestamp};
use crate::causal_log::{LockParts, Op, Wants};
use crate::crdt::AsOf;
use geolock_api::names::{DcId, DcSet, LockName, Mode, Position, RequestId};

/// A published request: a [`RequestRow`], or one in an entry.
pub(crate) struct Published<'a> {
    pub id: RequestId,
    pub at: Timestamp,
    pub wants: &'a Wants,
    pub seq: u64,
}

impl<'a> From<&'a RequestRow> for Published<'a> {
    fn from(row: &'a RequestRow) -> Published<'a> {
        Published { id: row.id, at: row.at, wants: &row.wants, seq: row.seq }
    }
}

/// Applies the operations of the log, see [`super::Locks::log_operations`].
pub(crate) struct LogOperations<'a> {
    pub(super) tables: &'a mut Tables,
    pub(super) schedule: &'a mut Schedule,
}

impl LogOperations<'_> {
    /// Adds a request to the request table.
    pub fn apply_request(&mut self, published: &Published<'_>) {
        let tables = &mut *self.tables;
        let Published { id, at, wants, seq } = *published;
        debug_assert!(tables.is_news(id), "request {id} was validated as new");
        tables.note_before(id);
        if id.dc == tables.view.me {
            // It was published before a restart, so no client waits for it through the log any more.
            return tables.request_table.insert_abandoned(RequestRow { id, at, wants: wants.clone(), seq });
        }
        let want = |(name, mode): &(LockName, Mode)| Want::new(tables.activate(name), *mode);
        let wants: SmallVec<[Want; 1]> = wants.locks().iter().map(want).collect();
        let mut row = Request { id, at, wants, origin: Origin::Remote { seq }, parked: false };
        row.parked = tables.should_park(&row);
        let locks: SmallVec<[LockIndex; 1]> = row.wants.iter().map(|want| want.lock).collect();
        let index = tables.requests.insert(row);
        tables.request_table.insert(id, index, seq);
        tables.enqueue(index);
        tables.note_wait(index);
        locks.into_iter().for_each(|lock| tables.locks.mark(lock));
    }

    /// Removes a request from the request table; an unknown id is no error.
    pub fn apply_withdraw(&mut self, id: RequestId, now: Instant) {
        let tables = &mut *self.tables;
        tables.note_before(id);
        if id.dc == tables.view.me {
            tables.request_table.remove_abandoned(id);
        }
        let Some(index) = tables.requests.find(id) else { return };
        if tables.requests[index].local().is_some() {
            return;
        }
        if tables.view.bugs.has(Bug::WithdrawnServed) {
            return;
        }
        tables.request_table.remove(id);
        tables.forget_waiting(index, now);
    }

    /// Applies a transfer by an entry of `from` at `position`; [`Position::default`] for an entry that has
    /// long been durable. `as_of`: what the maker knew of homes.
    pub fn apply_transfer(
        &mut self,
        (from, to): (DcId, DcId),
        moved: &LockParts,
        as_of: AsOf<'_>,
        position: Position,
    ) {
        let parts: DcSet = moved.parts.iter().map(|(part, _)| *part).collect();
        debug_assert_eq!(parts.len(), moved.parts.len(), "a part of lock {} moves once", moved.lock);
        // Its maker may not have known of a new member.
        let parts = parts.union(self.tables.owners.going_along(&moved.lock, parts));
        self.tables.owners.move_parts_as_of(to, moved, as_of);
        // Parts that are given to a member that was evicted fall home, and so do those that come to a member
        // that is their home only as far as the maker knew.
        let mut rest = parts;
        while let Some(first) = rest.iter().next() {
            let owner = |part: DcId| self.tables.owners.owner(&moved.lock, part);
            let to = owner(first);
            let together = rest.iter().filter(|part| owner(*part) == to).collect();
            rest = rest.difference(together);
            self.schedule.note_moved(self.tables, (from, to), (&moved.lock, together), position);
        }
    }

    /// Writes the registers of parts that `owner` keeps, whatever their home will be.
    pub fn apply_keep(&mut self, owner: DcId, kept: &LockParts) {
        self.tables.owners.keep_parts(owner, kept);
    }

    /// Records the entry of this datacenter that published its requests, and removes the abandoned requests
    /// that it withdrew.
    pub fn note_own_entry(&mut self, seq: u64, ops: &[Op], now: Instant) {
        for op in ops {
            match op {
                Op::Request { id, .. } => {
                    debug_assert_eq!(id.dc, self.tables.view.me, "an own entry publishes own requests");
                    let Tables { requests, request_table, .. } = &mut *self.tables;
                    let index = requests.find(*id);
                    let index = index.expect("a request is published in the step in which it waits");
                    requests.note_published(index, seq);
                    request_table.insert(*id, index, seq);
                }
                Op::Withdraw { id } => self.apply_withdraw(*id, now),
                Op::Transfer { .. }
                | Op::Keep { .. }
                | Op::Rehome { .. }
                | Op::Commit(_)
                | Op::Under { .. }
                | Op::Enter { .. }
                | Op::Split { .. }
                | Op::Done { .. }
                | Op::Freed { .. }
                | Op::Leave => {}
            }
        }
    }
}
