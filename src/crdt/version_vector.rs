//! A version vector: the applied entries of every datacenter's log, dense over the small ids of members.

use std::cmp::Ordering;
use std::fmt;

use crdts::CvRDT;
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};

use geolock_api::names::{DcId, EntryNumber, MAX_DCS, MAX_ENTRY};

/// `DcId -> seq`: the entries `1..=seq` of that datacenter. Absent means 0. Trailing zeros are never stored,
/// so equal vectors are equal bytes.
#[derive(Clone, Default, PartialEq, Eq, Hash, Serialize)]
pub struct VersionVector(Vec<u64>);

impl VersionVector {
    /// Returns the number of entries of a datacenter.
    pub fn get(&self, dc: DcId) -> u64 {
        self.0.get(dc.index()).copied().unwrap_or(0)
    }

    /// Raises `dc` to `seq`; a lower `seq` changes nothing.
    pub fn raise(&mut self, dc: DcId, seq: u64) {
        if seq == 0 {
            return;
        }
        if self.0.len() <= dc.index() {
            self.0.resize(dc.index() + 1, 0);
        }
        let slot = &mut self.0[dc.index()];
        *slot = (*slot).max(seq);
        debug_assert!(self.0.last() != Some(&0), "equal vectors have equal lengths");
    }

    /// Returns true if this vector contains everything in `other`.
    pub fn covers(&self, other: &VersionVector) -> bool {
        other.0.len() <= self.0.len() && other.0.iter().zip(&self.0).all(|(theirs, ours)| theirs <= ours)
    }

    /// Returns the vector of the entries that both cover.
    pub fn meet(&self, other: &VersionVector) -> VersionVector {
        let meet = self.iter().map(|(dc, seq)| (dc, seq.min(other.get(dc)))).collect();
        debug_assert!(self.covers(&meet) && other.covers(&meet), "a meet is in both");
        meet
    }

    /// Returns the datacenters with any entry, in increasing order, with their `seq`.
    pub fn iter(&self) -> impl Iterator<Item = (DcId, u64)> {
        (0_u8..)
            .zip(&self.0)
            .filter(|(_, seq)| **seq > 0)
            .filter_map(|(id, seq)| DcId::new(id).map(|dc| (dc, *seq)))
    }
}

impl FromIterator<(DcId, u64)> for VersionVector {
    fn from_iter<I: IntoIterator<Item = (DcId, u64)>>(iter: I) -> VersionVector {
        let mut vector = VersionVector::default();
        iter.into_iter().for_each(|(dc, seq)| vector.raise(dc, seq));
        vector
    }
}

impl PartialOrd for VersionVector {
    fn partial_cmp(&self, other: &VersionVector) -> Option<Ordering> {
        match (self.covers(other), other.covers(self)) {
            (true, true) => Some(Ordering::Equal),
            (true, false) => Some(Ordering::Greater),
            (false, true) => Some(Ordering::Less),
            (false, false) => None,
        }
    }
}

impl CvRDT for VersionVector {
    type Validation = std::convert::Infallible;

    fn validate_merge(&self, _: &VersionVector) -> Result<(), Self::Validation> {
        Ok(())
    }

    fn merge(&mut self, other: VersionVector) {
        other.iter().for_each(|(dc, seq)| self.raise(dc, seq));
    }
}

impl<'de> Deserialize<'de> for VersionVector {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<VersionVector, D::Error> {
        let seqs = Vec::<u64>::deserialize(deserializer)?;
        if seqs.len() > MAX_DCS {
            return Err(D::Error::custom(format_args!(
                "version vector of {} members, at most {MAX_DCS}",
                seqs.len()
            )));
        }
        if seqs.last() == Some(&0) {
            return Err(D::Error::custom("version vector with a trailing zero"));
        }
        if let Some(seq) = seqs.iter().find(|seq| **seq > MAX_ENTRY) {
            return Err(D::Error::custom(format_args!(
                "entry {seq} in a version vector: no log is that long"
            )));
        }
        Ok(VersionVector(seqs))
    }
}

impl VersionVector {
    fn show<N: fmt::Display>(&self, f: &mut fmt::Formatter<'_>, number: fn(u64) -> N) -> fmt::Result {
        f.write_str("{")?;
        for (i, (dc, seq)) in self.iter().enumerate() {
            write!(f, "{}{dc}:{}", if i == 0 { "" } else { " " }, number(seq))?;
        }
        f.write_str("}")
    }
}

impl fmt::Display for VersionVector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.show(f, EntryNumber)
    }
}

impl fmt::Debug for VersionVector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.show(f, |seq| seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn vectors() -> impl Strategy<Value = VersionVector> {
        proptest::collection::vec((0_u8..5, 0_u64..6), 0..8)
            .prop_map(|pairs| pairs.into_iter().filter_map(|(dc, seq)| Some((DcId::new(dc)?, seq))).collect())
    }

    fn merged(a: &VersionVector, b: &VersionVector) -> VersionVector {
        let mut result = a.clone();
        result.merge(b.clone());
        result
    }

    fn as_vclock(v: &VersionVector) -> crdts::VClock<u8> {
        v.iter().map(|(dc, seq)| crdts::Dot::new(dc.get(), seq)).collect()
    }

    proptest! {
        #[test]
        fn merge_is_commutative_associative_idempotent_and_monotone(a in vectors(), b in vectors(), c in vectors()) {
            prop_assert_eq!(merged(&a, &b), merged(&b, &a));
            prop_assert_eq!(merged(&merged(&a, &b), &c), merged(&a, &merged(&b, &c)));
            prop_assert_eq!(merged(&a, &a), a.clone());
            prop_assert!(merged(&a, &b).covers(&a));
        }

        #[test]
        fn it_is_the_crdts_vector_clock(a in vectors(), b in vectors()) {
            prop_assert_eq!(a.partial_cmp(&b), as_vclock(&a).partial_cmp(&as_vclock(&b)));
            let mut merged_clock = as_vclock(&a);
            merged_clock.merge(as_vclock(&b));
            prop_assert_eq!(as_vclock(&merged(&a, &b)), merged_clock);
        }
    }

    #[test]
    fn an_entry_that_no_log_reaches_is_no_entry() {
        let decoded = |seq: u64| {
            let bytes = crate::base::wire::encode("vector", &vec![1, seq]).expect("it is small");
            crate::base::wire::decode::<VersionVector>("vector", &bytes)
        };
        assert!(decoded(MAX_ENTRY).is_ok());
        let refused = [MAX_ENTRY + 1, u64::MAX].map(|seq| decoded(seq).expect_err("too high").to_string());
        assert!(refused.iter().all(|error| error.contains("no log is that long")), "{refused:?}");
    }
}
