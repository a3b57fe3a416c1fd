//! The tables of a datacenter, and the operations that keep them consistent: a lock knows its holders and
//! waiters by the indexes of their requests, and a request knows its locks by theirs.

use crate::base::bugs::Bug;
use smallvec::SmallVec;

use super::acquire::{NewEnough, NewRequest};
use super::enough::EnoughTable;
use super::hot_locks::HotLocks;
use super::lock::{Lock, LockIndex};
use super::lock_table::{LockTable, sort_by_name};
use super::owners::Owners;
use super::policies::Policies;
use super::queue::Order;
use super::request::{Local, Origin, Request, RequestIndex, State, Want};
use super::request_table::RequestTable;
use super::requests::Requests;
use super::view::View;
use crate::base::time::{Instant, Timestamp};
use crate::base::work;
use crate::causal_log::Wants;
use geolock_api::names::{DcSet, LockName, Mode, Position, RequestId};

/// All that is known here of locks and requests.
pub(super) struct Tables {
    pub view: View,
    pub policies: Policies,
    pub owners: Owners,
    pub locks: LockTable,
    pub requests: Requests,
    pub request_table: RequestTable,
    pub enough: EnoughTable,
    pub hot_locks: HotLocks,
    /// Journal position of the record that allows homed locks.
    pub homed_since: Position,
    /// Journal position of the last record by which locks need fewer parts, or parts got another owner
    /// without a transfer.
    pub members_since: Position,
    /// The lock table or the table of requests became empty: its memory is being released.
    pub gives_back: bool,
}

impl Tables {
    /// Returns the row of a lock, and inserts it if it is absent.
    pub fn activate(&mut self, name: &LockName) -> LockIndex {
        let Tables { policies, owners, view, locks, homed_since, members_since, .. } = self;
        locks.find_or_insert(name, || {
            let is_wrong = view.bugs.has(Bug::HomeIgnored) && owners.map().of(name).is_home();
            let parts = if is_wrong { DcSet::only(view.me) } else { owners.parts_here(name) };
            let mut lock = Lock::new(name.clone(), policies.find(name), parts);
            lock.position = *members_since;
            if name.home().is_some() {
                lock.position = lock.position.max(*homed_since);
            }
            lock
        })
    }

    /// Returns the row of a client's request, which is not in the table of requests yet.
    pub fn new_row(&mut self, new: &NewRequest<'_>, now: Instant) -> Request {
        let mut wants = SmallVec::with_capacity(new.wants.locks().len());
        for (name, mode) in new.wants.locks() {
            wants.push(Want::new(self.activate(name), *mode));
        }
        let local = Local::new(new.lease, new.label.clone(), now);
        Request { id: new.id, at: new.at, wants, origin: Origin::Local(local), parked: false }
    }

    /// The same for a request for enough of many locks, with its first target.
    pub fn new_row_of(
        &self,
        new: &NewEnough<'_>,
        target: impl Iterator<Item = LockIndex>,
        now: Instant,
    ) -> Request {
        let mut wants: SmallVec<[Want; 1]> = target.map(|lock| Want::new(lock, Mode::Exclusive)).collect();
        sort_by_name(&self.locks, &mut wants);
        let local = Local::new(new.lease, new.label.clone(), now);
        Request { id: new.id, at: new.at, wants, origin: Origin::Local(local), parked: false }
    }

    /// Returns true if all locks that a request wants are free for it now.
    pub fn is_free(&mut self, row: &Request, now: Instant) -> bool {
        let Tables { view, policies, locks, .. } = self;
        let order = row.order();
        row.wants.iter().all(|want| locks.is_free_for(*want, order, view, policies, now))
    }

    /// Returns true if all locks that a waiting request wants are free for it.
    pub fn is_free_at_last(&mut self, request: RequestIndex, now: Instant) -> bool {
        let order = self.requests[request].order();
        self.first_not_free(request, order, now).is_none()
    }

    /// Returns a lock that a waiting request wants and that is not free for a request in this place of the
    /// order. The check begins with the lock that blocked the request last and goes round: the others mostly
    /// still are free, so a request for thousands of locks is not checked whole whenever one of them changes.
    pub fn first_not_free(&mut self, request: RequestIndex, order: Order, now: Instant) -> Option<LockIndex> {
        let Tables { view, policies, locks, requests, .. } = self;
        let row = &requests[request];
        let (first, count) = (row.local().map_or(0, |local| local.stopped_at as usize), row.wants.len());
        for i in 0..count {
            let (at, want) = ((first + i) % count, row.wants[(first + i) % count]);
            if !locks.is_free_for(want, order, view, policies, now) {
                work::count(i + 1);
                requests.set_stopped_at(request, at);
                return Some(want.lock);
            }
        }
        work::count(count);
        None
    }

    /// Makes a request in no queue the holder of its locks.
    #[inline]
    pub fn hold(&mut self, request: RequestIndex, now: Instant) {
        let Tables { view, locks, requests, .. } = self;
        requests.hold(request, now, |wants| locks.enter(request, wants, view, now));
    }

    /// Removes a held request from its locks, see [`super::acquire::LocalRequests::release`].
    pub fn release(&mut self, request: RequestIndex, position: Position, now: Instant) {
        if !self.enough.is_empty() {
            self.enough.remove(request);
        }
        let row = self.requests.remove(request);
        assert!(row.is_held(), "only held requests are released");
        debug_assert!(!row.parked, "request {} holds and waits", row.id);
        for want in &row.wants {
            if let Some((moved, place)) = self.locks.leave(*want, position, &self.policies, now) {
                self.requests.set_holder_place(moved, place, want.holder);
            }
        }
        self.gives_back |= self.requests.is_empty();
    }

    /// Inserts a request into the queues of its locks.
    pub fn enqueue(&mut self, request: RequestIndex) {
        self.locks.enqueue(request, &self.requests[request]);
    }

    /// Removes a waiting request from the queues of its locks and marks these locks.
    pub fn dequeue(&mut self, request: RequestIndex) {
        self.locks.dequeue(&self.requests[request]);
    }

    /// Removes a waiting request, and marks its locks.
    pub fn forget_waiting(&mut self, request: RequestIndex, now: Instant) {
        if self.enough.has(request) {
            self.drop_offers(request, now);
            self.enough.remove(request);
        }
        self.dequeue(request);
        let row = self.requests.remove(request);
        row.wants.iter().for_each(|want| self.locks.note_idle(want.lock, &self.policies, now));
        self.gives_back |= self.requests.is_empty();
    }

    /// Returns true if, as seen here, `request` needs a datacenter that is away, or an entry that cannot be
    /// made.
    pub fn should_park(&self, request: &Request) -> bool {
        let view = &self.view;
        let is_published = || request.local().is_some_and(|local| local.publication.is_published());
        if view.permissions.is_alone() && is_published() {
            return true;
        }
        if view.away.is_empty() && view.leaving.is_empty() {
            return false;
        }
        let leaves = view.leaving.contains(request.dc()) && request.dc() != view.me;
        if leaves && !view.bugs.has(Bug::GivenToLeaver) {
            return true;
        }
        let is_away = view.away.contains(request.dc());
        if is_away && view.bugs.has(Bug::PartsToUnreachable) {
            return false;
        }
        is_away || self.away_want(request).is_some()
    }

    /// Returns the index of a lock that a request wants and for which it needs a datacenter that is away. The
    /// search begins with the lock that blocked the request last and goes round.
    pub fn away_want(&self, request: &Request) -> Option<usize> {
        let view = &self.view;
        if view.away.is_empty() {
            return None;
        }
        let needs_away = |want: &Want| {
            let name = &self.locks[want.lock].name;
            let needed = match want.mode {
                Mode::Shared => DcSet::only(request.dc()),
                Mode::Exclusive => view.members,
            };
            needed.iter().any(|part| view.away.contains(self.owners.owner(name, part)))
        };
        let (first, count) =
            (request.local().map_or(0, |local| local.stopped_at as usize), request.wants.len());
        let found = (0..count).find(|i| needs_away(&request.wants[(first + i) % count]));
        work::count(found.map_or(count, |i| i + 1));
        found.map(|i| (first + i) % count)
    }

    /// Parks or unparks a waiting request, if it has to be.
    pub fn repark(&mut self, request: RequestIndex) {
        let row = &self.requests[request];
        let park = self.should_park(row);
        if park && self.enough.has(request) {
            self.enough.strand(request);
        }
        if park == row.parked {
            return;
        }
        if park && self.view.bugs.has(Bug::DeadDueBlocks) && self.is_due_somewhere(request) {
            return;
        }
        self.dequeue(request);
        self.requests.set_parked(request, park);
        self.enqueue(request);
        for want in &self.requests[request].wants {
            self.locks[want.lock].recheck_shared = true;
            self.locks.mark(want.lock);
        }
    }

    fn is_due_somewhere(&self, request: RequestIndex) -> bool {
        use super::queue::Class;
        let due = |class| matches!(class, Class::RemoteExclusiveDue | Class::RemoteSharedDue(_));
        self.requests[request].wants.iter().any(|want| {
            self.locks[want.lock].queue.iter().any(|(class, _, other)| other == request && due(class))
        })
    }

    /// Returns true if, as far as is known here, this request was not published before. A client may hold
    /// such a request already: it reclaimed the request before the entry arrived that published it, which an
    /// older disk had lost.
    pub fn is_news(&self, id: RequestId) -> bool {
        let Some(row) = self.requests.find(id) else { return !self.request_table.has_abandoned(id) };
        let is_held = |local: &Local| local.state != State::Waiting && !local.publication.is_published();
        self.requests[row].local().is_some_and(is_held)
    }

    /// Returns the time and the locks with which the log has a published request, or is to have it.
    pub fn as_published(&self, request: RequestIndex) -> (Timestamp, Wants) {
        self.requests[request].as_published(&self.locks, self.enough.get(request))
    }

    /// Copies a row of the request table for its readers. Called before the row changes or leaves.
    #[inline]
    pub fn note_before(&mut self, id: RequestId) {
        let Tables { locks, requests, request_table, enough, .. } = self;
        request_table.note_before(id, |request| requests[request].as_published(locks, enough.get(request)));
    }

    /// Counts the beginning of a wait for the hot locks: for the first lock of the request that is held in
    /// conflict or lacks parts.
    pub fn note_wait(&mut self, request: RequestIndex) {
        let row = &self.requests[request];
        let is_in_the_way = |want: &&Want| {
            let lock = &self.locks[want.lock];
            lock.is_held_against(want.mode)
                || (row.local().is_some() && !self.view.has_parts(lock, want.mode))
        };
        if let Some(want) = row.wants.iter().find(is_in_the_way).or(row.wants.first()) {
            self.hot_locks.waits(&self.locks[want.lock].name);
        }
    }

    /// Returns the holders that conflict with a request.
    pub fn rivals(&self, row: &Request) -> Vec<RequestIndex> {
        let mut rivals: Vec<RequestIndex> = Vec::new();
        for want in &row.wants {
            let lock = &self.locks[want.lock];
            if lock.is_held_against(want.mode) {
                rivals.extend(lock.holders.requests.iter().map(|(holder, _)| *holder));
            }
        }
        rivals.sort_unstable();
        rivals.dedup();
        rivals
    }
}
