//! The transactions that are there, and how much they keep.

use std::collections::BTreeMap;

use super::{Txn, TxnId};

/// By name; counts the bytes of what they want to change.
#[derive(Default)]
pub(super) struct Rows {
    rows: BTreeMap<TxnId, Txn>,
    bytes: usize,
}

impl Rows {
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// About how many bytes are kept for all of them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn get(&self, id: &TxnId) -> Option<&Txn> {
        self.rows.get(id)
    }

    /// To change anything but what [`Txn::bytes`] says; for that there is [`Rows::grow`].
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

    /// An open transaction keeps that much more.
    pub fn grow(&mut self, id: TxnId, bytes: usize) {
        let Some(Txn::Open(open)) = self.rows.get_mut(&id) else {
            unreachable!("only open transactions grow, {id:?} is not");
        };
        open.bytes += bytes;
        self.bytes += bytes;
    }

    /// Those that are open.
    pub fn open(&self) -> Vec<TxnId> {
        let open = self.rows.iter().filter(|(_, txn)| matches!(txn, Txn::Open(_)));
        open.map(|(id, _)| *id).collect()
    }

    pub fn range(&self, ids: std::ops::RangeInclusive<TxnId>) -> impl Iterator<Item = TxnId> {
        self.rows.range(ids).map(|(id, _)| *id)
    }
}
