//! The changes of a transaction, as the log carries them.
//!
//! Wire and disk types: enum variants are encoded by position (append only), golden bytes in `wire.rs`.

use serde::{Deserialize, Serialize};

use crate::base::time::TimeToLive;
use crate::crdt::VersionVector;
use geolock_api::keys::Key;
use geolock_api::names::{DcId, IdempotencyKey, LeaseId};
use geolock_api::value::{self, OpError, Update};

/// Maximum number of changes of one transaction.
pub const MAX_CHANGES: usize = 100_000;
/// Approximate maximum number of bytes of one transaction's changes.
pub const MAX_COMMIT_BYTES: usize = 4 << 20;

/// All changes of one transaction: they become visible together, everywhere. An entry carries at most one
/// commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// The transaction's snapshot. It decides which earlier operations the changes supersede and which ones
    /// are concurrent.
    pub seen: VersionVector,
    /// Lease and idempotency key of the transaction, if it was a client's.
    pub client: Option<(LeaseId, IdempotencyKey)>,
    /// In the order in which they were made.
    pub changes: Vec<Change>,
}

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Change {
    /// The key that it changes.
    pub key: Key,
    /// The action on the key.
    pub action: Action,
}

/// The action of a change on its key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Action {
    /// Applies an operation to the value of the key.
    Update(Update),
    /// Removes the key with all that it has. A concurrent update of the key is lost, so a removed key does
    /// not come back.
    Remove,
    /// Gives the key a time to live: it expires when that time has passed since this commit, or later; never
    /// sooner than an earlier wish says.
    Expire(TimeToLive),
    /// Expires the key: a datacenter ends it because its time is over or its value is done. As
    /// [`Action::Remove`], but an update that has seen another end of the same key stays.
    Expired,
}

/// A rule that a commit of a peer breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages explain the variants")]
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
    /// Checks a commit received from a peer in an entry that depends on `deps`.
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

    /// Returns the approximate number of bytes on the wire.
    pub fn weight(&self) -> usize {
        40 + self.changes.iter().map(Change::weight).sum::<usize>()
    }
}

impl Change {
    /// Returns the datacenter that this change names, if any.
    pub fn names_dc(&self) -> Option<DcId> {
        match &self.action {
            Action::Update(Update { op: value::Op::TransferRights { to, .. }, .. }) => Some(*to),
            _ => None,
        }
    }

    /// Returns the approximate number of bytes on the wire.
    pub fn weight(&self) -> usize {
        let action = match &self.action {
            Action::Update(update) => update.weight(),
            Action::Remove | Action::Expired => 1,
            Action::Expire(_) => 6,
        };
        3 + self.key.as_bytes().len() + action
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::wire;
    use bytes::Bytes;
    use geolock_api::value::{FlagOp, MapOp, MapType, Op, PathStep, RegisterOp, ResettableCounterOp, SetOp};

    fn ops(length: usize) -> Vec<Op> {
        let item = || Bytes::from(vec![7; length]);
        let items = || vec![item(), item(), item()];
        vec![
            Op::Counter(i64::MIN),
            Op::ResettableCounter(ResettableCounterOp::Add(i64::MIN)),
            Op::BoundedCounter(i64::MIN),
            Op::TransferRights { to: DcId::new(63).expect("an id"), amount: u64::MAX },
            Op::LwwRegister(item()),
            Op::MvRegister(RegisterOp::Assign(item())),
            Op::Versioned { version: u64::MAX, value: item(), done: true },
            Op::AddWinsSet(SetOp::Add(items())),
            Op::RemoveWinsSet(SetOp::Remove(items())),
            Op::GrowOnlySet(items()),
            Op::EnableWinsFlag(FlagOp::Enable),
            Op::ResettableMap(MapOp::Remove(items())),
        ]
    }

    /// So a commit of [`MAX_COMMIT_BYTES`] fits a record and a frame.
    #[test]
    fn a_change_takes_at_most_half_more_bytes_than_its_weight() {
        let key = |length: usize| Key::new(b"b", &vec![7; length]).expect("valid");
        let ttl = TimeToLive::from_millis(u64::from(u32::MAX)).expect("it is short");
        for length in [1, 250, 251, 70_000] {
            let step = PathStep { map: MapType::Resettable, field: vec![7; length].into() };
            let nested = |depth| (ops(length), vec![step.clone(); depth]);
            let updates = [0, 8].map(nested).into_iter().flat_map(|(ops, path)| {
                ops.into_iter().map(move |op| Action::Update(Update { path: path.clone(), op }))
            });
            let actions = updates.chain([Action::Remove, Action::Expire(ttl), Action::Expired]);
            for action in actions {
                let change = Change { key: key(length.min(1_000)), action };
                let (bytes, weight) = (wire::encode("change", &change).expect("it fits"), change.weight());
                assert!(2 * bytes.len() <= 3 * weight, "{} bytes, weight {weight}: {change:?}", bytes.len());
            }
        }
    }
}
