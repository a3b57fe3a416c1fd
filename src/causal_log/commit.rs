//! What a transaction changes, as the log carries it.
//!
//! Wire and disk types: enum variants are encoded by position (append only), golden bytes in `wire.rs`.

use serde::{Deserialize, Serialize};

use crate::crdt::VersionVector;
use crate::crdt::value::{self, OpError, Update};
use crate::keys::Key;
use crate::names::{ClientKey, DcId, LeaseId};
use crate::time::TimeToLive;

/// Most changes of one transaction.
pub const MAX_CHANGES: usize = 100_000;
/// Most bytes that a transaction changes, about.
pub const MAX_COMMIT_BYTES: usize = 4 << 20;

/// All that one transaction changes: visible together, everywhere. One entry carries at most one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// The transaction's snapshot: what its operations take away, and what concurrent ones survive, is decided by it.
    pub seen: VersionVector,
    /// Whose transaction it is, if it was a client's.
    pub client: Option<(LeaseId, ClientKey)>,
    /// In the order in which they were made.
    pub changes: Vec<Change>,
}

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Change {
    pub key: Key,
    pub action: Action,
}

/// What happens to a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Action {
    Update(Update),
    /// The key goes with all that it has. A concurrent update of it is lost: what was removed does not come back.
    Remove,
    /// The key lapses when that much time has passed since this commit, or later. Never sooner than was asked before.
    Expire(TimeToLive),
    /// The key goes because its time is over or its value is done: a datacenter's own doing. As [`Action::Remove`], but
    /// what is made by those who have seen another end of the same key stays.
    Lapse,
}

/// Why a commit of a peer breaks the rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitFault {
    #[error("it stands beside another commit of the same entry")]
    Second,
    #[error("its snapshot {seen} is not in what its entry depends on")]
    Snapshot { seen: VersionVector },
    #[error("it has {0} changes, at most {MAX_CHANGES} are allowed")]
    TooMany(usize),
    #[error("its change of {key}: {error}")]
    Update { key: Key, error: OpError },
}

impl Commit {
    /// What is checked of a commit that comes from a peer, made in an entry that depends on `deps`.
    pub fn validate(&self, deps: &VersionVector) -> Result<(), CommitFault> {
        if !deps.covers(&self.seen) {
            return Err(CommitFault::Snapshot { seen: self.seen.clone() });
        }
        if self.changes.len() > MAX_CHANGES {
            return Err(CommitFault::TooMany(self.changes.len()));
        }
        for Change { key, action } in &self.changes {
            if let Action::Update(update) = action {
                update.validate().map_err(|error| CommitFault::Update { key: key.clone(), error })?;
            }
        }
        Ok(())
    }

    /// About how many bytes this takes on the wire.
    pub fn weight(&self) -> usize {
        40 + self.changes.iter().map(Change::weight).sum::<usize>()
    }
}

impl Change {
    /// The datacenter that this names, if it does.
    pub fn names_dc(&self) -> Option<DcId> {
        match &self.action {
            Action::Update(Update { op: value::Op::MoveRights { to, .. }, .. }) => Some(*to),
            _ => None,
        }
    }

    /// About how many bytes this takes on the wire.
    pub fn weight(&self) -> usize {
        let action = match &self.action {
            Action::Update(update) => update.weight(),
            Action::Remove | Action::Lapse => 1,
            Action::Expire(_) => 6,
        };
        3 + self.key.as_bytes().len() + action
    }
}
