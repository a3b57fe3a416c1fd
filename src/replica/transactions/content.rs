//! What a transaction was begun with: a client key names one content.
//!
//! A begin that comes again under a key is answered with what became of the first one. If it wants something else its client
//! would take that for its own commit: so it is refused. A hash is remembered, not the content; it is no protection against
//! a client that looks for another content of the same hash, which would deceive only itself.

use std::hash::{BuildHasher as _, Hash};

use foldhash::fast::FixedState;

use crate::causal_log::Change;
use crate::replica::store_call::{Begin, Then};

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::replica) enum Content {
    /// Of the begin: its locks, its changes, and whether it commits at once.
    Begin(u64),
    /// Of all changes that were committed, as the journal has them: of a begin that commits at once these are the same.
    Committed(u64),
    /// A checkpoint keeps none.
    Unknown,
}

impl Content {
    pub fn of(begin: &Begin) -> Content {
        let locks = begin.locks.as_ref().map(|locks| locks.wants.locks());
        Content::Begin(hash(&(locks, &begin.step.changes, begin.step.then == Then::Commit)))
    }

    pub fn committed(changes: &Vec<Change>) -> Content {
        Content::Committed(hash(changes))
    }

    /// Whether this begin may be the one that was.
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
