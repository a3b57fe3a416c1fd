//! The requests of one lease, waiting and held, and an index of those with an idempotency key.

use smallvec::SmallVec;

use crate::base::keyed_map::KeyedMap;
use crate::lock_state::RequestIndex;
use geolock_api::names::IdempotencyKey;

/// Below this capacity, unused memory is not released.
const KEPT: usize = 64;

/// Requests, each at an index that its caller remembers.
#[derive(Default)]
pub(crate) struct Requests(SmallVec<[RequestIndex; 4]>);

impl Requests {
    /// Inserts a request. Returns its index.
    pub fn insert(&mut self, request: RequestIndex) -> u32 {
        self.0.push(request);
        self.0.len() as u32 - 1
    }

    /// Removes the request at this index. Returns the request that moved to this index, if any.
    pub fn remove(&mut self, place: u32, request: RequestIndex) -> Option<RequestIndex> {
        let last = self.0.pop().expect("a request that ends is there");
        if last == request {
            return None;
        }
        let removed = std::mem::replace(&mut self.0[place as usize], last);
        assert_eq!(removed, request, "a request stands where its ticket says");
        if self.0.capacity() > KEPT && self.0.len() < self.0.capacity() / 8 {
            self.0.shrink_to_fit();
        }
        Some(last)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns all requests, sorted by row.
    pub fn sorted(&self) -> Vec<RequestIndex> {
        let mut all = self.0.to_vec();
        all.sort_unstable();
        all
    }
}

/// Requests by idempotency key. Most clients have one request at a time: that one needs no table.
pub(crate) struct Keys {
    one: Option<(IdempotencyKey, RequestIndex)>,
    others: KeyedMap<IdempotencyKey, RequestIndex>,
}

impl Keys {
    /// Returns an empty index. `hash_seed` keeps clients from choosing keys that collide.
    pub fn new(hash_seed: u64) -> Keys {
        Keys { one: None, others: KeyedMap::with_seed(hash_seed) }
    }

    pub fn get(&self, key: IdempotencyKey) -> Option<RequestIndex> {
        match self.one {
            Some((one, request)) if one == key => Some(request),
            _ if self.others.is_empty() => None,
            _ => self.others.get(&key).copied(),
        }
    }

    /// Returns true if no request has a key.
    pub fn is_empty(&self) -> bool {
        self.one.is_none() && self.others.is_empty()
    }

    /// Inserts a key that is not in the index.
    pub fn insert(&mut self, key: IdempotencyKey, request: RequestIndex) {
        debug_assert!(self.get(key).is_none(), "key {key} belongs to one request at a time");
        match self.one {
            None => self.one = Some((key, request)),
            Some(_) => {
                let before = self.others.insert(key, request);
                assert!(before.is_none(), "key {key} belongs to one request at a time");
            }
        }
    }

    pub fn remove(&mut self, key: IdempotencyKey) {
        if self.one.take_if(|(one, _)| *one == key).is_some() {
            return;
        }
        self.others.remove(&key).expect("a key is there until its request is over");
        if self.others.capacity() > KEPT && self.others.len() < self.others.capacity() / 8 {
            self.others.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn keys_are_a_map(steps in proptest::collection::vec((0_u64..200, any::<bool>()), 0..600)) {
            let (mut keys, mut map) = (Keys::new(7), BTreeMap::new());
            for (i, (key, insert)) in (0_u32..).zip(steps) {
                if !map.contains_key(&key) && insert {
                    keys.insert(key, RequestIndex(i));
                    map.insert(key, RequestIndex(i));
                } else if map.remove(&key).is_some() {
                    keys.remove(key);
                }
                prop_assert!((0..200).all(|key| keys.get(key) == map.get(&key).copied()));
            }
        }

        #[test]
        fn requests_know_their_places(steps in proptest::collection::vec((0_u32..300, any::<bool>()), 0..600)) {
            let (mut requests, mut places) = (Requests::default(), BTreeMap::new());
            for (row, insert) in steps {
                let request = RequestIndex(row);
                if let Some(place) = places.remove(&request) {
                    if let Some(moved) = requests.remove(place, request) {
                        places.insert(moved, place);
                    }
                } else if insert {
                    places.insert(request, requests.insert(request));
                }
                prop_assert_eq!(requests.sorted(), places.keys().copied().collect::<Vec<_>>());
            }
        }
    }
}
