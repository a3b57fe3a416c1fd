//! The list of a client: candidates with weights, and the amount that they have to reach.

use std::collections::BTreeSet;

use super::target::Limits;
use crate::causal_log::{MAX_LOCKS_PER_REQUEST, MAX_NAME_BYTES_PER_REQUEST};
use geolock_api::names::LockName;

/// Any of these locks, all exclusive, whose weights reach an amount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AnyOf {
    amount: u64,
    most: u32,
    /// In the client's order.
    candidates: Vec<(LockName, u64)>,
}

/// A reason for which such a list cannot be requested. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages explain the variants")]
pub enum AnyOfError {
    #[error("a request for enough locks names at least 1 candidate; this one names none")]
    Empty,
    #[error(
        "a request for enough locks names at most {MAX_LOCKS_PER_REQUEST} candidates; this one names {0}"
    )]
    TooMany(usize),
    #[error(
        "the lock names of a request have at most {MAX_NAME_BYTES_PER_REQUEST} bytes together; these have {0}"
    )]
    NamesTooLong(usize),
    #[error("`most` is at most {MAX_LOCKS_PER_REQUEST}, or 0 for no bound; this one is {0}")]
    MostTooLarge(u32),
    #[error("`amount` is above 0")]
    NoAmount,
    #[error("the weight of a candidate is above 0; that of {0} is not")]
    NoWeight(LockName),
    #[error("{0} is named twice: each candidate is named once")]
    Twice(LockName),
    #[error("the candidates reach {reach} together, with at most {most} of them; {amount} are wanted")]
    NotEnough { reach: u128, most: usize, amount: u64 },
}

impl AnyOf {
    /// Returns a request for these candidates, the most wanted one first. `most`: how many of them it may
    /// hold; 0: any number.
    pub fn new(amount: u64, most: u32, candidates: Vec<(LockName, u64)>) -> Result<AnyOf, AnyOfError> {
        let bytes: usize = candidates.iter().map(|(name, _)| name.as_bytes().len()).sum();
        match candidates.len() {
            0 => return Err(AnyOfError::Empty),
            len if len > MAX_LOCKS_PER_REQUEST => return Err(AnyOfError::TooMany(len)),
            _ if bytes > MAX_NAME_BYTES_PER_REQUEST => return Err(AnyOfError::NamesTooLong(bytes)),
            _ => {}
        }
        if most as usize > MAX_LOCKS_PER_REQUEST {
            return Err(AnyOfError::MostTooLarge(most));
        }
        if amount == 0 {
            return Err(AnyOfError::NoAmount);
        }
        if let Some((name, _)) = candidates.iter().find(|(_, weight)| *weight == 0) {
            return Err(AnyOfError::NoWeight(name.clone()));
        }
        let mut names = BTreeSet::new();
        if let Some((name, _)) = candidates.iter().find(|(name, _)| !names.insert(name)) {
            return Err(AnyOfError::Twice(name.clone()));
        }
        let any_of = AnyOf { amount, most, candidates };
        let most = any_of.limits().most;
        let mut weights: Vec<u64> = any_of.candidates.iter().map(|(_, weight)| *weight).collect();
        weights.sort_unstable_by(|a, b| b.cmp(a));
        let reach: u128 = weights.iter().take(most).map(|weight| u128::from(*weight)).sum();
        if reach < u128::from(amount) {
            return Err(AnyOfError::NotEnough { reach, most: most.min(weights.len()), amount });
        }
        Ok(any_of)
    }

    /// Returns the list without the candidates `drop`, and with the candidates `add` behind the rest. A name
    /// in `drop` that is no candidate changes nothing.
    pub fn amended(&self, add: &[(LockName, u64)], drop: &[LockName]) -> Result<AnyOf, AnyOfError> {
        let drop: BTreeSet<&LockName> = drop.iter().collect();
        let kept = self.candidates.iter().filter(|(name, _)| !drop.contains(name));
        AnyOf::new(self.amount, self.most, kept.chain(add).cloned().collect())
    }

    /// Returns the candidates with their weights, in the client's order.
    pub fn candidates(&self) -> &[(LockName, u64)] {
        &self.candidates
    }

    /// Returns the names of the candidates.
    pub fn names(&self) -> impl Iterator<Item = &LockName> {
        self.candidates.iter().map(|(name, _)| name)
    }

    pub(super) fn weight(&self, place: u32) -> u64 {
        self.candidates[place as usize].1
    }

    pub(in crate::lock_state) fn limits(&self) -> Limits {
        let most = if self.most == 0 { usize::MAX } else { self.most as usize };
        Limits { amount: self.amount.into(), most }
    }

    /// Returns true if these candidates are enough, and not too many.
    pub fn is_enough(&self, chosen: &[u32]) -> bool {
        let limits = self.limits();
        self.sum_of(chosen) >= limits.amount && chosen.len() <= limits.most
    }

    /// Returns the sum of the weights of these candidates.
    pub fn sum_of(&self, chosen: &[u32]) -> u128 {
        chosen.iter().map(|place| u128::from(self.weight(*place))).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> LockName {
        LockName::try_from(name).expect("a test name is valid")
    }

    fn asked(amount: u64, most: u32, weights: &[u64]) -> Result<AnyOf, AnyOfError> {
        let all = weights.iter().enumerate().map(|(place, weight)| (name(&format!("{place}")), *weight));
        AnyOf::new(amount, most, all.collect())
    }

    #[test]
    fn an_amended_list_keeps_its_order_and_is_checked_as_a_new_one() {
        let list = asked(3, 0, &[1, 2, 3]).expect("it is enough");
        let amended = list.amended(&[(name("3"), 7), (name("0"), 4)], &[name("0"), name("9")]);
        let amended = amended.expect("it is enough");
        let all = [("1", 2), ("2", 3), ("3", 7), ("0", 4)].map(|(text, weight)| (name(text), weight));
        assert_eq!((amended.candidates(), amended.limits()), (&all[..], list.limits()));
        assert_eq!(list.amended(&[(name("1"), 1)], &[]), Err(AnyOfError::Twice(name("1"))));
        let not_enough = Err(AnyOfError::NotEnough { reach: 1, most: 1, amount: 3 });
        assert_eq!(list.amended(&[], &[name("1"), name("2")]), not_enough);
    }

    #[test]
    fn what_can_never_be_granted_is_refused() {
        assert_eq!(asked(1, 0, &[]), Err(AnyOfError::Empty));
        assert_eq!(asked(1, 0, &[1; 10_001]), Err(AnyOfError::TooMany(10_001)));
        assert!(asked(10_000, 10_000, &[1; 10_000]).is_ok());
        assert_eq!(asked(1, 10_001, &[1]), Err(AnyOfError::MostTooLarge(10_001)));
        assert_eq!(asked(0, 0, &[1]), Err(AnyOfError::NoAmount));
        assert_eq!(asked(1, 0, &[1, 0]), Err(AnyOfError::NoWeight(name("1"))));
        let twice = vec![(name("a"), 1), (name("b"), 1), (name("a"), 2)];
        assert_eq!(AnyOf::new(1, 0, twice), Err(AnyOfError::Twice(name("a"))));
        let long = (0..1_025).map(|n| (LockName::try_from(&*format!("{n:01024}")).expect("valid"), 1));
        assert_eq!(AnyOf::new(1, 0, long.collect()), Err(AnyOfError::NamesTooLong(1_025 * 1_024)));
        let not_enough = |reach, most, amount| Err(AnyOfError::NotEnough { reach, most, amount });
        assert_eq!(asked(7, 0, &[1, 2, 3]), not_enough(6, 3, 7));
        assert_eq!(asked(6, 2, &[1, 2, 3]), not_enough(5, 2, 6));
        assert!(asked(5, 2, &[1, 2, 3]).is_ok() && asked(6, 0, &[1, 2, 3]).is_ok());
        assert!(asked(u64::MAX, 0, &[u64::MAX, u64::MAX]).is_ok(), "sums have more bits");
    }
}
