//! Watches in the calls of clients: their arguments and events.
//!
//! A watch follows keys or locks. Changes that are in the log (commits, moves of parts) are sent once, in
//! causal order, and a client can resume from the vector that it keeps. Holders of locks are not in the log:
//! they are sent for this datacenter only and as best effort; after a loss the watch begins anew with the
//! present holders.

use std::sync::Arc;

use crate::base::time::Timestamp;
use crate::causal_log::Change;
use crate::crdt::VersionVector;
use geolock_api::keys::{Key, KeyError};
use geolock_api::names::{
    DcId, DcSet, FencingToken, LockName, LockNameError, MAX_LOCK_NAME, Mode, RequestId,
};

/// Most names and prefixes of one watch.
pub const MAX_PATTERNS: usize = 100;

/// A watch of keys or locks from a snapshot on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Watch {
    /// The kind of names that it follows.
    pub subject: Subject,
    /// The watch follows all names that match any of these. 1 to [`MAX_PATTERNS`].
    pub patterns: Vec<Pattern>,
    /// The vector that the client has: changes that are not in it are sent. `None`: the durable vector at
    /// this moment.
    pub from: Option<VersionVector>,
}

/// The kind of names that the patterns of a watch match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// Events are [`crate::replica::Notice::Changed`].
    Keys,
    /// Events are [`crate::replica::Notice::Lock`].
    Locks,
}

/// One name, or all names with a prefix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// The bytes of one key.
    Exactly(Arc<[u8]>),
    /// One lock, with the home that is part of its name.
    Lock(LockName),
    /// Keys, or locks with any home or none.
    BeginsWith(Arc<[u8]>),
}

impl Pattern {
    /// Returns the pattern of one key.
    pub fn key(key: &Key) -> Pattern {
        Pattern::Exactly(key.as_bytes().into())
    }

    /// Returns the pattern of the keys of a bucket whose names begin with `prefix`; empty for all.
    pub fn keys(bucket: &[u8], prefix: &[u8]) -> Result<Pattern, KeyError> {
        Key::prefix_bytes(bucket, prefix).map(Pattern::BeginsWith)
    }

    /// Returns the pattern of one lock.
    pub fn lock(name: &LockName) -> Pattern {
        Pattern::Lock(name.clone())
    }

    /// Returns the pattern of the locks whose names begin with `prefix`; empty for all.
    pub fn locks(prefix: &[u8]) -> Result<Pattern, LockNameError> {
        match prefix.len() {
            0..=MAX_LOCK_NAME => Ok(Pattern::BeginsWith(prefix.into())),
            longer => Err(LockNameError::TooLong(longer)),
        }
    }

    /// Returns the lock that is followed by its whole name.
    pub fn as_lock(&self) -> Option<&LockName> {
        match self {
            Pattern::Lock(name) => Some(name),
            Pattern::Exactly(_) | Pattern::BeginsWith(_) => None,
        }
    }

    /// Returns the bytes of the name or of the prefix, without a home.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Pattern::Exactly(bytes) | Pattern::BeginsWith(bytes) => bytes,
            Pattern::Lock(name) => name.as_bytes(),
        }
    }
}

/// The reason why a watch does not begin, or has ended. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages explain the variants")]
pub enum WatchRefusal {
    /// A watch can begin from a vector that covers `begins`.
    #[error(
        "what happened before {begins} is not remembered here: look at what you follow, and watch anew from the snapshot that you saw"
    )]
    TooOld { begins: VersionVector },
    #[error("a session has at most {0} watches")]
    TooMany(usize),
    #[error("a watch follows 1 to {MAX_PATTERNS} names and prefixes; this one follows {0}")]
    Patterns(usize),
}

/// A commit that changed keys which a watch follows. The vector of the client after it is the one before with
/// `dc` raised to `seq`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Changed {
    /// The tag of the call that began the watch.
    pub watch: u64,
    /// The datacenter that committed.
    pub dc: DcId,
    /// The number of the entry in its log.
    pub seq: u64,
    /// The stamp of the entry, by the hybrid clock of `dc`.
    pub at: Timestamp,
    /// The changes that the watch follows, in their order.
    pub changes: Vec<Change>,
}

/// A change of locks that a watch follows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockNews {
    /// The tag of the call that began the watch.
    pub watch: u64,
    /// The change.
    pub event: LockEvent,
}

/// The event of a [`LockNews`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "each variant explains its fields")]
pub enum LockEvent {
    /// From the log: the owner `dc` of parts gave them away with its entry `seq`, stamped `at`. Like
    /// [`Changed`], it raises the client's vector.
    Moved { dc: DcId, seq: u64, at: Timestamp, moves: Vec<LockMove> },
    /// All earlier holder events are void: the present holders follow. Comes first, and after events were
    /// dropped because the client did not keep up.
    HoldersReset,
    /// All holders since [`LockEvent::HoldersReset`] have been sent, and all releases.
    HoldersSynced,
    /// These locks are held. Before [`LockEvent::HoldersSynced`] it may be a duplicate.
    Granted(Holding),
    /// These locks are no longer held. Before [`LockEvent::HoldersSynced`] their grant may never have been
    /// sent.
    Released(Holding),
}

/// Parts of a lock that moved together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockMove {
    /// The lock.
    pub lock: LockName,
    /// The parts, by the members that they are named after.
    pub parts: DcSet,
    /// The new owner.
    pub to: DcId,
}

/// A holder, with those of its locks that the watch follows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holding {
    /// The request that holds, or held, the locks.
    pub request: RequestId,
    /// The fencing token of its grant.
    pub token: FencingToken,
    /// The label that its client gave it.
    pub label: Arc<str>,
    /// The locks that the watch follows, with the modes in which they are held. At least one; exactly one
    /// while the present holders are sent.
    pub locks: Vec<(LockName, Mode)>,
}

impl LockEvent {
    /// Returns true if the event may be dropped. It counts against the unread bytes of the client
    /// ([`crate::replica::call::Call::WatchTaken`]).
    pub fn is_best_effort(&self) -> bool {
        !matches!(self, LockEvent::Moved { .. })
    }

    /// Returns the approximate size in bytes, in memory and on the wire.
    pub fn weight(&self) -> usize {
        100 + match self {
            LockEvent::Moved { moves, .. } => {
                moves.iter().map(|moved| 32 + moved.lock.as_bytes().len()).sum::<usize>()
            }
            LockEvent::Granted(holding) | LockEvent::Released(holding) => {
                let locks = holding.locks.iter().map(|(name, _)| 24 + name.as_bytes().len());
                holding.label.len() + locks.sum::<usize>()
            }
            LockEvent::HoldersReset | LockEvent::HoldersSynced => 0,
        }
    }
}
