//! Results of spawned tasks.

use std::panic::resume_unwind;

use tokio::task::JoinError;

/// Returns the result of a task that is never cancelled. If the task panicked, resumes its panic here.
pub(crate) fn joined<T>(outcome: Result<T, JoinError>) -> T {
    outcome.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => resume_unwind(panic),
        Err(error) => unreachable!("nobody cancels this task: {error}"),
    })
}
