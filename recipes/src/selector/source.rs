//! Sources of tokens: the application's database, which says which tokens are unspent.

use std::error::Error;
use std::sync::Arc;

use crate::selector_state::{Pool, Token, TokenId};

/// The reason why a source did not answer. The selector reports it to the callers that have to wait for it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the source of the tokens failed: {0}")]
pub struct SourceError(#[source] Arc<dyn Error + Send + Sync>);

impl SourceError {
    /// Wraps the error of a database. All callers that wait for one query get it.
    pub fn new(error: impl Error + Send + Sync + 'static) -> SourceError {
        SourceError(Arc::new(error))
    }
}

/// The application's database of tokens.
///
/// Other readers and writers of the database notice nothing: a source needs no table for locks, and no
/// statement that locks rows.
pub trait TokenSource: Send + Sync + 'static {
    /// Returns the unspent tokens of a pool that follow `after`, or the first ones: the largest amount first,
    /// of equal amounts in the order of their ids; at most `most`. Fewer than that are the last ones.
    fn unspent(
        &self,
        pool: &Pool,
        after: Option<&Token>,
        most: usize,
    ) -> impl Future<Output = Result<Vec<Token>, SourceError>> + Send;

    /// Returns, for each of these tokens, true if it is unspent.
    fn still_unspent(&self, ids: &[TokenId]) -> impl Future<Output = Result<Vec<bool>, SourceError>> + Send;
}
