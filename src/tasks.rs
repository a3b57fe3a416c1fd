//! What tasks come to.

use std::panic::resume_unwind;

use tokio::task::JoinError;

/// What a task came to that nobody cancels. Its panic goes on here.
pub(crate) fn joined<T>(outcome: Result<T, JoinError>) -> T {
    outcome.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => resume_unwind(panic),
        Err(error) => unreachable!("nobody cancels this task: {error}"),
    })
}
