//! Descriptions and listings of locks, for people, and questions of the replica. Off the hot path; each call
//! examines a bounded number of rows.

use std::sync::Arc;

use super::enough::{AnyOf, Enough};
use super::hot_locks::Heat;
use super::lock::{Lock, LockIndex};
use super::queue::{Class, Order};
use super::request::{Request, RequestIndex, RequestRow, State, Want};
use super::tables::Tables;
use crate::base::bugs::Bug;
use crate::base::tables::RowIndex;
use crate::base::time::{Instant, Timestamp};
use crate::base::work;
use crate::causal_log::Wants;
use geolock_api::names::{DcId, DcSet, FencingToken, LockName, Mode, RequestId};

/// A holder of a lock in this datacenter.
pub(crate) struct Holder {
    pub request: RequestIndex,
    pub mode: Mode,
    /// `None` if it was granted in this step.
    pub token: Option<FencingToken>,
    pub since: Instant,
}

/// A waiter for a lock.
pub(crate) struct WaiterRow {
    pub id: RequestId,
    pub request: RequestIndex,
    pub at: Timestamp,
    pub mode: Mode,
    pub parked: bool,
}

/// A lock in a listing.
pub(crate) struct LockRow {
    pub name: LockName,
    pub parts: DcSet,
    pub holders: usize,
    pub held: Option<Mode>,
    pub waiting: usize,
}

/// One of the locks that are waited for most.
pub(crate) struct HotRow {
    pub name: LockName,
    pub heat: Heat,
    /// In this datacenter.
    pub holders: usize,
    pub first: Option<WaiterRow>,
    pub waiting: usize,
}

/// Position of a walk over holders; the default is the start.
///
/// The holders of a lock are walked from the last one down. When a holder leaves, the last one takes its
/// place, so a request that holds the lock during the whole walk is always found.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct HolderCursor {
    row: usize,
    /// Number of the lock's holders that are still to come; `None`: all.
    left: Option<usize>,
}

/// Result of one step of a walk over holders.
pub(crate) enum Walk {
    Holder {
        request: RequestIndex,
        lock: LockName,
        mode: Mode,
    },
    /// The walk used up its budget of rows.
    Paused,
    Through,
}

/// Maximum number of locks of one request that are examined to find those that block it.
const LOOKS_IN_THE_WAY: usize = 1_024;
/// Maximum number of rows that one page of a listing examines.
const ROWS_PER_PAGE: usize = 4096;
/// Flag in a cursor that has passed the lock table and walks the ownership map.
const MOVED: u64 = 1 << 63;

/// Descriptions of what the tables contain.
#[derive(Clone, Copy)]
pub(crate) struct Inspect<'a>(pub(super) &'a Tables);

impl<'a> Inspect<'a> {
    /// Returns some requests of clients that wait here.
    pub fn some_waiting(self, most: usize) -> Vec<RequestIndex> {
        let waits = |row: &Request| row.local().is_some_and(|local| local.state == State::Waiting);
        let waiting = self.0.requests.iter().filter(|(_, row)| waits(row));
        waiting.map(|(index, _)| index).take(most).collect()
    }

    /// Returns the number of rows in the lock table.
    pub fn active(self) -> usize {
        self.0.locks.len()
    }

    /// Returns the wants of a request, as the request gave them.
    pub fn wants(self, request: RequestIndex) -> impl Iterator<Item = (&'a LockName, Mode)> {
        self.0.requests[request].wants.iter().map(move |want| (&self.0.locks[want.lock].name, want.mode))
    }

    /// Returns true if a request was made for these locks: a lock that was downgraded since was wanted
    /// exclusively.
    pub fn is_made_for(self, request: RequestIndex, wants: &Wants) -> bool {
        if self.0.enough.has(request) && !self.0.requests[request].is_held() {
            return false;
        }
        let (made, locks) = (&self.0.requests[request].wants, wants.locks());
        let is_it = |(want, (name, mode)): (&Want, &(LockName, Mode))| {
            self.0.locks[want.lock].name == *name && want.is_asked_as(*mode)
        };
        made.len() == locks.len() && made.iter().zip(locks).all(is_it)
    }

    /// Returns true if no other member is unreachable.
    pub fn hears_all(self) -> bool {
        self.0.view.away.is_empty()
    }

    /// Returns true if a request was made for enough of these locks, or was before it was amended.
    pub fn is_made_for_any(self, request: RequestIndex, of: &AnyOf, revision: u64) -> bool {
        let is_it = |row: &Enough| revision < row.revision || (revision == row.revision && *row.of == *of);
        self.0.enough.get(request).is_some_and(is_it)
    }

    /// Returns the candidates of a waiting request for enough locks, and the number of their last amendment.
    pub fn waits_for_any(self, request: RequestIndex) -> Option<(&'a Arc<AnyOf>, u64)> {
        let row = self.0.enough.get(request).filter(|_| !self.0.requests[request].is_held())?;
        Some((&row.of, row.revision))
    }

    /// Returns the number of locks of a request: those that it wants, or its candidates.
    pub fn locks_of(self, request: RequestIndex) -> usize {
        let candidates = self.0.enough.get(request).map_or(0, |row| row.of.candidates().len());
        candidates.max(self.0.requests[request].wants.len())
    }

    /// Returns the number of candidates of all requests for enough of many locks.
    pub fn candidates(self) -> usize {
        self.0.enough.candidates()
    }

    /// Returns the candidates that a held request for enough locks holds, the sum of their weights, and the
    /// number of the last amendment of their list; `None` for other requests.
    #[inline]
    pub fn chosen(self, request: RequestIndex) -> Option<(Vec<u32>, u128, u64)> {
        if self.0.enough.is_empty() {
            return None;
        }
        let row = self.0.enough.get(request)?;
        Some((row.chosen.clone(), row.of.sum_of(&row.chosen), row.revision))
    }

    /// Returns true if nothing is left here but what is at home.
    pub fn has_nothing(self) -> bool {
        let Tables { view, owners, requests, request_table, .. } = self.0;
        let counts = requests.counts();
        let has_foreign = owners.away_here() > 0 && !view.bugs.has(Bug::LeavesWithParts);
        counts.held + counts.waiting == 0 && !has_foreign && !request_table.has_any_abandoned()
    }

    /// Returns true if a local holder uses this part: any part if the lock is held exclusively, only the own
    /// part of this datacenter if it is held shared.
    pub fn is_held_by(self, name: &LockName, part: DcId) -> bool {
        let Some(index) = self.0.locks.find(name) else { return false };
        match self.0.locks[index].holders.mode {
            Some(Mode::Exclusive) => true,
            Some(Mode::Shared) => part == self.0.view.me,
            None => false,
        }
    }

    /// Returns the number of open readers.
    pub fn readers(self) -> usize {
        let readers = self.0.request_table.readers();
        assert!(self.0.owners.map().table().readers() == readers, "they read both");
        readers
    }

    /// Returns the number of rows of the request table.
    pub fn asked(self) -> usize {
        self.0.request_table.len()
    }

    /// Returns the request table, by id.
    pub fn request_table(self) -> Vec<RequestRow> {
        let Tables { locks, requests, request_table, enough, .. } = self.0;
        request_table.rows(|request| requests[request].as_published(locks, enough.get(request)))
    }

    /// Returns up to `most` locks that block a request: held in conflict, with missing parts, or wanted by
    /// earlier requests. If none blocks it at this moment, returns its first locks. Of a request for
    /// thousands of locks only [`LOOKS_IN_THE_WAY`] are examined, beginning with the one that blocked it
    /// last.
    pub fn in_the_way(self, request: RequestIndex, most: usize) -> Vec<LockName> {
        let row = &self.0.requests[request];
        let wants = &row.wants;
        let from = row.local().map_or(0, |local| local.stopped_at as usize);
        let keeps_waiting = |want: &Want| {
            let lock = &self.0.locks[want.lock];
            lock.is_held_against(want.mode)
                || !self.0.view.has_parts(lock, want.mode)
                || self.first_waiter(want.lock).is_some_and(|(_, _, first)| first != request)
        };
        let count = wants.len().min(LOOKS_IN_THE_WAY);
        work::count(count);
        let looked_at = (0..count).map(|i| (from + i) % wants.len());
        let mut found: Vec<usize> = looked_at.filter(|at| keeps_waiting(&wants[*at])).take(most).collect();
        if found.is_empty() {
            found = (0..wants.len().min(most)).collect();
        }
        found.sort_unstable();
        let mut names: Vec<LockName> =
            found.into_iter().map(|at| self.0.locks[wants[at].lock].name.clone()).collect();
        names.sort_unstable();
        names
    }

    /// Returns each part with its owner.
    pub fn owners(self, name: &LockName) -> impl Iterator<Item = (DcId, DcId)> {
        self.0.view.members.iter().map(move |part| (part, self.0.owners.map().of(name).owner(part)))
    }

    /// Returns the first `most` holders in this datacenter.
    pub fn holders(self, name: &LockName, most: usize) -> Vec<Holder> {
        let Some(index) = self.0.locks.find(name) else { return Vec::new() };
        let requests = self.0.locks[index].holders.requests.iter().take(most);
        requests.filter_map(|(request, place)| self.holder(*request, *place)).collect()
    }

    fn holder(self, request: RequestIndex, place: u32) -> Option<Holder> {
        let (token, since) = match self.0.requests[request].local()?.state {
            State::Waiting => return None,
            State::Granted { since, .. } => (None, since),
            State::Held { token, since, .. } => (Some(token), since),
        };
        let mode = self.0.requests[request].wants[place as usize].mode;
        Some(Holder { request, mode, token, since })
    }

    /// Returns the next holder of a lock.
    pub fn next_holder_of(self, name: &LockName, cursor: &mut HolderCursor) -> Walk {
        match self.0.locks.find(name) {
            Some(index) => self.holder_below(index, cursor).unwrap_or(Walk::Through),
            None => Walk::Through,
        }
    }

    /// Returns the next holder of any lock with this prefix. Subtracts the number of examined rows from
    /// `budget`.
    pub fn next_holder(self, prefix: &[u8], cursor: &mut HolderCursor, budget: &mut usize) -> Walk {
        while *budget > 0 {
            if cursor.row >= self.0.locks.end() {
                return Walk::Through;
            }
            *budget -= 1;
            let index = LockIndex::from_row(cursor.row);
            let row = self.0.locks.get(index);
            if row.is_some_and(|lock| lock.name.as_bytes().starts_with(prefix))
                && let Some(holder) = self.holder_below(index, cursor)
            {
                return holder;
            }
            *cursor = HolderCursor { row: cursor.row + 1, left: None };
        }
        Walk::Paused
    }

    fn holder_below(self, index: LockIndex, cursor: &mut HolderCursor) -> Option<Walk> {
        let lock = &self.0.locks[index];
        let holders = &lock.holders.requests;
        let place = cursor.left.unwrap_or(holders.len()).min(holders.len()).checked_sub(1)?;
        cursor.left = Some(place);
        let (request, want) = holders[place];
        let mode = self.0.requests[request].wants[want as usize].mode;
        Some(Walk::Holder { request, lock: lock.name.clone(), mode })
    }

    /// Returns the first `most` waiters in order, and the number of all waiters. Examines at most `most` of
    /// each class.
    pub fn waiters(self, name: &LockName, most: usize) -> (Vec<WaiterRow>, usize) {
        let Some(index) = self.0.locks.find(name) else { return (Vec::new(), 0) };
        let lock = &self.0.locks[index];
        let firsts = |class| {
            lock.queue.of_class(class).take(most).map(move |(order, request)| (class, order, request))
        };
        let mut waiters: Vec<_> = self.classes().flat_map(firsts).collect();
        waiters.sort_unstable_by_key(|(_, order, _)| *order);
        waiters.truncate(most);
        let row = |(class, order, request): &(Class, Order, RequestIndex)| {
            self.waiter_row(index, *class, *order, *request)
        };
        (waiters.iter().map(row).collect(), lock.queue.len())
    }

    /// Returns at most `most` locks with this prefix that are waited for most, the hottest first. A wait that
    /// has not ended counts with its time so far. `millis`: the clock reading now.
    pub fn hottest(self, prefix: &[u8], most: usize, millis: u64) -> Vec<HotRow> {
        let rows = self.0.hot_locks.iter().filter(|(name, ..)| name.as_bytes().starts_with(prefix));
        let mut rows: Vec<(u64, &LockName, Heat)> = rows
            .map(|(name, weight, heat)| {
                let first = self.0.locks.find(name).and_then(|index| self.first_waiter(index));
                let waits = first.map_or(0, |(_, order, _)| millis.saturating_sub(order.at.millis()));
                (weight.saturating_add(waits * 1_000), name, heat)
            })
            .collect();
        rows.sort_unstable_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        rows.truncate(most);
        rows.into_iter().map(|(_, name, heat)| self.hot_row(name.clone(), heat)).collect()
    }

    fn hot_row(self, name: LockName, heat: Heat) -> HotRow {
        let Some(index) = self.0.locks.find(&name) else {
            return HotRow { name, heat, holders: 0, first: None, waiting: 0 };
        };
        let lock = &self.0.locks[index];
        let first = self.first_waiter(index);
        HotRow {
            name,
            heat,
            holders: lock.holders.requests.len(),
            first: first.map(|(class, order, request)| self.waiter_row(index, class, order, request)),
            waiting: lock.queue.len(),
        }
    }

    /// Returns the first waiter of all classes: one look-up per class, however many requests wait.
    pub(super) fn first_waiter(self, index: LockIndex) -> Option<(Class, Order, RequestIndex)> {
        let queue = &self.0.locks[index].queue;
        self.classes()
            .filter_map(|class| queue.first(class).map(|(order, request)| (class, order, request)))
            .min_by_key(|(_, order, _)| *order)
    }

    /// Returns all classes.
    fn classes(self) -> impl Iterator<Item = Class> {
        let of_members =
            self.0.view.members.iter().flat_map(|dc| [Class::RemoteShared(dc), Class::RemoteSharedDue(dc)]);
        [Class::LocalExclusive, Class::LocalShared, Class::RemoteExclusive]
            .into_iter()
            .chain([Class::RemoteExclusiveDue, Class::Parked, Class::Offer])
            .chain(of_members)
    }

    fn waiter_row(self, lock: LockIndex, class: Class, order: Order, request: RequestIndex) -> WaiterRow {
        let name = &self.0.locks[lock].name;
        let compare = |want: &Want| self.0.locks[want.lock].name.cmp(name);
        // The wants of a request for enough locks are in no order while it waits; all are exclusive.
        let mode = match self.0.enough.has(request) {
            true => Mode::Exclusive,
            false => {
                let want = self.0.requests.place_of(request, compare);
                self.0.requests[request].wants[want.expect("a waiter wants the lock that it waits for")].mode
            }
        };
        // The id of a request that is offered the lock may have changed.
        let id = if class == Class::Offer { self.0.requests[request].id } else { order.id };
        WaiterRow { id, request, at: order.at, mode, parked: class.is_parked() }
    }

    /// Returns a page of the locks with this prefix that are held, waited for, or have parts away from home,
    /// and the cursor of the next page. A page has at most `limit` rows and may be empty. Locks that are
    /// inserted or dropped during the listing may be missed.
    pub fn list(self, prefix: &[u8], cursor: u64, limit: usize) -> (Vec<LockRow>, Option<u64>) {
        let mut rows = Vec::new();
        let matches = |name: &LockName| name.as_bytes().starts_with(prefix);
        if cursor & MOVED == 0 {
            let from = cursor as usize;
            for (index, lock) in self.lock_rows(from) {
                if matches(&lock.name) && !(lock.is_idle() && self.0.owners.map().of(&lock.name).is_home()) {
                    rows.push(LockRow {
                        name: lock.name.clone(),
                        parts: lock.parts,
                        holders: lock.holders.requests.len(),
                        held: lock.holders.mode,
                        waiting: lock.queue.len(),
                    });
                }
                if rows.len() >= limit {
                    return (rows, Some(u64::from(index.0) + 1));
                }
            }
            let end = from.saturating_add(ROWS_PER_PAGE);
            return (rows, Some(if end >= self.0.locks.end() { MOVED } else { end as u64 }));
        }
        let from = (cursor & !MOVED) as usize;
        for i in from..from.saturating_add(ROWS_PER_PAGE) {
            let Some(name) = self.0.owners.map().lock_at(i) else { return (rows, None) };
            if matches(name) && self.0.locks.find(name).is_none() && !self.0.owners.map().of(name).is_home() {
                let parts = self.0.owners.parts_here(name);
                rows.push(LockRow { name: name.clone(), parts, holders: 0, held: None, waiting: 0 });
            }
            if rows.len() >= limit {
                return (rows, Some(MOVED | (i as u64 + 1)));
            }
        }
        (rows, Some(MOVED | (from + ROWS_PER_PAGE) as u64))
    }

    /// Returns the rows of a page of locks, beginning at this one.
    fn lock_rows(self, from: usize) -> impl Iterator<Item = (LockIndex, &'a Lock)> {
        let locks = &self.0.locks;
        let end = locks.end().min(from.saturating_add(ROWS_PER_PAGE));
        (from..end).map(LockIndex::from_row).filter_map(move |index| Some((index, locks.get(index)?)))
    }
}
