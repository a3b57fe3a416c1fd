//! Sums over the state that readers see, one number for each bucket. Replicas that applied the same entries
//! have equal sums, so unequal sums show a fault (`docs/algorithm/log.md#35-comparing-replicas`).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::crdt::value::Shown;
use crate::store_state::content::Content;
use geolock_api::keys::Key;
use geolock_api::value::Update;

/// The name of a bucket.
pub type Bucket = Arc<[u8]>;

/// The digests of all buckets that have one, ordered by name.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Digest(pub Vec<BucketDigest>);

/// The digest of a bucket: a wrapping sum of hashes over everything visible in it, 0 for an empty one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BucketDigest {
    /// The bucket.
    pub bucket: Bucket,
    /// The sum of hashes.
    pub sum: u128,
}

impl Digest {
    /// Returns the sum over all buckets.
    pub fn sum(&self) -> u128 {
        self.0.iter().map(|row| mix(&row.bucket, row.sum)).fold(0, u128::wrapping_add)
    }

    /// Returns the approximate number of bytes on the wire.
    pub fn weight(&self) -> usize {
        self.0.iter().map(|row| 20 + row.bucket.len()).sum()
    }

    /// Returns the buckets in which the two differ.
    pub fn differences(&self, other: &Digest) -> Vec<Bucket> {
        let by_name = |digest: &Digest| -> BTreeMap<Bucket, u128> {
            digest.0.iter().map(|row| (row.bucket.clone(), row.sum)).collect()
        };
        let (ours, theirs) = (by_name(self), by_name(other));
        let names = ours.keys().chain(theirs.keys().filter(|name| !ours.contains_key(*name)));
        names.filter(|name| ours.get(*name) != theirs.get(*name)).cloned().collect()
    }
}

/// Returns the summand of a bucket that is not empty in the sum over all buckets.
fn mix(bucket: &[u8], sum: u128) -> u128 {
    let mut hasher = Xxh3::new();
    hasher.update(&sum.to_le_bytes());
    hasher.update(bucket);
    hasher.digest128()
}

/// The sums, updated with each change.
#[derive(Debug, Default)]
pub(super) struct Digests {
    sums: BTreeMap<Bucket, u128>,
    /// The sum over all buckets, as in [`Digest::sum`].
    total: u128,
    /// Approximate number of bytes of all visible values.
    bytes: u64,
}

impl Digests {
    /// Adds to the sum of a bucket, and drops the bucket if it shows nothing then.
    pub fn add(&mut self, key: &Key, shown: Shown) {
        if self.change(key, |before| before.plus(shown)) == 0 {
            self.sums.remove(key.bucket());
        }
    }

    pub fn subtract(&mut self, key: &Key, shown: Shown) {
        self.change(key, |before| before.minus(shown));
    }

    fn change(&mut self, key: &Key, to: impl FnOnce(Shown) -> Shown) -> u128 {
        let sum = self.sums.get_mut(key.bucket());
        let before = sum.as_deref().copied().unwrap_or(0);
        let after = to(Shown { sum: before, bytes: self.bytes, atoms: 0 });
        self.bytes = after.bytes;
        let part = |sum| if sum == 0 { 0 } else { mix(key.bucket(), sum) };
        if before != after.sum {
            self.total = self.total.wrapping_sub(part(before)).wrapping_add(part(after.sum));
        }
        match sum {
            Some(sum) => *sum = after.sum,
            None => {
                self.sums.insert(key.bucket().into(), after.sum);
            }
        }
        debug_assert_eq!(self.sums.get(key.bucket()), Some(&after.sum), "a bucket that changed has a sum");
        after.sum
    }

    /// Returns the number of buckets that show something.
    pub fn len(&self) -> usize {
        self.sums.len()
    }

    /// Returns the approximate number of bytes of all visible values.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns [`Digest::sum`] of [`Digests::all`], without walking the buckets.
    pub fn total(&self) -> u128 {
        self.total
    }

    pub fn all(&self) -> Digest {
        let shown = self.sums.iter().filter(|(_, sum)| **sum != 0);
        Digest(shown.map(|(bucket, sum)| BucketDigest { bucket: bucket.clone(), sum: *sum }).collect())
    }
}

/// Returns the summand of a key in its bucket's digest.
pub(super) fn of(key: &Key, content: &Content) -> Shown {
    content.slots.digest(seed(key))
}

/// Returns the part of [`of`] that an update may change.
pub(super) fn near(key: &Key, content: &Content, update: &Update) -> Shown {
    content.slots.digest_near(seed(key), update)
}

fn seed(key: &Key) -> u128 {
    xxh3_128(key.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_that_shows_nothing_any_more_needs_no_room() {
        let mut digests = Digests::default();
        let shown = Shown { sum: 7, bytes: 3, atoms: 1 };
        for bucket in 0..100_u8 {
            let key = Key::new(&[bucket + 1], b"k").expect("a short key");
            for (before, after) in [(Shown::default(), shown), (shown, Shown::default())] {
                digests.subtract(&key, before);
                digests.add(&key, after);
            }
        }
        assert_eq!((digests.sums.len(), digests.bytes()), (0, 0));
    }
}
