//! Descriptions and listings of locks, for people. Off the hot path; each call examines a bounded number of
//! rows.

use super::hot_locks::Heat;
use super::lock::LockIndex;
use super::locks::Locks;
use super::queue::{Class, Order};
use super::request::{RequestIndex, State};
use crate::names::{DcId, DcSet, FencingToken, LockName, Mode, RequestId};
use crate::tables::RowIndex;
use crate::time::{Instant, Timestamp};

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

/// Maximum number of rows that one page of a listing examines.
const ROWS_PER_PAGE: usize = 4096;
/// Flag in a cursor that has passed the lock table and walks the ownership map.
const MOVED: u64 = 1 << 63;

impl Locks {
    /// Returns each part with its owner.
    pub fn owners(&self, name: &LockName) -> impl Iterator<Item = (DcId, DcId)> {
        self.members.iter().map(|part| (part, self.ownership.owner(name, part)))
    }

    /// Returns the first `most` holders in this datacenter.
    pub fn holders(&self, name: &LockName, most: usize) -> Vec<Holder> {
        let Some(index) = self.find_lock(name.as_bytes()) else { return Vec::new() };
        let requests = self.lock(index).holders.requests.iter().take(most);
        requests.filter_map(|(request, place)| self.holder(*request, *place)).collect()
    }

    fn holder(&self, request: RequestIndex, place: u32) -> Option<Holder> {
        let (token, since) = match self.state(request)? {
            State::Waiting => return None,
            State::Granted { since, .. } => (None, since),
            State::Held { token, since, .. } => (Some(token), since),
        };
        let mode = self.get(request).wants[place as usize].mode;
        Some(Holder { request, mode, token, since })
    }

    /// Returns the next holder of a lock.
    pub fn next_holder_of(&self, name: &[u8], cursor: &mut HolderCursor) -> Walk {
        match self.find_lock(name) {
            Some(index) => self.holder_below(index, cursor).unwrap_or(Walk::Through),
            None => Walk::Through,
        }
    }

    /// Returns the next holder of any lock with this prefix. Subtracts the number of examined rows from
    /// `budget`.
    pub fn next_holder(&self, prefix: &[u8], cursor: &mut HolderCursor, budget: &mut usize) -> Walk {
        while *budget > 0 {
            if cursor.row >= self.locks.end() {
                return Walk::Through;
            }
            *budget -= 1;
            let index = LockIndex::from_row(cursor.row);
            let row = self.locks.get(index);
            if row.is_some_and(|lock| lock.name.as_bytes().starts_with(prefix))
                && let Some(holder) = self.holder_below(index, cursor)
            {
                return holder;
            }
            *cursor = HolderCursor { row: cursor.row + 1, left: None };
        }
        Walk::Paused
    }

    fn holder_below(&self, index: LockIndex, cursor: &mut HolderCursor) -> Option<Walk> {
        let lock = self.lock(index);
        let holders = &lock.holders.requests;
        let place = cursor.left.unwrap_or(holders.len()).min(holders.len()).checked_sub(1)?;
        cursor.left = Some(place);
        let (request, want) = holders[place];
        let mode = self.get(request).wants[want as usize].mode;
        Some(Walk::Holder { request, lock: lock.name.clone(), mode })
    }

    /// Returns the first `most` waiters in order, and the number of all waiters. Examines at most `most` of
    /// each class.
    pub fn waiters(&self, name: &LockName, most: usize) -> (Vec<WaiterRow>, usize) {
        let Some(index) = self.find_lock(name.as_bytes()) else { return (Vec::new(), 0) };
        let lock = self.lock(index);
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
    pub fn hottest(&self, prefix: &[u8], most: usize, millis: u64) -> Vec<HotRow> {
        let rows = self.hot_locks.iter().filter(|(name, ..)| name.as_bytes().starts_with(prefix));
        let mut rows: Vec<(u64, &LockName, Heat)> = rows
            .map(|(name, weight, heat)| {
                let first = self.find_lock(name.as_bytes()).and_then(|index| self.first_waiter(index));
                let waits = first.map_or(0, |(_, order, _)| millis.saturating_sub(order.at.millis()));
                (weight.saturating_add(waits * 1_000), name, heat)
            })
            .collect();
        rows.sort_unstable_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        rows.truncate(most);
        rows.into_iter().map(|(_, name, heat)| self.hot_row(name.clone(), heat)).collect()
    }

    fn hot_row(&self, name: LockName, heat: Heat) -> HotRow {
        let Some(index) = self.find_lock(name.as_bytes()) else {
            return HotRow { name, heat, holders: 0, first: None, waiting: 0 };
        };
        let lock = self.lock(index);
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
    pub(super) fn first_waiter(&self, index: LockIndex) -> Option<(Class, Order, RequestIndex)> {
        let queue = &self.lock(index).queue;
        self.classes()
            .filter_map(|class| queue.first(class).map(|(order, request)| (class, order, request)))
            .min_by_key(|(_, order, _)| *order)
    }

    /// Returns all classes.
    fn classes(&self) -> impl Iterator<Item = Class> {
        let of_members =
            self.members.iter().flat_map(|dc| [Class::RemoteShared(dc), Class::RemoteSharedDue(dc)]);
        [Class::LocalExclusive, Class::LocalShared, Class::RemoteExclusive]
            .into_iter()
            .chain([Class::RemoteExclusiveDue, Class::Parked])
            .chain(of_members)
    }

    fn waiter_row(&self, lock: LockIndex, class: Class, order: Order, request: RequestIndex) -> WaiterRow {
        let want = self.get(request).wants.iter().find(|want| want.lock == lock);
        let mode = want.expect("a waiter wants the lock that it waits for").mode;
        WaiterRow { id: order.id, request, at: order.at, mode, parked: class.is_parked() }
    }

    /// Returns a page of the locks with this prefix that are held, waited for, or have parts away from home,
    /// and the cursor of the next page. A page has at most `limit` rows and may be empty. Locks that are
    /// inserted or dropped during the listing may be missed.
    pub fn list(&self, prefix: &[u8], cursor: u64, limit: usize) -> (Vec<LockRow>, Option<u64>) {
        let mut rows = Vec::new();
        let matches = |name: &LockName| name.as_bytes().starts_with(prefix);
        if cursor & MOVED == 0 {
            let from = cursor as usize;
            for (index, lock) in self.lock_rows(from, ROWS_PER_PAGE) {
                if matches(&lock.name) && !(lock.is_idle() && self.ownership.is_home(&lock.name)) {
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
            return (rows, Some(if end >= self.locks.end() { MOVED } else { end as u64 }));
        }
        let from = (cursor & !MOVED) as usize;
        for i in from..from.saturating_add(ROWS_PER_PAGE) {
            let Some(name) = self.ownership.lock_at(i) else { return (rows, None) };
            if matches(name) && self.find_lock(name.as_bytes()).is_none() && !self.ownership.is_home(name) {
                let parts = self.ownership.parts_of(name, self.me, self.members);
                rows.push(LockRow { name: name.clone(), parts, holders: 0, held: None, waiting: 0 });
            }
            if rows.len() >= limit {
                return (rows, Some(MOVED | (i as u64 + 1)));
            }
        }
        (rows, Some(MOVED | (from + ROWS_PER_PAGE) as u64))
    }
}
