//! What clients ask to be told as it happens, and what they are told.
//!
//! A watch follows keys or locks. What the log says of them (commits, moves of locks) is told once, in causal order, and
//! can be gone on from: the client keeps a vector of what it knows. Who holds a lock is not in the log: that is told for
//! this datacenter only and as well as it goes, and begins anew with what is when some of it got lost.

use std::sync::Arc;

use crate::causal_log::Change;
use crate::crdt::VersionVector;
use crate::keys::{Key, KeyError};
use crate::names::{DcId, DcSet, FencingToken, LockName, LockNameError, MAX_LOCK_NAME, Mode, RequestId};
use crate::time::Timestamp;

/// Most names and prefixes of one watch.
pub const MAX_PATTERNS: usize = 100;

/// Follows keys or locks from a snapshot on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Watch {
    pub subject: Subject,
    /// What matches any of these is followed. 1 to [`MAX_PATTERNS`].
    pub patterns: Vec<Pattern>,
    /// What the client knows already; `None`: all that is durable now.
    pub from: Option<VersionVector>,
}

/// What the patterns of a watch are names of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// Answered with [`super::Notice::Changed`].
    Keys,
    /// Answered with [`super::Notice::Lock`].
    Locks,
}

/// One name, or all that begin alike.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Pattern {
    Exactly(Arc<[u8]>),
    BeginsWith(Arc<[u8]>),
}

impl Pattern {
    pub fn key(key: &Key) -> Pattern {
        Pattern::Exactly(key.as_bytes().into())
    }

    /// The keys of a bucket whose names begin with `prefix`; empty for all.
    pub fn keys(bucket: &[u8], prefix: &[u8]) -> Result<Pattern, KeyError> {
        Key::prefix_bytes(bucket, prefix).map(Pattern::BeginsWith)
    }

    pub fn lock(name: &LockName) -> Pattern {
        Pattern::Exactly(name.as_bytes().into())
    }

    /// The locks whose names begin with `prefix`; empty for all.
    pub fn locks(prefix: &[u8]) -> Result<Pattern, LockNameError> {
        match prefix.len() {
            0..=MAX_LOCK_NAME => Ok(Pattern::BeginsWith(prefix.into())),
            longer => Err(LockNameError::TooLong(longer)),
        }
    }

    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Pattern::Exactly(bytes) | Pattern::BeginsWith(bytes) => bytes,
        }
    }
}

/// Why a watch does not begin. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WatchRefusal {
    #[error(
        "what happened before {begins} is not remembered here: look at what you follow, and watch anew from the snapshot that you saw"
    )]
    TooOld { begins: VersionVector },
    #[error("a session has at most {0} watches")]
    TooMany(usize),
    #[error("a watch follows 1 to {MAX_PATTERNS} names and prefixes; this one follows {0}")]
    Patterns(usize),
}

/// A commit that changed keys which a watch follows. What a client knows after it: what it knew before, with `dc` raised
/// to `seq`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Changed {
    /// The tag of the call that began the watch.
    pub watch: u64,
    pub dc: DcId,
    pub seq: u64,
    pub at: Timestamp,
    /// Those that the watch follows, in the order in which they were made.
    pub changes: Vec<Change>,
}

/// Something happened to locks that a watch follows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockNews {
    /// The tag of the call that began the watch.
    pub watch: u64,
    pub event: LockEvent,
}

/// See [`LockNews`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LockEvent {
    /// From the log; like [`Changed`], it says what a client knows after it.
    Moved { dc: DcId, seq: u64, at: Timestamp, moves: Vec<LockMove> },
    /// What was told of holders counts no more: it is told anew. Comes first, and when something got lost because the
    /// client did not keep up.
    Anew,
    /// All who held anything since [`LockEvent::Anew`] have been told, and who has let go.
    Current,
    /// These locks are held. Perhaps told already, if it was so before [`LockEvent::Current`].
    Granted(Holding),
    /// They are not held any more. Perhaps never told to be, if it was so before [`LockEvent::Current`].
    Released(Holding),
}

/// Parts of a lock that moved together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockMove {
    pub lock: LockName,
    pub parts: DcSet,
    pub to: DcId,
}

/// A holder, and which of the locks that it has a watch follows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holding {
    pub request: RequestId,
    pub token: FencingToken,
    pub label: Arc<str>,
    pub locks: Vec<(LockName, Mode)>,
}

impl LockEvent {
    /// Whether it may get lost, and counts against what a client may have unread ([`super::call::Call::WatchTaken`]).
    pub fn is_best_effort(&self) -> bool {
        !matches!(self, LockEvent::Moved { .. })
    }

    /// About how many bytes this takes, in memory and on the wire.
    pub fn weight(&self) -> usize {
        100 + match self {
            LockEvent::Moved { moves, .. } => {
                moves.iter().map(|moved| 32 + moved.lock.as_bytes().len()).sum::<usize>()
            }
            LockEvent::Granted(holding) | LockEvent::Released(holding) => {
                let locks = holding.locks.iter().map(|(name, _)| 24 + name.as_bytes().len());
                holding.label.len() + locks.sum::<usize>()
            }
            LockEvent::Anew | LockEvent::Current => 0,
        }
    }
}
