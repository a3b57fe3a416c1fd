//! A hash map that cannot be iterated.
#![expect(clippy::disallowed_types, reason = "this is the one place that wraps it")]

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// A hash map without iteration, so that the order of hashes cannot reach an effect, a byte or a digest. Pure
/// modules use no other hash map. A state machine that must visit all values keeps them in rows, and the row
/// numbers in here.
#[derive(Clone, Debug)]
pub struct KeyedMap<K, V, S = FixedState>(HashMap<K, V, S>);

impl<K, V> KeyedMap<K, V> {
    /// Returns an empty map. `hash_seed` keeps clients from choosing keys that collide.
    pub fn with_seed(hash_seed: u64) -> KeyedMap<K, V> {
        KeyedMap(HashMap::with_hasher(FixedState::with_seed(hash_seed)))
    }
}

impl<K, V, S: Default> Default for KeyedMap<K, V, S> {
    fn default() -> KeyedMap<K, V, S> {
        KeyedMap(HashMap::default())
    }
}

impl<K, V, S> KeyedMap<K, V, S> {
    /// Returns the number of keys.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there is no key.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of keys that fit without an allocation.
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

impl<K: Eq + Hash, V, S: BuildHasher> KeyedMap<K, V, S> {
    /// Returns the value of a key.
    #[inline]
    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.0.get(key)
    }

    /// Returns the value of a key, to be changed.
    #[inline]
    pub fn get_mut<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.0.get_mut(key)
    }

    /// Returns true if the key has a value.
    #[inline]
    pub fn contains_key<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.0.contains_key(key)
    }

    /// Sets the value of a key, and returns the previous one.
    #[inline]
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.0.insert(key, value)
    }

    /// Removes a key, and returns its value.
    #[inline]
    pub fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.0.remove(key)
    }

    /// Releases memory that the present keys do not need.
    pub fn shrink_to_fit(&mut self) {
        self.0.shrink_to_fit();
    }
}
