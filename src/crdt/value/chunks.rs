//! An ordered map whose clones share everything that has not changed since.
//!
//! Snapshots, checks and uncommitted changes work on copies of values. A value may have a hundred thousand
//! elements, and a copy of all of them would take longer than a step may. So entries are kept in ordered
//! chunks. A clone shares them, and a change copies the one chunk that it touches if that is shared. A tree
//! of a crate is not used: two levels are enough for the sizes that values have, and here it is easy to see
//! that the order depends on keys alone.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer};
use serde::{Serialize, Serializer};

use crate::base::work;

/// Maximum number of entries of a chunk.
const FULL: usize = 128;

/// An ordered map in shared chunks.
#[derive(Clone)]
pub(super) struct Chunks<K, V> {
    /// In order, none empty.
    chunks: Vec<Arc<Vec<(K, V)>>>,
    len: usize,
}

impl<K, V> Default for Chunks<K, V> {
    fn default() -> Chunks<K, V> {
        Chunks { chunks: Vec::new(), len: 0 }
    }
}

impl<K, V> Chunks<K, V> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.chunks.iter().flat_map(|chunk| chunk.iter()).map(|(key, value)| (key, value))
    }

    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// Returns the keys after this one, which need not be present; all keys if it is `None`.
    pub fn keys_after<Q: Ord + ?Sized>(&self, after: Option<&Q>) -> impl Iterator<Item = &K>
    where
        K: Borrow<Q>,
    {
        let is_before = move |key: &K| after.is_some_and(|after| key.borrow() <= after);
        let start =
            self.chunks.partition_point(|chunk| chunk.last().is_some_and(|(last, _)| is_before(last)));
        let rest = self.chunks[start..].iter().flat_map(|chunk| chunk.iter()).map(|(key, _)| key);
        rest.skip_while(move |key| is_before(key))
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }
}

/// Returns a chunk that no clone shares, copied if need be.
fn own<K: Clone, V: Clone>(chunk: &mut Arc<Vec<(K, V)>>) -> &mut Vec<(K, V)> {
    if Arc::strong_count(chunk) > 1 {
        work::count(chunk.len());
    }
    Arc::make_mut(chunk)
}

impl<K: Ord + Clone, V: Clone> Chunks<K, V> {
    /// Returns the chunk that has this key or could take it, and the place of the key in it.
    fn find<Q: Ord + ?Sized>(&self, key: &Q) -> (usize, Result<usize, usize>)
    where
        K: Borrow<Q>,
    {
        let after = self.chunks.partition_point(|chunk| chunk[0].0.borrow() <= key);
        let chunk = after.saturating_sub(1);
        let entries = self.chunks.get(chunk).map_or(&[][..], |chunk| &chunk[..]);
        (chunk, entries.binary_search_by(|(other, _)| other.borrow().cmp(key)))
    }

    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let (chunk, place) = self.find(key);
        place.ok().map(|place| &self.chunks[chunk][place].1)
    }

    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.find(key).1.is_ok()
    }

    /// Returns the value of a key, inserted if it is absent.
    pub fn entry<'a, Q: Ord + ?Sized>(&mut self, key: &'a Q) -> &mut V
    where
        K: Borrow<Q> + From<&'a Q>,
        V: Default,
    {
        let (mut chunk, place) = self.find(key);
        let mut place = match place {
            Ok(place) => return &mut own(&mut self.chunks[chunk])[place].1,
            Err(place) => place,
        };
        if self.chunks.is_empty() {
            self.chunks.push(Arc::default());
        } else if self.chunks[chunk].len() == FULL {
            let upper = own(&mut self.chunks[chunk]).split_off(FULL / 2);
            self.chunks.insert(chunk + 1, Arc::new(upper));
            if place > FULL / 2 {
                (chunk, place) = (chunk + 1, place - FULL / 2);
            }
        }
        self.len += 1;
        let entries = own(&mut self.chunks[chunk]);
        entries.insert(place, (K::from(key), V::default()));
        debug_assert!(entries.len() <= FULL, "a chunk has a bound");
        // The others were in order before.
        let beside = &entries[place.saturating_sub(1)..entries.len().min(place + 2)];
        debug_assert!(beside.is_sorted_by(|a, b| a.0 < b.0), "entries are in order");
        &mut entries[place].1
    }

    /// Removes a key. Returns true if it was present.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        let (chunk, Ok(place)) = self.find(key) else { return false };
        self.len -= 1;
        let entries = own(&mut self.chunks[chunk]);
        entries.remove(place);
        let left = entries.len();
        if left == 0 {
            self.chunks.remove(chunk);
        } else if self.chunks.get(chunk + 1).is_some_and(|next| left + next.len() <= FULL / 2) {
            let next = self.chunks.remove(chunk + 1);
            own(&mut self.chunks[chunk]).extend(next.iter().cloned());
        }
        debug_assert!(self.chunks.get(chunk).is_none_or(|chunk| !chunk.is_empty()), "no chunk is empty");
        true
    }

    /// Calls `keep` on all entries and removes those for which it returns false.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        self.chunks.retain_mut(|chunk| {
            let entries = own(chunk);
            entries.retain_mut(|(key, value)| keep(key, value));
            !entries.is_empty()
        });
        self.len = self.chunks.iter().map(|chunk| chunk.len()).sum();
        debug_assert!(self.chunks.iter().all(|chunk| !chunk.is_empty()), "no chunk is empty");
    }
}

impl<K: Ord + Clone, V: Clone> FromIterator<(K, V)> for Chunks<K, V> {
    /// Builds a map from entries in any order; of several with one key the last one stays.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Chunks<K, V> {
        let sorted: BTreeMap<K, V> = entries.into_iter().collect();
        let len = sorted.len();
        let mut chunks = Vec::with_capacity(len.div_ceil(FULL));
        let mut entries = sorted.into_iter().peekable();
        while entries.peek().is_some() {
            chunks.push(Arc::new(entries.by_ref().take(FULL).collect()));
        }
        debug_assert_eq!(len, chunks.iter().map(|chunk: &Arc<Vec<(K, V)>>| chunk.len()).sum::<usize>());
        Chunks { chunks, len }
    }
}

/// True if the entries are equal, however they are divided into chunks.
impl<K: PartialEq, V: PartialEq> PartialEq for Chunks<K, V> {
    fn eq(&self, other: &Chunks<K, V>) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl<K: Eq, V: Eq> Eq for Chunks<K, V> {}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Chunks<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// As any other map.
impl<K: Serialize, V: Serialize> Serialize for Chunks<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = serializer.serialize_map(Some(self.len))?;
        self.iter().try_for_each(|(key, value)| map.serialize_entry(key, value))?;
        map.end()
    }
}

impl<'de, K: Ord + Clone + Deserialize<'de>, V: Clone + Deserialize<'de>> Deserialize<'de> for Chunks<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Chunks<K, V>, D::Error> {
        Ok(BTreeMap::<K, V>::deserialize(deserializer)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::crdt::value::element::Element;

    fn name(n: u16) -> [u8; 2] {
        n.to_be_bytes()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn it_is_a_map_and_its_clones_stay_as_they_were(
            moves in proptest::collection::vec((0..600_u16, 0..10_u8), 1..2_000),
        ) {
            let mut map = Chunks::<Element, u64>::default();
            let mut model = BTreeMap::<Element, u64>::new();
            let mut kept = Vec::new();
            for (i, (n, what)) in moves.into_iter().enumerate() {
                match what {
                    0..6 => {
                        *map.entry(&name(n)[..]) = i as u64;
                        model.insert(Element::from(&name(n)[..]), i as u64);
                    }
                    6..9 => prop_assert_eq!(map.remove(&name(n)[..]), model.remove(&name(n)[..]).is_some()),
                    _ if i % 40 == 0 => {
                        map.retain(|_, value| *value % 3 != 0);
                        model.retain(|_, value| *value % 3 != 0);
                    }
                    _ => kept.push((map.clone(), model.clone())),
                }
                prop_assert_eq!(map.get(&name(n)[..]), model.get(&name(n)[..]));
                prop_assert_eq!(map.len(), model.len());
            }
            for n in [None, Some(0_u16), Some(300), Some(599)] {
                let after = n.map(name);
                let keys = map.keys_after(after.as_ref().map(|key| &key[..]));
                prop_assert!(keys.eq(model.keys().filter(|key| after.is_none_or(|after| key.as_bytes() > &after[..]))));
            }
            kept.push((map, model));
            for (map, model) in kept.into_iter().rev().take(20) {
                prop_assert!(map.iter().eq(model.iter()));
                prop_assert!(map.chunks.iter().all(|chunk| (1..=FULL).contains(&chunk.len())));
                prop_assert_eq!(map, model.into_iter().collect::<Chunks<Element, u64>>());
            }
        }
    }
}
