//! What can go wrong with a transaction, as a caller sees it.

use crate::proto::{self, Reason};

use super::error::{AcquireError, LostReason, of_refusal};
use super::values::WrongType;

/// Why a transaction could not begin, read or change. Nothing of what was asked for was done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TxnError {
    /// There is no transaction: it did not get its locks, or the server takes none.
    #[error("the transaction did not begin: {0}")]
    NotBegun(#[source] AcquireError),
    /// The server said no, because of what was asked. A transaction that was open is as before.
    #[error("the server refused: {message} ({name})", message = .1, name = .0.as_str_name())]
    Refused(Reason, String),
    /// The transaction is over, and nothing of it happened: it was open for too long, it lost its locks (perhaps to an
    /// operator, [`Reason::ForcedOut`]), or the server restarted. Begin another.
    #[error("the transaction is over without a trace: {message} ({name})", message = .1, name = .0.as_str_name())]
    Over(Reason, String),
    /// The transaction ended with its lease; nothing of it happened.
    #[error("the transaction is over without a trace: {0}")]
    LeaseLost(LostReason),
    #[error(transparent)]
    WrongType(#[from] WrongType),
    #[error("the client is closed")]
    Closed,
}

/// Why a transaction is not known to have committed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// Nothing of it happened, and never will.
    #[error("not committed: {0}")]
    NotCommitted(#[from] TxnError),
    /// It may have committed or not: the server could not be asked in time, does not remember, or has rules by now that do
    /// not let this client ask.
    #[error("it is not known whether the transaction committed: {0}")]
    OutcomeUnknown(String),
}

/// Where no commit was asked for, nothing can have been committed.
impl From<CommitError> for TxnError {
    fn from(error: CommitError) -> TxnError {
        match error {
            CommitError::NotCommitted(error) => error,
            CommitError::OutcomeUnknown(why) => TxnError::Over(Reason::OutcomeUnknown, why),
        }
    }
}

/// What a refused step means.
pub(super) fn of_step(error: proto::Error) -> CommitError {
    use Reason::{
        Cancelled, Draining, ForcedOut, NotFree, OutcomeUnknown, ResourceExhausted, TimedOut,
        TransactionLostLocks, TransactionOver, TransactionTooOld, TransactionUnknown,
    };
    let refused = match error.reason() {
        OutcomeUnknown => return CommitError::OutcomeUnknown(error.message),
        TimedOut | NotFree | Draining | ResourceExhausted => TxnError::NotBegun(of_refusal(error)),
        reason @ (TransactionUnknown | TransactionTooOld | TransactionLostLocks | TransactionOver
        | ForcedOut | Cancelled) => TxnError::Over(reason, error.message),
        reason => TxnError::Refused(reason, error.message),
    };
    CommitError::NotCommitted(refused)
}
