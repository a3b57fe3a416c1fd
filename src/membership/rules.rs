//! Rules for the locks whose names begin with a prefix.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;

use geolock_api::names::{DcId, LockName, LockNameError};
use serde::{Deserialize, Serialize};

/// Most rules of a cluster.
pub const MAX_RULES: usize = 256;

/// A prefix of lock names: 1 to 1024 bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Prefix(LockName);

impl Prefix {
    /// Copies the bytes, if a lock name can begin with them.
    pub fn new(bytes: &[u8]) -> Result<Prefix, LockNameError> {
        LockName::new(bytes).map(Prefix)
    }

    /// Returns the prefix as the plain name of a lock.
    pub fn as_name(&self) -> &LockName {
        &self.0
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Returns true if some lock name begins with both.
    pub fn overlaps(&self, other: &Prefix) -> bool {
        let (ours, theirs) = (self.as_bytes(), other.as_bytes());
        ours.starts_with(theirs) || theirs.starts_with(ours)
    }
}

impl Borrow<[u8]> for Prefix {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The rule of a prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PrefixRule {
    /// The home of these locks: the member that has the parts of unused ones, and to which idle ones return.
    /// `None` once that member has ended.
    pub home: Option<DcId>,
    /// `evict = operator`, where the cluster's policy is `auto`: the parts of a member that was evicted by
    /// silence stay where they are until an operator confirms that it is dead.
    pub operator_evicts: bool,
}

/// The rules of all prefixes, none of which overlaps another.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Rules(BTreeMap<Prefix, PrefixRule>);

impl Rules {
    /// Returns the rules in the order of their prefixes.
    pub fn iter(&self) -> impl Iterator<Item = (&Prefix, &PrefixRule)> {
        self.0.iter()
    }

    /// Returns the prefixes that have a home, in their order.
    pub fn homes(&self) -> impl Iterator<Item = (&Prefix, DcId)> {
        self.0.iter().filter_map(|(prefix, rule)| Some((prefix, rule.home?)))
    }

    /// Returns the number of rules.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there is no rule.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the rule of this prefix itself.
    pub fn get(&self, prefix: &Prefix) -> Option<&PrefixRule> {
        self.0.get(prefix)
    }

    /// Returns the rule for the lock. As prefixes do not overlap, it is the last one that is not behind the
    /// name.
    pub fn of(&self, lock: &[u8]) -> Option<&PrefixRule> {
        let up_to = (Bound::Unbounded, Bound::Included(lock));
        let (prefix, rule) = self.0.range::<[u8], _>(up_to).next_back()?;
        lock.starts_with(prefix.as_bytes()).then_some(rule)
    }

    /// Returns another prefix with a rule that overlaps this one.
    pub(super) fn overlapping(&self, prefix: &Prefix) -> Option<&Prefix> {
        self.0.keys().find(|other| *other != prefix && other.overlaps(prefix))
    }

    pub(super) fn set(&mut self, prefix: Prefix, rule: PrefixRule) {
        self.0.insert(prefix, rule);
    }

    /// This member has ended, and is no home any more. A rule that says nothing else is gone.
    pub(super) fn end_home(&mut self, home: DcId) {
        let rules = self.0.values_mut().filter(|rule| rule.home == Some(home));
        rules.for_each(|rule| rule.home = None);
        self.0.retain(|_, rule| *rule != PrefixRule::default());
    }

    pub(super) fn remove(&mut self, prefix: &Prefix) -> Option<PrefixRule> {
        self.0.remove(prefix)
    }
}
