//! Index of watches by name: finds the watches that follow a name, independent of what other watches follow.
//!
//! Prefixes are in one ordered map. To find those of a name, the search goes down from the name: the greatest
//! key that is not above it either is a prefix of the name, or shows how long the next prefix can be at most.
//! So a search costs as much as its matches, and a few steps more.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::super::call::CallId;
use crate::replica::call::watch::Pattern;

/// Watches by the names and prefixes that they follow.
#[derive(Default)]
pub(super) struct Index {
    exact: Lists,
    prefixes: Lists,
}

type Lists = BTreeMap<Arc<[u8]>, BTreeSet<CallId>>;

impl Index {
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.prefixes.is_empty()
    }

    pub fn insert(&mut self, call: CallId, patterns: &[Pattern]) {
        for pattern in patterns {
            let (lists, bytes) = self.lists(pattern);
            lists.entry(bytes.into()).or_default().insert(call);
        }
    }

    pub fn remove(&mut self, call: CallId, patterns: &[Pattern]) {
        for pattern in patterns {
            let (lists, bytes) = self.lists(pattern);
            if let Some(calls) = lists.get_mut(bytes) {
                calls.remove(&call);
                if calls.is_empty() {
                    lists.remove(bytes);
                }
            }
        }
    }

    fn lists<'a, 'b>(&'a mut self, pattern: &'b Pattern) -> (&'a mut Lists, &'b [u8]) {
        match pattern {
            Pattern::Exactly(bytes) => (&mut self.exact, bytes),
            Pattern::Lock(name) => (&mut self.exact, name.identity()),
            Pattern::BeginsWith(bytes) => (&mut self.prefixes, bytes),
        }
    }

    /// Returns the watches that follow any of `names`, each with the indices of the names that it follows.
    /// A name is its identity, and its bytes: the two differ for locks, whose home is in the identity only.
    pub fn matches<'a>(
        &self,
        names: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> BTreeMap<CallId, Vec<usize>> {
        let mut matches: BTreeMap<CallId, Vec<usize>> = BTreeMap::new();
        if self.is_empty() {
            return matches;
        }
        for (place, (identity, bytes)) in names.enumerate() {
            self.each((identity, bytes), |call| {
                let places = matches.entry(call).or_default();
                // A name may match several patterns of a watch.
                if places.last() != Some(&place) {
                    places.push(place);
                }
            });
        }
        matches
    }

    fn each(&self, (identity, name): (&[u8], &[u8]), mut found: impl FnMut(CallId)) {
        if let Some(calls) = self.exact.get(identity) {
            calls.iter().for_each(|call| found(*call));
        }
        let mut below = Bound::Included(name);
        while let Some((prefix, calls)) =
            self.prefixes.range::<[u8], _>((Bound::Unbounded, below)).next_back()
        {
            if name.starts_with(prefix) {
                calls.iter().for_each(|call| found(*call));
                below = Bound::Excluded(prefix);
            } else {
                // Nothing between this key and the name is a prefix of the name, so no prefix is longer than
                // their common part.
                let common = name.iter().zip(prefix.iter()).take_while(|(a, b)| a == b).count();
                below = Bound::Included(&name[..common]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leases::SessionId;
    use geolock_api::names::{DcId, LockName};
    use proptest::prelude::*;

    fn call(tag: u64) -> CallId {
        CallId { session: SessionId(1), tag }
    }

    fn names() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(0_u8..3, 0..6)
    }

    fn patterns() -> impl Strategy<Value = Pattern> {
        (names(), any::<bool>()).prop_map(|(name, exactly)| {
            if exactly { Pattern::Exactly(name.into()) } else { Pattern::BeginsWith(name.into()) }
        })
    }

    fn follows(pattern: &Pattern, name: &[u8]) -> bool {
        match pattern {
            Pattern::Exactly(bytes) => **bytes == *name,
            Pattern::Lock(_) => false,
            Pattern::BeginsWith(bytes) => name.starts_with(bytes),
        }
    }

    proptest! {
        #[test]
        fn it_finds_who_follows_and_nobody_else(
            watches in proptest::collection::vec(proptest::collection::vec(patterns(), 1..4), 0..8),
            gone in proptest::collection::vec(any::<bool>(), 8),
            asked in proptest::collection::vec(names(), 0..5),
        ) {
            let mut index = Index::default();
            let all = || watches.iter().enumerate().map(|(i, patterns)| (call(i as u64), patterns, gone[i]));
            all().for_each(|(call, patterns, _)| index.insert(call, patterns));
            all().filter(|(.., gone)| *gone).for_each(|(call, patterns, _)| index.remove(call, patterns));
            let mut expected = BTreeMap::new();
            for (call, patterns, _) in all().filter(|(.., gone)| !gone) {
                let matching = |name: &Vec<u8>| patterns.iter().any(|pattern| follows(pattern, name));
                let places: Vec<usize> = (0..asked.len()).filter(|i| matching(&asked[*i])).collect();
                if !places.is_empty() {
                    expected.insert(call, places);
                }
            }
            prop_assert_eq!(index.matches(asked.iter().map(|name| (&name[..], &name[..]))), expected);
        }
    }

    #[test]
    fn a_home_tells_locks_apart_and_a_prefix_does_not() {
        let lock = |home| LockName::with_home(home, b"a/1").expect("valid");
        let homes = [None, DcId::new(1), DcId::new(2)].map(lock);
        let mut index = Index::default();
        for (tag, name) in homes.iter().enumerate() {
            index.insert(call(tag as u64), &[Pattern::lock(name)]);
        }
        index.insert(call(9), &[Pattern::locks(b"a/").expect("short")]);
        for (tag, name) in homes.iter().enumerate() {
            let found = index.matches(std::iter::once((name.identity(), name.as_bytes())));
            assert_eq!(found.into_keys().collect::<Vec<_>>(), [call(tag as u64), call(9)]);
        }
    }

    #[test]
    fn nothing_stays_of_those_who_left() {
        let mut index = Index::default();
        let patterns = [Pattern::Exactly((*b"a").into()), Pattern::BeginsWith((*b"").into())];
        index.insert(call(1), &patterns);
        index.remove(call(1), &patterns);
        assert!(index.is_empty());
    }
}
