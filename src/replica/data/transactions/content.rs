//! The content of a transaction: an idempotency key names one content.
//!
//! A repeated begin gets the outcome of the first one. A begin with other content under the same key is
//! refused, because its client would take that outcome for its own commit. Only a hash is remembered. It is
//! no protection against a client that searches for another content with the same hash, which would deceive
//! only itself.

use serde::{Deserialize, Serialize};

use crate::base::wire;
use crate::causal_log::Change;
use crate::replica::call::store::{Begin, Then};

/// A hash of the content of a transaction, as far as it is known. Disk type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum TxnContent {
    /// Hash of the begin: its locks, its guards, its changes, and whether it commits at once.
    Begin(u64),
    /// Hash of all committed changes, as in the journal. A begin that commits at once has the same changes.
    Committed(u64),
    /// Of a checkpoint of version 3 or before, which has no hashes.
    Unknown,
}

impl TxnContent {
    pub(in crate::replica) fn of(begin: &Begin) -> TxnContent {
        let locks = begin.locks.as_ref().map(|locks| locks.wants.locks());
        let commits = begin.step.then == Then::Commit;
        TxnContent::Begin(wire::hash("content", &(locks, &begin.under, &begin.step.changes, commits)))
    }

    pub(in crate::replica) fn committed(changes: &Vec<Change>) -> TxnContent {
        TxnContent::Committed(wire::hash("content", changes))
    }

    /// Returns true if this begin may have this content.
    pub(in crate::replica) fn may_be_of(self, begin: &Begin) -> bool {
        match self {
            TxnContent::Begin(_) => self == TxnContent::of(begin),
            TxnContent::Committed(_) if begin.step.then == Then::Commit => {
                self == TxnContent::committed(&begin.step.changes)
            }
            TxnContent::Committed(_) | TxnContent::Unknown => true,
        }
    }
}
