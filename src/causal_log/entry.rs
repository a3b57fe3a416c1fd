//! Entries of the datacenters' logs, each a list of operations (`docs/algorithm/log.md#11-entries`).
//!
//! Wire and disk types: enum variants are encoded by position (append only), golden bytes in `wire.rs`.

use serde::{Deserialize, Serialize};

use crate::base::entry_number::is_first;
use crate::base::time::Timestamp;
use crate::causal_log::commit::Commit;
use crate::crdt::VersionVector;
use geolock_api::names::{ClusterId, DcId, FencingToken, LockName, Mode, RequestId};

/// One record of a datacenter's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The cluster of the maker.
    pub cluster: ClusterId,
    /// The epoch of the maker: that of the last [`Op::Enter`] in its log, this entry included; 0 before the
    /// first.
    pub epoch: u64,
    /// The maker.
    pub dc: DcId,
    /// Number in the log: 1 for a datacenter's first entry, without gaps within a generation of its slot
    /// (`base/entry_number.rs`).
    pub seq: u64,
    /// Reading of the maker's hybrid clock, strictly increasing along a log.
    pub at: Timestamp,
    /// The vector that the maker had applied when it made this entry; `deps[dc]` is the number of its
    /// predecessor.
    pub deps: VersionVector,
    /// The operations, in the order in which they apply.
    pub ops: Vec<Op>,
    /// [`Entry::hash`] of the previous entry of the same log, so the hash of an entry covers all entries up
    /// to it. 0 for the first entry, and while the maker does not know the hash or not all members are known
    /// to speak version 2.
    pub prev: u64,
    /// Token lead: the number of milliseconds by which the maker's fencing tokens were ahead of its stamps. A
    /// member that applies this entry may not grant smaller tokens. Nearly always 0
    /// (`docs/algorithm/grants.md#25-token-lead`).
    pub lead_ms: u64,
}

/// An operation, see `docs/algorithm/log.md#11-entries`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each variant explains its fields")]
pub enum Op {
    /// Adds a request to the request table of every datacenter.
    Request { id: RequestId, at: Timestamp, wants: Wants },
    /// Removes a request from the request table; an unknown id is no error.
    Withdraw { id: RequestId },
    /// The owner of these parts transfers them to `to`.
    Transfer { to: DcId, parts: Vec<LockParts> },
    /// A transaction changes data.
    Commit(Commit),
    /// The maker enters this epoch: it acts by the members of that decision, from this entry on.
    Enter { epoch: u64 },
    /// The sponsor of a new member's part splits it off: it belongs to the new member wherever the sponsor's
    /// part is at home.
    Split { part: DcId },
    /// Nothing goes along with the sponsor's part any more that the maker owns, nor ever will.
    Done { part: DcId },
    /// The maker leaves the cluster: it owns nothing but what is at home there, and this is the last entry of
    /// its log. Its parts are needed no more.
    Leave,
    /// The maker has applied the entries by which all others entered the end of this generation of a slot. So
    /// no entry that names that member is still to come, and the slot may be given out again.
    Freed { slot: DcId, generation: u16 },
    /// The maker owns these parts, and keeps them when it gives what it owns by default.
    Keep { parts: Vec<LockParts> },
    /// The maker gives all parts that it owns without a register, of locks below the prefix of the rule of
    /// this epoch, to the home that the rule names, or to their own members if it names none.
    Rehome { epoch: u64 },
    /// The commit in the same entry was made under locks, and this is the highest token of their grants.
    /// Stands behind the commit. Has no effect: it is for operators who look at a commit that was lost with
    /// its datacenter.
    Under { token: FencingToken },
}

/// Parts of one lock that move, each with the version of its register after the move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockParts {
    /// The lock.
    pub lock: LockName,
    /// The parts, with their versions.
    pub parts: Vec<(DcId, u64)>,
}

/// The locks that a request wants. This version has one case; others (any of these, up to a sum) can be
/// added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wants {
    /// All of these locks, atomically. Sorted by name, each lock once.
    All(Vec<(LockName, Mode)>),
}

/// Maximum number of locks in one request.
pub const MAX_LOCKS_PER_REQUEST: usize = 10_000;
/// Maximum number of bytes of names in one request.
pub const MAX_NAME_BYTES_PER_REQUEST: usize = 1 << 20;

/// A reason for which a list of locks cannot be requested. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages explain the variants")]
pub enum WantsError {
    #[error("a request names at least 1 lock; this one names none")]
    Empty,
    #[error("a request names at most {MAX_LOCKS_PER_REQUEST} locks; this one names {0}")]
    TooManyLocks(usize),
    #[error(
        "the lock names of a request have at most {MAX_NAME_BYTES_PER_REQUEST} bytes together; these have {0}"
    )]
    NamesTooLong(usize),
    #[error("the locks of a request are sorted and distinct on the wire; these are not")]
    Unsorted,
}

impl Wants {
    /// Returns a request for all of these locks. If a lock is named twice, the stronger mode counts.
    pub fn all(mut locks: Vec<(LockName, Mode)>) -> Result<Wants, WantsError> {
        locks.sort_unstable();
        // Sorted by (name, mode), the stronger mode of a lock comes last: keep that one.
        locks.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            if same {
                kept.1 = later.1;
            }
            same
        });
        let wants = Wants::All(locks);
        wants.validate()?;
        Ok(wants)
    }

    /// Checks what [`Wants::all`] guarantees, for wants received from a peer.
    pub fn validate(&self) -> Result<(), WantsError> {
        let locks = self.locks();
        let bytes: usize = locks.iter().map(|(name, _)| name.as_bytes().len()).sum();
        match locks.len() {
            0 => Err(WantsError::Empty),
            len if len > MAX_LOCKS_PER_REQUEST => Err(WantsError::TooManyLocks(len)),
            _ if bytes > MAX_NAME_BYTES_PER_REQUEST => Err(WantsError::NamesTooLong(bytes)),
            _ if !locks.is_sorted_by(|a, b| a.0 < b.0) => Err(WantsError::Unsorted),
            _ => Ok(()),
        }
    }

    /// Changes the mode of a lock. Returns false if it is none of these.
    pub fn set_mode(&mut self, lock: &LockName, mode: Mode) -> bool {
        let Wants::All(locks) = self;
        let Ok(place) = locks.binary_search_by(|(name, _)| name.cmp(lock)) else { return false };
        locks[place].1 = mode;
        true
    }

    /// Returns the locks, sorted by name.
    pub fn locks(&self) -> &[(LockName, Mode)] {
        let Wants::All(locks) = self;
        locks
    }
}

impl Entry {
    /// Returns the hash of this entry, never 0. With `prev` it covers all earlier entries of its log.
    pub fn hash(&self) -> u64 {
        crate::base::wire::hash("entry", self)
    }

    /// Returns the approximate amount of work to apply this: the number of locks, parts and keys that it
    /// names.
    pub fn rows(&self) -> usize {
        1 + self.ops.iter().map(Op::rows).sum::<usize>()
    }

    /// Returns the number of the entry before it in the same log.
    pub fn predecessor(&self) -> u64 {
        if is_first(self.seq) { self.deps.get(self.dc) } else { self.seq.saturating_sub(1) }
    }

    /// Returns the approximate number of bytes on the wire: for batching, not for limits.
    pub fn weight(&self) -> usize {
        64 + self.ops.iter().map(Op::weight).sum::<usize>()
    }

    /// Returns the approximate number of bytes in memory, with the allocator's overhead: small entries take
    /// several times their weight.
    pub fn memory(&self) -> usize {
        const ENTRY: usize = 256;
        ENTRY + self.ops.iter().map(Op::memory).sum::<usize>()
    }
}

impl Op {
    /// Returns the commit, if it is one.
    pub fn as_commit(&self) -> Option<&Commit> {
        match self {
            Op::Commit(commit) => Some(commit),
            _ => None,
        }
    }

    /// Returns the token under which the commit beside it was made, if it says that.
    pub fn as_under(&self) -> Option<FencingToken> {
        match self {
            Op::Under { token } => Some(*token),
            _ => None,
        }
    }

    /// Returns the number of locks, parts and keys that it names.
    pub fn rows(&self) -> usize {
        match self {
            Op::Request { wants, .. } => wants.locks().len(),
            Op::Withdraw { .. }
            | Op::Enter { .. }
            | Op::Split { .. }
            | Op::Done { .. }
            | Op::Freed { .. }
            | Op::Rehome { .. }
            | Op::Leave => 1,
            Op::Under { .. } => 0,
            Op::Transfer { parts, .. } | Op::Keep { parts } => {
                parts.iter().map(|lock| lock.parts.len()).sum()
            }
            Op::Commit(commit) => commit.changes.len(),
        }
    }

    /// Returns the approximate number of bytes on the wire.
    pub fn weight(&self) -> usize {
        match self {
            Op::Request { wants, .. } => {
                24 + wants.locks().iter().map(|(name, _)| 3 + name.as_bytes().len()).sum::<usize>()
            }
            Op::Withdraw { .. }
            | Op::Enter { .. }
            | Op::Split { .. }
            | Op::Done { .. }
            | Op::Freed { .. }
            | Op::Rehome { .. }
            | Op::Under { .. }
            | Op::Leave => 12,
            Op::Transfer { parts, .. } | Op::Keep { parts } => {
                4 + parts.iter().map(|p| 4 + p.lock.as_bytes().len() + 10 * p.parts.len()).sum::<usize>()
            }
            Op::Commit(commit) => commit.weight(),
        }
    }

    fn memory(&self) -> usize {
        const OP: usize = 96;
        let name = |name: &LockName| 32 + name.as_bytes().len();
        OP + match self {
            Op::Request { wants, .. } => wants.locks().iter().map(|(lock, _)| 32 + name(lock)).sum::<usize>(),
            Op::Withdraw { .. }
            | Op::Enter { .. }
            | Op::Split { .. }
            | Op::Done { .. }
            | Op::Freed { .. }
            | Op::Rehome { .. }
            | Op::Under { .. }
            | Op::Leave => 0,
            Op::Transfer { parts, .. } | Op::Keep { parts } => {
                parts.iter().map(|p| 64 + name(&p.lock) + 16 * p.parts.len()).sum::<usize>()
            }
            Op::Commit(commit) => commit.weight() + 128 * commit.changes.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(n: &str) -> LockName {
        LockName::try_from(n).expect("a test name is valid")
    }

    #[test]
    fn the_same_lock_twice_means_the_stronger_mode() {
        let wants = Wants::all(vec![
            (name("b"), Mode::Exclusive),
            (name("a"), Mode::Shared),
            (name("b"), Mode::Shared),
        ]);
        assert_eq!(
            wants.expect("two locks are fine").locks(),
            [(name("a"), Mode::Shared), (name("b"), Mode::Exclusive)]
        );
    }

    #[test]
    fn bounds_on_the_number_of_locks_and_on_their_names() {
        let many = |count: usize, width: usize| {
            Wants::all((0..count).map(|i| (name(&format!("{i:0width$}")), Mode::Shared)).collect())
        };
        assert_eq!(many(0, 1), Err(WantsError::Empty));
        assert!(many(MAX_LOCKS_PER_REQUEST, 1).is_ok());
        assert_eq!(many(10_001, 1), Err(WantsError::TooManyLocks(10_001)));
        assert_eq!(many(1025, 1024), Err(WantsError::NamesTooLong(1025 * 1024)));
    }
}
