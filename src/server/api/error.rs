//! Refusals and their reasons, by the API layer or by the datacenter.
//!
//! On the stream a refusal is an [`Error`] message. In unary calls it is a gRPC status with the same `Error`
//! in a binary trailer: not in the standard details, which require a message of another package around it.

use std::time::Duration;

use prost::Message;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

use super::convert::{self, inspect};
use super::options::{MAX_EXPLANATION, MAX_EXPLANATION_IN_TRAILERS, REVISION};
use crate::access::Refused;
use crate::base::time::TimeToLiveError;
use crate::causal_log::{MAX_LOCKS_PER_REQUEST, WantsError};
use crate::lock_server::{End, OpenError, Stopped};
use crate::membership::TextError;
use crate::replica::call::store::TxnRefusal;
use crate::replica::call::watch::WatchRefusal;
use crate::replica::call::{AnyOfError, LockDescription, Refusal};
use crate::server::members::ProposalError;
use geolock_api::keys::{Key, KeyError};
use geolock_api::names::{ForceReasonError, LockNameError, MAX_LABEL};
use geolock_api::native::{FrameError, SocketError};
use geolock_api::proto::{ERROR_METADATA, Error, Reason};
use geolock_api::value::OpError;
use geolock_api::value::messages::UpdateFault;

/// Time after which a client should try a server again that is stopping or full.
const RETRY: Duration = Duration::from_secs(1);

/// The reason why a message was not passed to the datacenter. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub(super) enum BorderError {
    #[error("{0}")]
    Malformed(&'static str),
    #[error("{0}")]
    LockName(#[from] LockNameError),
    #[error("`reason`: {0}")]
    ForceReason(#[from] ForceReasonError),
    #[error("{0}")]
    Key(#[from] KeyError),
    #[error("{key}: {error}")]
    Expiry { key: Key, error: TimeToLiveError },
    /// A refusal that the datacenter would give too.
    #[error("{0}")]
    Transaction(#[from] TxnRefusal),
    /// Likewise.
    #[error("{0}")]
    Watch(#[from] WatchRefusal),
    #[error("a request names at least 1 lock; this one names none")]
    NoLocks,
    #[error("a request names at most {MAX_LOCKS_PER_REQUEST} locks; this one names {0}")]
    TooManyLocks(usize),
    #[error("{0}")]
    NamesTooLong(WantsError),
    #[error("`enough`: {0}")]
    AnyOf(#[from] AnyOfError),
    #[error("a label, or the name of a client, has at most {MAX_LABEL} bytes; this one has {0}")]
    LabelTooLong(usize),
    #[error("the first message of a stream is `hello`, and only the first")]
    HelloExpected,
    #[error("revision {0} of the API is not spoken here: 1 to {REVISION} are")]
    UnsupportedRevision(u32),
    #[error("reclaims in several messages have at most {0} bytes together")]
    ReclaimTooLarge(usize),
    #[error("reclaims in several messages, of all clients, have at most {0} bytes together at a time")]
    TooManyReclaims(usize),
    #[error("{0}")]
    Open(#[from] OpenError),
    #[error("{0}")]
    End(#[from] End),
    /// A refusal by gRPC itself: a message that is too large or no protobuf.
    #[error("{}", .0.message())]
    Transport(Status),
    /// The same on a native connection.
    #[error("{0}")]
    Socket(#[from] SocketError),
    #[error(
        "this client has {0} sessions open, which is its limit at this server (limits.max_sessions_per_client)"
    )]
    TooManySessions(usize),
    #[error(
        "this client has {0} calls under way, which is its limit at this server (limits.max_calls_per_client)"
    )]
    TooManyCalls(usize),
    #[error(
        "requests and answers of this client that are under way have {0} bytes or more, which is its limit at this server (limits.max_buffered_bytes_per_client): take the answers"
    )]
    TooManyBytes(usize),
    #[error("{0}")]
    MemberName(#[from] TextError),
    #[error("there is no datacenter {0}")]
    NoDc(u32),
    #[error("that is no policy: evict is wait, operator or auto, and join is operator or auto")]
    UnknownPolicy,
    /// Nothing was changed, or it may have been.
    #[error("{0}")]
    Members(#[from] ProposalError),
    #[error("this server takes no part in the control group; its log says why")]
    NoControlGroup,
    #[error("the operating system gives no random bytes")]
    NoRandomness,
    #[error("{0}")]
    Refused(#[from] Refused),
    #[error("this is a bug in geolock: a call came by no connection")]
    NoPeer,
}

impl From<WantsError> for BorderError {
    fn from(error: WantsError) -> BorderError {
        match error {
            WantsError::Empty => BorderError::NoLocks,
            WantsError::TooManyLocks(count) => BorderError::TooManyLocks(count),
            WantsError::NamesTooLong(_) => BorderError::NamesTooLong(error),
            WantsError::Unsorted => BorderError::Malformed("the locks are not sorted"),
        }
    }
}

impl From<UpdateFault> for BorderError {
    fn from(UpdateFault(what): UpdateFault) -> BorderError {
        BorderError::Malformed(what)
    }
}

impl From<FrameError> for BorderError {
    fn from(error: FrameError) -> BorderError {
        BorderError::Socket(error.into())
    }
}

impl From<Stopped> for BorderError {
    fn from(_: Stopped) -> BorderError {
        BorderError::End(End::Stopped)
    }
}

impl BorderError {
    fn reason(&self) -> Reason {
        match self {
            BorderError::Malformed(_)
            | BorderError::ForceReason(_)
            | BorderError::MemberName(_)
            | BorderError::UnknownPolicy
            | BorderError::Transport(_)
            | BorderError::Socket(_) => Reason::Malformed,
            BorderError::LockName(LockNameError::UnknownHome(_)) | BorderError::NoDc(_) => Reason::UnknownDc,
            BorderError::Members(
                ProposalError::Refused(_)
                | ProposalError::LongerLeases { .. }
                | ProposalError::NotReached { .. },
            ) => Reason::MembersUnchanged,
            BorderError::Members(_) | BorderError::NoControlGroup => Reason::Unavailable,
            BorderError::LockName(LockNameError::Empty) => Reason::LockNameEmpty,
            BorderError::LockName(LockNameError::TooLong(_)) => Reason::LockNameTooLong,
            BorderError::Key(_) => Reason::InvalidKey,
            BorderError::Expiry { .. } => Reason::ExpiryOutOfRange,
            BorderError::Transaction(refusal) => transaction_reason(refusal),
            BorderError::Watch(refusal) => watch_reason(refusal),
            BorderError::NoLocks => Reason::NoLocks,
            BorderError::TooManyLocks(_) => Reason::TooManyLocks,
            BorderError::NamesTooLong(_) => Reason::NamesTooLong,
            BorderError::AnyOf(refusal) => candidates_reason(refusal),
            BorderError::LabelTooLong(_) => Reason::LabelTooLong,
            BorderError::HelloExpected => Reason::HelloExpected,
            BorderError::UnsupportedRevision(_) => Reason::UnsupportedRevision,
            BorderError::ReclaimTooLarge(_)
            | BorderError::TooManyReclaims(_)
            | BorderError::TooManySessions(_)
            | BorderError::TooManyCalls(_)
            | BorderError::TooManyBytes(_)
            | BorderError::Open(OpenError::TooMany(_)) => Reason::ResourceExhausted,
            BorderError::End(End::SlowReader) => Reason::SlowReader,
            BorderError::Open(OpenError::Stopped(_)) | BorderError::End(End::Stopped) => Reason::Unavailable,
            BorderError::NoRandomness | BorderError::NoPeer => Reason::Unavailable,
            BorderError::Refused(refused) if refused.is_unknown() => Reason::Unauthenticated,
            BorderError::Refused(_) => Reason::PermissionDenied,
        }
    }

    pub(super) fn to_error(&self) -> Error {
        let reason = self.reason();
        let is_for_ever = matches!(self, BorderError::ReclaimTooLarge(_));
        let retry = !is_for_ever && matches!(reason, Reason::ResourceExhausted | Reason::Unavailable);
        let retry_after_ms = if retry { convert::millis(RETRY) } else { 0 };
        Error { reason: reason.into(), message: self.to_string(), retry_after_ms, ..Error::default() }
    }
}

impl From<BorderError> for Status {
    fn from(error: BorderError) -> Status {
        let code = match &error {
            BorderError::Transport(status) => status.code(),
            error => code(error.reason()),
        };
        status(code, &error.to_error())
    }
}

/// Returns a refusal of the datacenter as an answer on a stream.
pub(super) fn refused(refusal: &Refusal) -> Error {
    to_error(refusal, MAX_EXPLANATION)
}

/// Returns a refusal of the datacenter as the status of a unary call.
pub(super) fn refused_status(refusal: &Refusal) -> Status {
    status(code(reason(refusal)), &to_error(refusal, MAX_EXPLANATION_IN_TRAILERS))
}

fn to_error(refusal: &Refusal, room: usize) -> Error {
    let mut error =
        Error { reason: reason(refusal).into(), message: refusal.to_string(), ..Error::default() };
    if let Refusal::NotEnoughFree { free } | Refusal::NotEnoughInTime { free, .. } = refusal {
        error.free = Some(u64::try_from(*free).unwrap_or(u64::MAX));
    }
    match refusal {
        Refusal::TimedOut(locks) | Refusal::NotEnoughInTime { locks, .. } => {
            error.locks = explain(locks, room);
            let left_out = locks.len() - error.locks.len();
            error.omitted_locks = u32::try_from(left_out).unwrap_or(u32::MAX);
        }
        Refusal::ResourceExhausted { retry_after, .. } | Refusal::NotBacked { retry_after } => {
            error.retry_after_ms = convert::millis(*retry_after)
        }
        _ => {}
    }
    error
}

/// Returns the first descriptions, as many as fit.
fn explain(locks: &[LockDescription], room: usize) -> Vec<geolock_api::proto::LockDescription> {
    let mut used = 0;
    let fits = |lock: &&LockDescription| {
        used += lock.weight();
        used <= room
    };
    locks.iter().take_while(fits).map(inspect::description).collect()
}

fn status(code: Code, error: &Error) -> Status {
    let mut metadata = MetadataMap::new();
    metadata.insert_bin(ERROR_METADATA, MetadataValue::from_bytes(&error.encode_to_vec()));
    Status::with_metadata(code, error.message.clone(), metadata)
}

fn reason(refusal: &Refusal) -> Reason {
    match refusal {
        Refusal::UnknownLease(_) => Reason::UnknownLease,
        Refusal::NotBacked { .. } | Refusal::NotServing(_) => Reason::Unavailable,
        Refusal::ForeignLease { .. } => Reason::ForeignLease,
        Refusal::WrongSecret(_) => Reason::WrongSecret,
        Refusal::NotAttached(_) => Reason::NotAttached,
        Refusal::TtlOutOfRange { .. } => Reason::TtlOutOfRange,
        Refusal::LabelTooLong { .. } => Reason::LabelTooLong,
        Refusal::NotHeld => Reason::NotHeld,
        Refusal::NotOfRequest { .. } => Reason::NotOfRequest,
        Refusal::NotWaiting(_) => Reason::NotWaiting,
        Refusal::AmendmentMissing { .. } => Reason::StepMissing,
        Refusal::Candidates(refusal) => candidates_reason(refusal),
        Refusal::IdempotencyKeyReused(_) => Reason::IdempotencyKeyReused,
        Refusal::IdempotencyKeyFinished(_) => Reason::IdempotencyKeyFinished,
        Refusal::NotFree | Refusal::NotEnoughFree { .. } => Reason::NotFree,
        Refusal::TimedOut(_) | Refusal::NotEnoughInTime { .. } => Reason::TimedOut,
        Refusal::Cancelled => Reason::Cancelled,
        Refusal::LeaseEnded => Reason::LeaseEnded,
        Refusal::Draining => Reason::Draining,
        Refusal::ResourceExhausted { .. } => Reason::ResourceExhausted,
        Refusal::DiskFull => Reason::DiskFull,
        Refusal::NoReclaimExpected(_) => Reason::NoReclaimExpected,
        Refusal::ForceReleased(_) => Reason::ForceReleased,
        Refusal::HoldersUnknown(_) => Reason::HoldersUnknown,
        Refusal::NotYet { .. } => Reason::NotYet,
        Refusal::UnknownHome { .. } => Reason::UnknownDc,
        Refusal::Transaction(refusal) => transaction_reason(refusal),
        Refusal::Watch(refusal) => watch_reason(refusal),
    }
}

fn candidates_reason(refusal: &AnyOfError) -> Reason {
    match refusal {
        AnyOfError::Empty => Reason::NoLocks,
        AnyOfError::TooMany(_) => Reason::TooManyLocks,
        AnyOfError::NamesTooLong(_) => Reason::NamesTooLong,
        AnyOfError::NotEnough { .. } => Reason::NotEnough,
        AnyOfError::MostTooLarge(_)
        | AnyOfError::NoAmount
        | AnyOfError::NoWeight(_)
        | AnyOfError::Twice(_) => Reason::Malformed,
    }
}

fn transaction_reason(refusal: &TxnRefusal) -> Reason {
    match refusal {
        TxnRefusal::Change(change) => match change.error {
            OpError::WrongType { .. } => Reason::WrongType,
            OpError::TooDeep(_) | OpError::NotResettable(_) | OpError::BoundedInMap => {
                Reason::ImpossibleOperation
            }
            OpError::Overflow => Reason::CounterOverflow,
            OpError::InsufficientRights { .. } => Reason::InsufficientRights,
            OpError::Stale { .. } => Reason::StaleVersion,
            OpError::Done { .. } => Reason::ValueDone,
            OpError::TooLarge { .. } => Reason::ChangeTooLarge,
            OpError::KeyEnded => Reason::KeyEnded,
        },
        TxnRefusal::ChangeTooLarge { .. } => Reason::ChangeTooLarge,
        TxnRefusal::TooLarge { .. } => Reason::TransactionTooLarge,
        TxnRefusal::TooManyReads(_) => Reason::TooManyReads,
        TxnRefusal::ReadsTooLarge(_) => Reason::ReadsTooLarge,
        TxnRefusal::Unknown(_) => Reason::TransactionUnknown,
        TxnRefusal::NotOpenYet(_) => Reason::TransactionNotOpenYet,
        TxnRefusal::StepMissing { .. } => Reason::StepMissing,
        TxnRefusal::TooOld(..) | TxnRefusal::StateReplaced(_) => Reason::TransactionTooOld,
        TxnRefusal::LocksLost(_) => Reason::TransactionLostLocks,
        TxnRefusal::TooManyGuards(_) => Reason::TransactionTooLarge,
        TxnRefusal::NotHeld(_) => Reason::NotHeld,
        TxnRefusal::ForceReleased { .. } => Reason::ForceReleased,
        TxnRefusal::OutcomeUnknown(_) => Reason::OutcomeUnknown,
        TxnRefusal::Committed(_) => Reason::TransactionCommitted,
        TxnRefusal::SnapshotAhead { .. } | TxnRefusal::SnapshotLost { .. } => Reason::SnapshotAhead,
        TxnRefusal::UnknownDc(_) => Reason::UnknownDc,
        TxnRefusal::SnapshotNotReached { .. } | TxnRefusal::NoState => Reason::SnapshotNotReached,
        TxnRefusal::CannotCommit(_) => Reason::CannotCommit,
    }
}

fn watch_reason(refusal: &WatchRefusal) -> Reason {
    match refusal {
        WatchRefusal::TooOld { .. } => Reason::WatchTooOld,
        WatchRefusal::TooMany(_) => Reason::TooManyWatches,
        WatchRefusal::Patterns(_) => Reason::Malformed,
    }
}

/// Returns the status code of a reason in unary calls, as the .proto file states it.
fn code(reason: Reason) -> Code {
    match reason {
        Reason::Unspecified | Reason::OutcomeUnknown => Code::Unknown,
        Reason::UnknownLease | Reason::TransactionUnknown => Code::NotFound,
        Reason::WrongSecret | Reason::NotAttached | Reason::PermissionDenied => Code::PermissionDenied,
        Reason::Unauthenticated => Code::Unauthenticated,
        Reason::ForeignLease
        | Reason::NotHeld
        | Reason::NotOfRequest
        | Reason::NotWaiting
        | Reason::IdempotencyKeyFinished
        | Reason::NoReclaimExpected
        | Reason::HelloExpected
        | Reason::WrongType
        | Reason::InsufficientRights
        | Reason::StaleVersion
        | Reason::ValueDone
        | Reason::NotYet
        | Reason::MembersUnchanged
        | Reason::TransactionNotOpenYet
        | Reason::TransactionCommitted
        | Reason::StepMissing => Code::FailedPrecondition,
        Reason::NotFree
        | Reason::LeaseEnded
        | Reason::TransactionTooOld
        | Reason::TransactionLostLocks
        | Reason::KeyEnded
        | Reason::ForceReleased => Code::Aborted,
        Reason::CounterOverflow | Reason::ReadsTooLarge | Reason::SnapshotAhead | Reason::WatchTooOld => {
            Code::OutOfRange
        }
        Reason::TimedOut | Reason::SnapshotNotReached => Code::DeadlineExceeded,
        Reason::Cancelled => Code::Cancelled,
        Reason::Draining
        | Reason::Unavailable
        | Reason::CannotCommit
        | Reason::DiskFull
        | Reason::HoldersUnknown => Code::Unavailable,
        Reason::ResourceExhausted | Reason::SlowReader | Reason::TooManyWatches => Code::ResourceExhausted,
        Reason::UnsupportedRevision => Code::Unimplemented,
        Reason::TtlOutOfRange
        | Reason::LabelTooLong
        | Reason::IdempotencyKeyReused
        | Reason::Malformed
        | Reason::LockNameEmpty
        | Reason::LockNameTooLong
        | Reason::NoLocks
        | Reason::TooManyLocks
        | Reason::NamesTooLong
        | Reason::NotEnough
        | Reason::ImpossibleOperation
        | Reason::ChangeTooLarge
        | Reason::TransactionTooLarge
        | Reason::TooManyReads
        | Reason::UnknownDc
        | Reason::InvalidKey
        | Reason::ExpiryOutOfRange => Code::InvalidArgument,
    }
}
