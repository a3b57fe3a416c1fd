//! Errors that pass: when a recipe tries again, and after how long.

use std::time::Duration;

use geolock_client::{ClientError, CommitError, Reason, TxnError};

use crate::once_state::NotWritten;

/// Pause before the next attempt to reach a server that does not answer, or is about to stop.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);

/// The reason why a transaction under the lock did not commit.
#[derive(Debug)]
pub(crate) enum Failed {
    NotWritten(NotWritten),
    /// For good.
    Refused(Reason, String),
}

/// Sorts the errors of a transaction under a guard.
pub(crate) fn failed(error: CommitError) -> Failed {
    let for_now = Failed::NotWritten(NotWritten::ForNow);
    let lost = Failed::NotWritten(NotWritten::Lost);
    match error {
        CommitError::NotCommitted(error) => match error {
            TxnError::LeaseLost(_) | TxnError::Closed => lost,
            TxnError::Over(Reason::TransactionLostLocks | Reason::ForceReleased, _) => lost,
            // It did not commit, and the lock may still be held: the next attempt tells.
            TxnError::Over(..) | TxnError::NotBegun(_) => for_now,
            TxnError::Refused(Reason::NotHeld, _) => lost,
            TxnError::Refused(reason, _) if passes(reason) => for_now,
            TxnError::Refused(reason, message) => Failed::Refused(reason, message),
            error => Failed::Refused(Reason::Unspecified, error.to_string()),
        },
        // The next holder of the lock sees its outcome.
        _ => lost,
    }
}

/// Returns true if the server may think otherwise in a moment.
pub(crate) fn passes(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::CannotCommit
            | Reason::DiskFull
            | Reason::Draining
            | Reason::KeyEnded
            | Reason::NotYet
            | Reason::ResourceExhausted
            | Reason::Unavailable
    )
}

/// Returns true if a read or a watch may succeed in a moment.
pub(crate) fn read_passes(error: &ClientError) -> bool {
    match error {
        ClientError::Refused(reason, _) => passes(*reason),
        error => matches!(error, ClientError::Unreachable { .. }),
    }
}

/// Returns true if a transaction without a guard, of which nothing was committed, may be made again.
pub(crate) fn txn_passes(error: &TxnError) -> bool {
    match error {
        TxnError::Refused(reason, _) => passes(*reason),
        TxnError::LeaseLost(_) | TxnError::NotBegun(_) | TxnError::Over(..) => true,
        _ => false,
    }
}
