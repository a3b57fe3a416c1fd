//! The content of a transaction: an idempotency key names one content.
//!
//! A repeated begin gets the outcome of the first one. A begin with other content under the same key is
//! refused, because its client would take that outcome for its own commit. Only a hash is remembered. It is
//! no protection against a client that searches for another content with the same hash, which would deceive
//! only itself.

use std::hash::{BuildHasher as _, Hash};

use foldhash::fast::FixedState;

use crate::causal_log::Change;
use crate::replica::store_call::{Begin, Then};

/// A hash of the content of a transaction, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::replica) enum Content {
    /// Hash of the begin: its locks, its guards, its changes, and whether it commits at once.
    Begin(u64),
    /// Hash of all committed changes, as in the journal. A begin that commits at once has the same changes.
    Committed(u64),
    /// Checkpoints keep no hash.
    Unknown,
}

impl Content {
    pub fn of(begin: &Begin) -> Content {
        let locks = begin.locks.as_ref().map(|locks| locks.wants.locks());
        Content::Begin(hash(&(locks, &begin.under, &begin.step.changes, begin.step.then == Then::Commit)))
    }

    pub fn committed(changes: &Vec<Change>) -> Content {
        Content::Committed(hash(changes))
    }

    /// Returns true if this begin may have this content.
    pub fn may_be_of(self, begin: &Begin) -> bool {
        match self {
            Content::Begin(_) => self == Content::of(begin),
            Content::Committed(_) if begin.step.then == Then::Commit => {
                self == Content::committed(&begin.step.changes)
            }
            Content::Committed(_) | Content::Unknown => true,
        }
    }
}

fn hash(content: &impl Hash) -> u64 {
    FixedState::default().hash_one(content)
}
