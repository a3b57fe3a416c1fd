//! Transactions that cannot commit any more and whose clients do not know it yet.
//!
//! Only the reason is kept; they do not count as open. A client that never asks leaves them behind, so they
//! are dropped with its lease, when the client acknowledges their keys, and oldest first when there are too
//! many. A client that asks for a dropped one hears that the transaction is unknown, which is the same result
//! with less detail.

use std::collections::BTreeMap;

use super::{Death, TxnId};
use geolock_api::names::{IdempotencyKey, LeaseId};

/// The dead transactions, by id and by age.
#[derive(Default)]
pub(super) struct Dead {
    by_id: BTreeMap<TxnId, (u64, Death)>,
    by_age: BTreeMap<u64, TxnId>,
    last: u64,
}

impl Dead {
    /// Adds a dead transaction; keeps at most `most`.
    pub fn insert(&mut self, id: TxnId, death: Death, most: usize) {
        self.last += 1;
        let before = self.by_id.insert(id, (self.last, death));
        assert!(before.is_none(), "{id:?} dies once");
        self.by_age.insert(self.last, id);
        if self.by_id.len() > most
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            let dropped = self.by_id.remove(&oldest);
            assert!(dropped.is_some(), "{oldest:?} is the oldest by its age and by its id");
        }
        assert_eq!(self.by_id.len(), self.by_age.len(), "each dead transaction has one age");
        assert!(self.by_id.len() <= most, "{} dead transactions, at most {most}", self.by_id.len());
    }

    pub fn knows(&self, id: &TxnId) -> bool {
        self.by_id.contains_key(id)
    }

    /// Removes a transaction and returns why it died: its client hears of it now.
    pub fn take(&mut self, id: &TxnId) -> Option<Death> {
        let (age, death) = self.by_id.remove(id)?;
        let found = self.by_age.remove(&age);
        assert_eq!(found.as_ref(), Some(id), "the transaction of age {age}");
        Some(death)
    }

    /// The client of this lease asks for none up to this key any more.
    pub fn acknowledge(&mut self, lease: LeaseId, key: IdempotencyKey) {
        let range = TxnId { lease, key: 0 }..=TxnId { lease, key };
        let ids: Vec<TxnId> = self.by_id.range(range).map(|(id, _)| *id).collect();
        for id in ids {
            self.take(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use geolock_api::names::DcId;

    fn id(lease: u64, key: u64) -> TxnId {
        TxnId { lease: LeaseId::new(DcId::new(0).expect("a small id"), lease), key }
    }

    #[test]
    fn the_oldest_is_forgotten_first_and_what_is_acknowledged_at_once() {
        let mut dead = Dead::default();
        for key in [3, 1, 2] {
            dead.insert(id(1, key), Death::TooOld, 3);
        }
        dead.insert(id(2, 1), Death::LocksLost, 3);
        assert_eq!([3, 1, 2].map(|key| dead.knows(&id(1, key))), [false, true, true]);
        dead.acknowledge(id(1, 0).lease, 1);
        assert_eq!((dead.take(&id(1, 1)), dead.take(&id(1, 2))), (None, Some(Death::TooOld)));
        assert_eq!(dead.take(&id(2, 1)), Some(Death::LocksLost));
        assert!(dead.by_id.is_empty() && dead.by_age.is_empty());
    }
}
