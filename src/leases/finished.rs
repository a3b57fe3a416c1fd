//! Keys of a lease that are over although no higher key was used: their acquire may still be under way
//! (`docs/algorithm/grants.md#16-idempotency-keys`).

use std::collections::BTreeSet;

use geolock_api::names::IdempotencyKey;

/// Maximum number of them that a lease remembers one by one.
const MAX_FINISHED: usize = 128;
/// Maximum number of keys that a lease remembers as waiting.
const MAX_WAITING: usize = 1_024;

/// The keys of a lease that are over. Clients use increasing keys, so the highest key used stands for all
/// below it. A key above it can be over, too: its cancel overtook its acquire, or the server restarted and
/// lost the record of used keys, and the request was reclaimed and released.
#[derive(Default)]
pub(crate) struct FinishedKeys {
    /// The highest key used.
    last: Option<IdempotencyKey>,
    /// Keys above `last` that are over.
    above: BTreeSet<IdempotencyKey>,
    /// Keys of deferred calls that have neither begun nor ended since: the use of higher keys does not end
    /// them. They stay even when their session is lost, because their client asks again.
    waiting: BTreeSet<IdempotencyKey>,
}

impl FinishedKeys {
    /// Returns true if nothing new may begin under this key.
    #[inline]
    pub fn is_over(&self, key: IdempotencyKey) -> bool {
        self.last.is_some_and(|last| key <= last && !self.waiting.contains(&key))
            || self.is_over_by_itself(key)
    }

    /// The same, but use of a higher key does not count: after a restart, a client reclaims its requests in
    /// any order.
    #[inline]
    pub fn is_over_by_itself(&self, key: IdempotencyKey) -> bool {
        !self.above.is_empty() && self.above.contains(&key)
    }

    /// Records that the key is used now.
    #[inline]
    pub fn begin(&mut self, key: Option<IdempotencyKey>) {
        self.last = key.max(self.last);
        if let Some(key) = key {
            self.end_wait(key);
            debug_assert!(self.is_over(key), "key {key} is used once");
        }
    }

    /// Records that the call of this key is deferred. Beyond the limit, further keys are not remembered.
    pub fn wait(&mut self, key: IdempotencyKey) {
        if self.waiting.len() < MAX_WAITING {
            self.waiting.insert(key);
        }
    }

    #[inline]
    fn end_wait(&mut self, key: IdempotencyKey) {
        if !self.waiting.is_empty() {
            self.waiting.remove(&key);
        }
    }

    /// Records that the request of this key is over, or may not begin any more. Beyond the limit, the lowest
    /// of these keys stands for all below it.
    #[inline]
    pub fn finish(&mut self, key: IdempotencyKey) {
        self.end_wait(key);
        if self.last.is_none_or(|last| key > last) {
            self.remember(key);
        }
        debug_assert!(self.is_over(key), "nothing begins under key {key} any more");
    }

    #[cold]
    fn remember(&mut self, key: IdempotencyKey) {
        if let Some(last) = self.last {
            self.above = self.above.split_off(&last);
        }
        self.above.insert(key);
        if self.above.len() > MAX_FINISHED {
            self.last = self.above.pop_first();
        }
        assert!(self.above.len() <= MAX_FINISHED, "a lease remembers a bounded number of keys");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_above_the_last_are_remembered_one_by_one_up_to_a_bound() {
        let mut keys = FinishedKeys::default();
        keys.finish(7);
        assert_eq!([6, 7, 8].map(|key| keys.is_over(key)), [false, true, false]);
        keys.begin(Some(5));
        assert_eq!([5, 6, 7, 8].map(|key| keys.is_over(key)), [true, false, true, false]);
        assert_eq!([5, 7].map(|key| keys.is_over_by_itself(key)), [false, true]);
        keys.begin(Some(9));
        keys.finish(11);
        assert_eq!(keys.above, [11].into(), "what is below the last is not remembered beside it");
        (12..=200).for_each(|key| keys.finish(key));
        assert_eq!((keys.above.len(), keys.last), (MAX_FINISHED, Some(72)));
        assert!(keys.is_over(200) && !keys.is_over(201));
    }

    #[test]
    fn a_key_that_waits_is_not_over_because_of_those_above() {
        let mut keys = FinishedKeys::default();
        [3, 4, 5].into_iter().for_each(|key| keys.wait(key));
        (6..=200).for_each(|key| keys.finish(key));
        assert_eq!([2, 3, 4, 5, 6].map(|key| keys.is_over(key)), [true, false, false, false, true]);
        keys.begin(Some(3));
        keys.finish(4);
        assert_eq!([3, 4, 5].map(|key| keys.is_over(key)), [true, true, false]);
        (1_000..9_000).for_each(|key| keys.wait(key));
        assert_eq!(keys.waiting.len(), MAX_WAITING);
    }
}
