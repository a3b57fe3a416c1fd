//! The differences of databases: their statements, and how values and rows are passed.

use sqlx::Database;

use super::statements::Statements;
use crate::selector_state::{Token, TokenId};

/// A kind of database.
pub trait Dialect: Sized + Send + Sync + 'static {
    /// Its driver.
    type Driver: Database;
    /// Its name in messages.
    const NAME: &'static str;
    /// Its statements.
    const STATEMENTS: Statements;

    /// Runs a statement, and returns its rows.
    fn rows(
        connection: &mut <Self::Driver as Database>::Connection,
        statement: &'static str,
        values: &[Value<'_>],
    ) -> impl Future<Output = Result<Vec<Row>, sqlx::Error>> + Send;
}

/// An argument of a statement.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    Bytes(&'a [u8]),
    Text(&'a str),
    Number(i64),
    /// A list of ids.
    Ids(&'a [TokenId]),
    /// A list of tokens, always the last argument: a database may need several places for it.
    Tokens(&'a [&'a Token]),
}

/// A row of any statement: an id, and two columns that have a meaning for some tables. What cannot be read is
/// an error only for those that need it; the id then names the row.
pub struct Row {
    /// `id` of a token, or `tx`.
    pub id: Vec<u8>,
    /// `amount`, or `fence`.
    pub number: Result<Option<i64>, sqlx::Error>,
    pub home: Result<Option<i64>, sqlx::Error>,
}
