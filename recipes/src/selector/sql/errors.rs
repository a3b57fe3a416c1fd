//! Errors of the sources of tokens in SQL databases.

use super::super::apply::ApplyError;
use super::super::source::SourceError;

/// The reason inside a [`SourceError`] of a source in an SQL database.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqlError {
    /// The database did not do an operation.
    #[error("{database} could not {operation}: {error}")]
    Database {
        /// The kind of database.
        database: &'static str,
        /// The operation.
        operation: &'static str,
        /// The reason.
        #[source]
        error: sqlx::Error,
    },
    /// A row has something that cannot be.
    #[error("row {row} of the table {table} has {fault}: correct or delete the row")]
    Row {
        /// The table.
        table: &'static str,
        /// The id of the row, with escapes.
        row: String,
        /// The column, its value, and the values that it can have.
        fault: String,
    },
}

impl From<SqlError> for SourceError {
    fn from(error: SqlError) -> SourceError {
        SourceError::new(error)
    }
}

impl From<SqlError> for ApplyError {
    fn from(error: SqlError) -> ApplyError {
        ApplyError::Source(error.into())
    }
}
