//! The requests that are known here: those of local clients, waiting or held, and the published ones of other
//! datacenters.

use std::cmp::Ordering;
use std::ops::Index;

use smallvec::SmallVec;

use super::id_index::IdIndex;
use super::lock::LockIndex;
use super::request::{Local, Origin, Publication, Request, RequestIndex, State, Want};
use crate::base::tables::{RowIndex, Rows};
use crate::base::time::{Instant, Timestamp};
use geolock_api::names::{DcId, FencingToken, Mode, Position, RequestId};

/// A row for each request, by index and by id, and how many there are of each kind.
pub(crate) struct Requests {
    rows: Rows<Request, RequestIndex>,
    by_id: IdIndex,
    counts: RequestCounts,
}

/// Numbers of requests, see [`crate::replica::call::Counts`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct RequestCounts {
    pub held: u64,
    pub waiting: u64,
    pub published: u64,
    pub remote: u64,
    pub parked: u64,
    /// Number of locks that local requests want, not counting the first lock of each.
    pub further: u64,
}

impl Requests {
    pub(super) fn new(me: DcId) -> Requests {
        Requests { rows: Rows::new(), by_id: IdIndex::new(me), counts: RequestCounts::default() }
    }

    #[inline]
    pub fn counts(&self) -> RequestCounts {
        self.counts
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the row of a request that is known here.
    #[inline]
    pub fn find(&self, id: RequestId) -> Option<RequestIndex> {
        self.by_id.get(id, |request| self.rows[request].id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (RequestIndex, &Request)> {
        self.rows.iter()
    }

    /// Returns an upper bound: every row is below it.
    pub(super) fn end(&self) -> usize {
        self.rows.end()
    }

    /// Returns the request of a row, with its index, if there is one.
    pub(super) fn at(&self, row: usize) -> Option<(RequestIndex, &Request)> {
        let index = RequestIndex::from_row(row);
        Some((index, self.rows.get(index)?))
    }

    #[inline]
    pub(super) fn insert(&mut self, row: Request) -> RequestIndex {
        let id = row.id;
        self.counts.further += row.further();
        self.counts.parked += u64::from(row.parked);
        match row.origin {
            Origin::Local(_) => self.counts.waiting += 1,
            Origin::Remote { .. } => self.counts.remote += 1,
        }
        let index = self.rows.insert(row);
        self.by_id.insert(id, index);
        debug_assert_eq!(self.find(id), Some(index), "request {id} is found by its id");
        index
    }

    /// Removes a request that is in no queue any more.
    #[inline]
    pub(super) fn remove(&mut self, request: RequestIndex) -> Request {
        let id = self.rows[request].id;
        debug_assert_eq!(self.find(id), Some(request), "request {id} is found by its id");
        let row = self.rows.remove(request);
        self.by_id.remove(row.id, request);
        match &row.origin {
            Origin::Local(local) if local.state == State::Waiting => self.counts.waiting -= 1,
            Origin::Local(_) => self.counts.held -= 1,
            Origin::Remote { .. } => self.counts.remote -= 1,
        }
        self.counts.parked -= u64::from(row.parked);
        self.counts.further -= row.further();
        row
    }

    /// Makes a waiting request a held one. `enter`: makes it a holder of its locks, and returns the position
    /// of the journal that the grant depends on.
    #[inline]
    pub(super) fn hold(
        &mut self,
        request: RequestIndex,
        now: Instant,
        enter: impl FnOnce(&mut [Want]) -> Position,
    ) {
        let row = &mut self.rows[request];
        let ready = enter(&mut row.wants);
        let local = row.local_mut().expect("only local requests are granted");
        assert_eq!(local.state, State::Waiting, "a request is granted once");
        debug_assert!(!local.publication.is_published(), "a granted request was withdrawn");
        local.state = State::Granted { since: now, ready };
        self.counts.waiting -= 1;
        self.counts.held += 1;
    }

    /// Sets the token of a granted request. Returns its row as it is then, and the position of the journal
    /// that the grant depends on.
    pub(super) fn set_token(
        &mut self,
        request: RequestIndex,
        token: FencingToken,
    ) -> (RequestId, &Local, Position) {
        let row = &mut self.rows[request];
        let id = row.id;
        let local = row.local_mut().expect("only local requests are granted");
        let State::Granted { since, ready } = local.state else {
            unreachable!("a request gets one token, in the step in which it is granted")
        };
        local.state = State::Held { token, since, ready };
        (id, local, ready)
    }

    /// Sets the place of a holder among those of one of its locks.
    #[inline]
    pub(super) fn set_holder_place(&mut self, request: RequestIndex, want: u32, holder: u32) {
        debug_assert!(self.rows[request].is_held(), "a holder that moves holds");
        self.rows[request].wants[want as usize].holder = holder;
    }

    /// Returns the index of a lock among the wants of a request, which are in the order of names.
    pub(super) fn place_of(
        &self,
        request: RequestIndex,
        compare: impl Fn(&Want) -> Ordering,
    ) -> Option<usize> {
        self.rows[request].wants.binary_search_by(compare).ok()
    }

    /// Records that an exclusive hold is a shared one from now on. Returns its lock.
    pub(super) fn downgrade(&mut self, request: RequestIndex, want: usize) -> LockIndex {
        let row = &mut self.rows[request];
        assert!(row.is_held(), "request {} is downgraded while it is held", row.id);
        let want = &mut row.wants[want];
        debug_assert_eq!(want.mode, Mode::Exclusive, "a hold is downgraded once");
        (want.mode, want.is_downgraded) = (Mode::Shared, true);
        want.lock
    }

    /// Records which of its locks was not free for a waiting request.
    pub(super) fn set_stopped_at(&mut self, request: RequestIndex, want: usize) {
        let local = self.rows[request].local_mut().expect("only local requests are granted");
        debug_assert_eq!(local.state, State::Waiting, "a request that stops at a lock waits");
        local.stopped_at = want as u32;
    }

    pub(super) fn set_parked(&mut self, request: RequestIndex, parked: bool) {
        let row = &mut self.rows[request];
        assert!(row.parked != parked, "request {} changes its place", row.id);
        row.parked = parked;
        if parked {
            self.counts.parked += 1;
        } else {
            self.counts.parked -= 1;
        }
    }

    /// Records that the entry of this step publishes a request. Returns false if it was published before.
    pub(super) fn publish(&mut self, request: RequestIndex) -> bool {
        let local = self.rows[request].local_mut().expect("only local requests are published");
        let is_new = local.publication == Publication::Unpublished;
        debug_assert_eq!(local.state, State::Waiting, "a request is published while it waits");
        if is_new {
            local.publication = Publication::InThisStep;
            self.counts.published += 1;
        }
        is_new
    }

    /// Records that the entry of this step withdraws a request under its old id and publishes it again.
    pub(super) fn publish_again(&mut self, request: RequestIndex) {
        let local = self.rows[request].local_mut().expect("only local requests are published");
        assert_eq!(
            local.publication,
            Publication::Withdrawn,
            "a request that is published again was withdrawn"
        );
        local.publication = Publication::InThisStep;
        self.counts.published += 1;
    }

    /// Gives a waiting request another id.
    pub(super) fn rename(&mut self, request: RequestIndex, id: RequestId) {
        let old = self.rows[request].id;
        debug_assert!(self.find(id).is_none() && old.n < id.n, "{id} is new, {old} becomes that");
        self.by_id.remove(old, request);
        self.rows[request].id = id;
        self.by_id.insert(id, request);
    }

    /// Changes the time of a waiting request, in tests.
    pub(super) fn set_at(&mut self, request: RequestIndex, at: Timestamp) {
        self.rows[request].at = at;
    }

    /// Changes the locks of a waiting request that is in no queue.
    pub(super) fn set_wants(&mut self, request: RequestIndex, wants: SmallVec<[Want; 1]>) {
        let row = &mut self.rows[request];
        assert!(!row.is_held() && !wants.is_empty(), "request {} waits for something else", row.id);
        self.counts.further -= row.further();
        row.wants = wants;
        self.counts.further += row.further();
        row.local_mut().expect("requests of others stay as they are").stopped_at = 0;
    }

    /// Adds a lock to the wants of a waiting request. Returns its index among them.
    pub(super) fn push_want(&mut self, request: RequestIndex, want: Want) -> usize {
        let row = &mut self.rows[request];
        debug_assert!(!row.is_held(), "request {} waits", row.id);
        row.wants.push(want);
        self.counts.further += u64::from(row.local().is_some());
        row.wants.len() - 1
    }

    /// Removes a lock from the wants of a waiting request, which has others. Returns the one that took its
    /// index, if any.
    pub(super) fn swap_remove_want(&mut self, request: RequestIndex, want: usize) -> Option<Want> {
        let row = &mut self.rows[request];
        assert!(!row.is_held() && row.wants.len() > 1, "request {} waits for something else", row.id);
        row.wants.swap_remove(want);
        self.counts.further -= u64::from(row.local().is_some());
        row.wants.get(want).copied()
    }

    /// Records the entry that published a request.
    pub(super) fn note_published(&mut self, request: RequestIndex, seq: u64) {
        let row = &mut self.rows[request];
        let id = row.id;
        let local = row.local_mut().expect("only local requests are published");
        assert_eq!(local.publication, Publication::InThisStep, "request {id} is published once");
        debug_assert!(seq > 0, "entries are numbered from 1");
        local.publication = Publication::Published { seq };
    }

    /// Records that a request is not to be published, or to be withdrawn. Returns its publication before.
    #[inline]
    pub(super) fn withdraw(&mut self, request: RequestIndex) -> (RequestId, Publication) {
        let row = &mut self.rows[request];
        let id = row.id;
        let local = row.local_mut().expect("only own requests are withdrawn");
        let before = local.publication;
        local.publication = match before {
            Publication::Unpublished | Publication::Withdrawn => return (id, before),
            Publication::InThisStep => Publication::Unpublished,
            Publication::Published { .. } => Publication::Withdrawn,
        };
        self.counts.published -= 1;
        (id, before)
    }

    /// Releases some memory if there are no rows and there were many. Returns true if there is more to
    /// release.
    pub(super) fn give_back(&mut self) -> bool {
        self.rows.give_back()
    }
}

impl Index<RequestIndex> for Requests {
    type Output = Request;

    #[inline]
    fn index(&self, request: RequestIndex) -> &Request {
        &self.rows[request]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::tables::short_hash;
    use rustc_hash::{FxBuildHasher, FxHashMap};
    use std::hash::BuildHasher;

    fn remote(id: RequestId) -> Request {
        let at = Timestamp::from_millis(1);
        Request { id, at, wants: SmallVec::new(), origin: Origin::Remote { seq: 1 }, parked: false }
    }

    #[test]
    fn of_two_requests_with_one_hash_the_right_one_is_removed() {
        let [me, other] = [0, 1].map(|dc| DcId::new(dc).expect("a small id"));
        let mut seen = FxHashMap::default();
        let (one, two) = (1..)
            .map(|n| RequestId { dc: other, n })
            .find_map(|id| Some((seen.insert(short_hash(FxBuildHasher.hash_one(id)), id)?, id)))
            .expect("there are more numbers than hashes");
        for removed in [one, two] {
            let mut requests = Requests::new(me);
            let rows = [one, two].map(|id| requests.insert(remote(id)));
            let place = usize::from(removed == two);
            assert_eq!(requests.remove(rows[place]).id, removed);
            assert_eq!([one, two].map(|id| requests.find(id).is_some()), [removed != one, removed != two]);
        }
    }
}
