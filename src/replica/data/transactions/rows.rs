//! The transactions that are open or waiting, and their memory.

use std::collections::BTreeMap;

use super::{Txn, TxnId};

/// By id; counts the bytes of their changes.
#[derive(Default)]
pub(super) struct Rows {
    rows: BTreeMap<TxnId, Txn>,
    bytes: usize,
}

impl Rows {
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the approximate number of bytes kept for all of them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn get(&self, id: &TxnId) -> Option<&Txn> {
        self.rows.get(id)
    }

    /// For changes that leave [`Txn::bytes`] as it is; others use [`Rows::grow`].
    pub fn get_mut(&mut self, id: &TxnId) -> Option<&mut Txn> {
        self.rows.get_mut(id)
    }

    pub fn insert(&mut self, id: TxnId, txn: Txn) -> Option<Txn> {
        self.bytes += txn.bytes();
        let before = self.rows.insert(id, txn);
        self.bytes -= before.as_ref().map_or(0, Txn::bytes);
        before
    }

    pub fn remove(&mut self, id: &TxnId) -> Option<Txn> {
        let txn = self.rows.remove(id);
        self.bytes -= txn.as_ref().map_or(0, Txn::bytes);
        txn
    }

    /// An open transaction keeps this many bytes more.
    pub fn grow(&mut self, id: TxnId, bytes: usize) {
        let Some(Txn::Open(open)) = self.rows.get_mut(&id) else {
            unreachable!("only open transactions grow, {id:?} is not");
        };
        open.bytes += bytes;
        self.bytes += bytes;
    }

    /// Returns all of them.
    pub fn iter(&self) -> impl Iterator<Item = (&TxnId, &Txn)> {
        self.rows.iter()
    }

    /// Asserts that the bytes of all are counted.
    pub fn check(&self) {
        let bytes: usize = self.rows.values().map(Txn::bytes).sum();
        assert_eq!(self.bytes, bytes, "the bytes of all transactions");
    }

    /// Returns the open ones.
    pub fn open(&self) -> Vec<TxnId> {
        let open = self.rows.iter().filter(|(_, txn)| matches!(txn, Txn::Open(_)));
        open.map(|(id, _)| *id).collect()
    }

    pub fn range(&self, ids: std::ops::RangeInclusive<TxnId>) -> impl Iterator<Item = TxnId> {
        self.rows.range(ids).map(|(id, _)| *id)
    }
}
