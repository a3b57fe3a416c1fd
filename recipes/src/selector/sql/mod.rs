//! Sources of tokens in SQLite and PostgreSQL. With the features `tokens-sqlite` and `tokens-postgres`.
//!
//! | table | rows |
//! |---|---|
//! | `tokens` | the unspent tokens, with the transaction that made each; spent ones are deleted |
//! | `fences` | the ids of spent tokens, with the fencing token under which each was spent |
//! | `applied` | the transactions that were applied, so that each is applied once |
//!
//! The two databases differ in a few statements ([`Statements`](statements::Statements)) and in how values
//! are bound and rows are read ([`Dialect`](dialect::Dialect)). All else is shared: the order of the
//! statements of a transaction, the decisions between them, the checks of rows. No statement has a list of
//! variable length in its text; a list is one argument, so that each statement is prepared once for a
//! connection.

mod dialect;
mod errors;
#[cfg(feature = "tokens-postgres")]
mod postgres;
mod source;
#[cfg(feature = "tokens-sqlite")]
mod sqlite;
mod statements;

pub use errors::SqlError;
#[cfg(feature = "tokens-postgres")]
pub use postgres::PostgresSource;
pub use source::SqlSource;
#[cfg(feature = "tokens-sqlite")]
pub use sqlite::SqliteSource;

#[cfg(test)]
mod tests;
