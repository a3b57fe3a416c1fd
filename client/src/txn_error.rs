//! The errors of transactions that callers see.

use std::fmt;

use geolock_api::names::DcId;
use geolock_api::proto::{self, Reason, Snapshot};

use super::error::{AcquireError, LostReason, of_refusal};
use super::values::{Value, WrongType};

/// The reason why a transaction could not begin, read or change. The failed call changed nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TxnError {
    /// There is no transaction: it did not get its locks, or the server refuses new ones.
    #[error("the transaction did not begin: {0}")]
    NotBegun(#[source] AcquireError),
    /// The server refused because of the content of the call. An open transaction is as before.
    #[error("the server refused: {message} ({name})", message = .1, name = .0.as_str_name())]
    Refused(Reason, String),
    /// The transaction is over, and none of its changes ever happen: it was open for too long, it lost its
    /// locks (to an operator if the reason is [`Reason::ForceReleased`]), or the server restarted. Begin
    /// another one.
    #[error("the transaction is over without a trace: {message} ({name})", message = .1, name = .0.as_str_name())]
    Over(Reason, String),
    /// The transaction ended with its lease; none of its changes ever happen.
    #[error("the transaction is over without a trace: {0}")]
    LeaseLost(LostReason),
    /// A value that was read has another type than it was used as. An open transaction is as before.
    #[error(transparent)]
    WrongType(#[from] WrongType),
    /// As [`ClientError::Closed`](super::ClientError::Closed).
    #[error("the client is closed")]
    Closed,
}

/// The reason why a transaction is not known to have committed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// The transaction did not commit, and never will.
    #[error("not committed: {0}")]
    NotCommitted(#[from] TxnError),
    /// The transaction may have committed or not: no server answered in time, the server has discarded the
    /// outcome, or its present access rules refuse the query.
    #[error("it is not known whether the transaction committed: {0}")]
    OutcomeUnknown(String),
    /// The transaction **committed**, in the datacenter of the server, and stays committed: do not make it
    /// again. But a majority of the datacenters, which [`TxnRequest::durability`] or the configuration of the
    /// server requires, is not known to have it on disk yet.
    ///
    /// [`TxnRequest::durability`]: super::TxnRequest::durability
    #[error("{0}")]
    NotAtMajority(Box<NotAtMajority>),
}

/// A commit that no majority of the datacenters had on disk in time.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NotAtMajority {
    /// As [`Transacted::commit`](super::Transacted::commit).
    pub commit: Snapshot,
    /// As [`Transacted::values`](super::Transacted::values).
    pub values: Option<Vec<Value>>,
    /// The datacenters that are not known to have the commit on disk. Empty if the server does not know of
    /// this durability.
    pub missing: Vec<DcId>,
}

impl fmt::Display for NotAtMajority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("committed, but it is not known that a majority of the datacenters has it on disk: ")?;
        if self.missing.is_empty() {
            return f.write_str("the server does not know this durability");
        }
        let missing: Vec<String> = self.missing.iter().map(DcId::to_string).collect();
        write!(f, "no acknowledgement from {}", missing.join(", "))
    }
}

/// A call that does not commit cannot have an unknown outcome.
impl From<CommitError> for TxnError {
    fn from(error: CommitError) -> TxnError {
        match error {
            CommitError::NotCommitted(error) => error,
            CommitError::OutcomeUnknown(why) => TxnError::Over(Reason::OutcomeUnknown, why),
            CommitError::NotAtMajority(not) => TxnError::Over(Reason::TransactionCommitted, not.to_string()),
        }
    }
}

/// Translates the refusal of a step.
pub(super) fn of_step(error: proto::Error) -> CommitError {
    use Reason::{
        Cancelled, Draining, ForceReleased, NotFree, OutcomeUnknown, ResourceExhausted, TimedOut,
        TransactionCommitted, TransactionLostLocks, TransactionTooOld, TransactionUnknown,
    };
    let refused = match error.reason() {
        OutcomeUnknown => return CommitError::OutcomeUnknown(error.message),
        TimedOut | NotFree | Draining | ResourceExhausted => TxnError::NotBegun(of_refusal(error)),
        reason @ (TransactionUnknown | TransactionTooOld | TransactionLostLocks | TransactionCommitted
        | ForceReleased | Cancelled) => TxnError::Over(reason, error.message),
        reason => TxnError::Refused(reason, error.message),
    };
    CommitError::NotCommitted(refused)
}
