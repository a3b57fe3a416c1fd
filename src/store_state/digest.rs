//! What buckets show, in one number each: replicas that applied the same show the same, and this is how to see it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use crate::crdt::value::Update;
use crate::keys::Key;
use crate::store_state::content::Content;

/// A bucket by its name.
pub type Bucket = Arc<[u8]>;

/// The digests of all buckets that have one, in the order of their names.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Digest(pub Vec<BucketDigest>);

/// What a bucket shows: a wrapping sum of hashes over everything visible in it, 0 for an empty one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BucketDigest {
    pub bucket: Bucket,
    pub sum: u128,
}

impl Digest {
    /// All of it in one number.
    pub fn sum(&self) -> u128 {
        let mix = |row: &BucketDigest| xxh3_128(&[&row.sum.to_le_bytes()[..], &row.bucket[..]].concat());
        self.0.iter().map(mix).fold(0, u128::wrapping_add)
    }

    /// The buckets in which the two differ.
    pub fn differences(&self, other: &Digest) -> Vec<Bucket> {
        let by_name = |digest: &Digest| -> BTreeMap<Bucket, u128> {
            digest.0.iter().map(|row| (row.bucket.clone(), row.sum)).collect()
        };
        let (ours, theirs) = (by_name(self), by_name(other));
        let names = ours.keys().chain(theirs.keys().filter(|name| !ours.contains_key(*name)));
        names.filter(|name| ours.get(*name) != theirs.get(*name)).cloned().collect()
    }
}

/// The sums, kept up to date change by change.
#[derive(Debug, Default)]
pub(super) struct Digests(BTreeMap<Bucket, u128>);

impl Digests {
    pub fn add(&mut self, key: &Key, sum: u128) {
        self.change(key, |before| before.wrapping_add(sum));
    }

    pub fn subtract(&mut self, key: &Key, sum: u128) {
        self.change(key, |before| before.wrapping_sub(sum));
    }

    fn change(&mut self, key: &Key, to: impl FnOnce(u128) -> u128) {
        match self.0.get_mut(key.bucket()) {
            Some(sum) => {
                *sum = to(*sum);
            }
            None => {
                self.0.insert(key.bucket().into(), to(0));
            }
        }
    }

    pub fn all(&self) -> Digest {
        let shown = self.0.iter().filter(|(_, sum)| **sum != 0);
        Digest(shown.map(|(bucket, sum)| BucketDigest { bucket: bucket.clone(), sum: *sum }).collect())
    }

    /// Buckets that show nothing need no room.
    pub fn forget_empty(&mut self) {
        self.0.retain(|_, sum| *sum != 0);
    }
}

/// What a key adds to its bucket's digest.
pub(super) fn of(key: &Key, content: &Content) -> u128 {
    content.slots.digest(seed(key))
}

/// The part of [`of`] that an update may change.
pub(super) fn near(key: &Key, content: &Content, update: &Update) -> u128 {
    content.slots.digest_near(seed(key), update)
}

fn seed(key: &Key) -> u128 {
    xxh3_128(key.as_bytes())
}
