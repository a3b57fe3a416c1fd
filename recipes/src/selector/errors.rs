//! The errors of a token selector.

use std::sync::Arc;
use std::time::Duration;

use geolock_client::{AcquireError, ClientError, CommitError};

use super::{Pool, SourceError, TokenError, TxId};
use crate::selector_state::{HeldBy, Limit, MAX_TX};

/// The reason why tokens were not selected, reserved, spent or released.
///
/// After an error of `select` the transaction holds nothing. All callers that wait for one transaction get
/// the same error.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// The pool has less than was asked, counting what other transactions hold and may give back. It was read
    /// to find that out.
    #[error("the pool has {have} in all, and {asked} were asked")]
    Insufficient {
        /// The sum of its unspent tokens.
        have: u128,
        /// The amount.
        asked: u64,
    },
    /// The pool has enough, but others hold it. `by` has at most some hundred of them.
    #[error("of the pool {free} is free, and that is not enough; try again in {retry_after:?}{}", held(.by))]
    Locked {
        /// The sum of what was free.
        free: u128,
        /// The holders of what was needed, as far as they are known.
        by: Vec<HeldBy>,
        /// The shortest time after which a hold ends even if its replica is dead.
        retry_after: Duration,
    },
    /// The time was over before the source, or the server, had answered.
    #[error("the source or the server did not answer in time; nothing is held")]
    Timeout,
    /// The source could not be read, and what is cached is too old.
    #[error("{0}; what is cached is too old to be used")]
    SourceUnavailable(Arc<SourceError>),
    /// The source lists a token that cannot be.
    #[error("the source of the tokens: {0}")]
    Token(#[from] TokenError),
    /// A limit of the options would have to be passed.
    #[error("`{which}` is {most}: the amount cannot be selected within it; raise it, or merge tokens")]
    Limit {
        /// The limit.
        which: Limit,
        /// Its value.
        most: usize,
    },
    /// The tokens are not, or no longer, those of the transaction: its locks were lost before it had reserved
    /// them, or its reservation has ended. Do not submit it; select again.
    #[error("the tokens of {tx} are not reserved for it any more: do not submit it, and select again")]
    Fenced {
        /// The transaction.
        tx: TxId,
    },
    /// The transaction has no selection here, and no reservation.
    #[error("{tx} has selected nothing, or its reservation has ended")]
    Unknown {
        /// The transaction.
        tx: TxId,
    },
    /// The transaction has spent its tokens, so they cannot be released.
    #[error("{tx} has spent its tokens: they cannot be released")]
    AlreadySpent {
        /// The transaction.
        tx: TxId,
    },
    /// The transaction has selected for another pool or amount.
    #[error("{tx} has selected {amount} of {pool}: use another id for another payment")]
    OtherRequest {
        /// The transaction.
        tx: TxId,
        /// Its pool.
        pool: Pool,
        /// Its amount.
        amount: u64,
    },
    /// The amount is 0.
    #[error("an amount is at least 1")]
    Amount,
    /// Wallet or currency are empty, or too long once the prefix of the space is added.
    #[error(
        "pool {pool}: wallet and currency have at least 1 byte, and with the name of the space and an id of a \
         transaction (up to {MAX_TX} bytes) they are a key of at most 1024 bytes; here it has {len}"
    )]
    Pool {
        /// The pool.
        pool: Pool,
        /// The bytes of the key.
        len: usize,
    },
    /// A key of the store has something that no selector has written.
    #[error("key {key} of bucket geolock.tokens cannot be read: remove it, or update this program")]
    Unreadable {
        /// The key.
        key: String,
    },
    /// The server could not be reached, or refused.
    #[error(transparent)]
    Client(#[from] Arc<ClientFailure>),
    /// The selector was dropped.
    #[error("the selector was dropped")]
    Closed,
}

/// An error of the client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientFailure {
    /// Of a request for locks.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
    /// Of a write.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// Of a read.
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl From<AcquireError> for SelectError {
    fn from(error: AcquireError) -> SelectError {
        Arc::new(ClientFailure::from(error)).into()
    }
}

impl From<CommitError> for SelectError {
    fn from(error: CommitError) -> SelectError {
        Arc::new(ClientFailure::from(error)).into()
    }
}

impl From<ClientError> for SelectError {
    fn from(error: ClientError) -> SelectError {
        Arc::new(ClientFailure::from(error)).into()
    }
}

fn held(by: &[HeldBy]) -> String {
    let few = by.iter().take(3).map(|held| format!("; {held}"));
    few.collect::<String>() + if by.len() > 3 { "; and others" } else { "" }
}
