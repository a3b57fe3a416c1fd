//! Index of requests by id.
//!
//! A datacenter numbers its own requests, and nearly all of them are over soon. So the last few thousand
//! numbers are kept in a ring, contiguous in memory. A request that is still there when the ring comes round
//! moves to a hash table, which also has the requests of other datacenters. So a short request touches the
//! same memory as the one before it, however many others wait or are held. In a single hash table each
//! request would hit a slot of its own that is in no cache.

use std::hash::BuildHasher;

use rustc_hash::FxBuildHasher;

use super::request::RequestIndex;
use crate::base::tables::{Index, short_hash};
use geolock_api::names::{DcId, MAX_NUMBER, RequestId};

/// Capacity of the ring.
const RING: usize = 1 << 12;
/// Index of requests by id.
pub(super) struct IdIndex {
    me: DcId,
    /// Each with its number; a free slot has no request.
    ring: Box<[(u64, Option<RequestIndex>)]>,
    others: Index,
}

impl IdIndex {
    pub fn new(me: DcId) -> IdIndex {
        IdIndex { me, ring: vec![(0, None); RING].into(), others: Index::default() }
    }

    #[inline]
    pub fn get(&self, id: RequestId, id_of: impl Fn(RequestIndex) -> RequestId) -> Option<RequestIndex> {
        let (n, request) = self.ring[place(id)];
        if n == id.n && id.dc == self.me && request.is_some() {
            return request;
        }
        self.others.find(hash(id), |row| id_of(RequestIndex(row)) == id).map(RequestIndex)
    }

    /// Inserts a request that is not in the index.
    #[inline]
    pub fn insert(&mut self, id: RequestId, request: RequestIndex) {
        assert!(id.n <= MAX_NUMBER, "request {id} has a number");
        let (n, before) = self.ring[place(id)];
        // A request that is reclaimed after a restart may be older than the one in its slot.
        if id.dc == self.me && (before.is_none() || n < id.n) {
            self.ring[place(id)] = (id.n, Some(request));
            if let Some(before) = before {
                self.others.insert(hash(RequestId { dc: self.me, n }), before.0);
            }
        } else {
            assert!(id.dc != self.me || n != id.n, "request {id} is entered twice");
            self.others.insert(hash(id), request.0);
        }
    }

    #[inline]
    pub fn remove(&mut self, id: RequestId, request: RequestIndex) {
        let slot = &mut self.ring[place(id)];
        if slot.0 == id.n && id.dc == self.me && slot.1.is_some() {
            assert_eq!(slot.1, Some(request), "request {id} is removed from its own place");
            slot.1 = None;
        } else {
            debug_assert!(id.n <= MAX_NUMBER, "request {id} has a number");
            self.others.remove(hash(id), request.0);
        }
    }
}

fn hash(id: RequestId) -> u32 {
    short_hash(FxBuildHasher.hash_one(id))
}

fn place(id: RequestId) -> usize {
    id.n as usize % RING
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::collections::btree_map::Entry;

    fn id(dc: u8, n: u64) -> RequestId {
        RequestId { dc: DcId::new(dc).expect("a small id"), n }
    }

    proptest! {
        #[test]
        fn it_is_a_map(steps in proptest::collection::vec((0_u8..2, 0_u64..3, 0_u64..6, any::<bool>()), 0..200)) {
            let (mut id_index, mut map, mut ids) = (IdIndex::new(id(0, 0).dc), BTreeMap::new(), Vec::new());
            for (i, (dc, place, round, insert)) in (0_u32..).zip(steps) {
                let id = id(dc, place + round * RING as u64);
                ids.push(id);
                if !insert {
                    map.remove(&id).into_iter().for_each(|request| id_index.remove(id, request));
                } else if let Entry::Vacant(vacant) = map.entry(id) {
                    id_index.insert(id, RequestIndex(i));
                    vacant.insert(RequestIndex(i));
                }
                for (dc, n) in (0..2).flat_map(|dc| (0..3).map(move |n| (dc, n))) {
                    for round in 0..6 {
                        let id = self::id(dc, n + round * RING as u64);
                        prop_assert_eq!(id_index.get(id, |request| ids[request.0 as usize]), map.get(&id).copied());
                    }
                }
            }
        }
    }

    #[test]
    fn a_free_place_is_no_request() {
        let id_index = IdIndex::new(id(0, 0).dc);
        assert_eq!([0, 1, u64::MAX].map(|n| id_index.get(id(0, n), |_| id(0, n))), [None; 3]);
    }

    #[test]
    #[should_panic(expected = "entered twice")]
    fn nothing_is_entered_twice() {
        let mut id_index = IdIndex::new(id(0, 0).dc);
        id_index.insert(id(0, 7), RequestIndex(1));
        id_index.insert(id(0, 7), RequestIndex(2));
    }
}
