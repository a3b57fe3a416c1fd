//! The source of tokens in a file of SQLite.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePoolOptions, SqliteRow,
    SqliteSynchronous,
};
use sqlx::{Row as _, TypeInfo as _, ValueRef as _};

use super::super::source::SourceError;
use super::dialect::{Dialect, Row, Value};
use super::source::SqlSource;
use super::statements::{SQLITE, Statements};
use crate::selector_state::{Token, TokenId};

/// Longest wait for another process that writes.
const BUSY: Duration = Duration::from_secs(5);
/// Connections that read, beside the one that writes.
const READERS: u32 = 4;

/// A source of tokens in a file of SQLite, which the processes of one machine can share. With the feature
/// `tokens-sqlite`.
pub type SqliteSource = SqlSource<Sqlite>;

/// SQLite.
#[derive(Debug)]
pub struct Sqlite;

impl SqliteSource {
    /// Opens the file, or makes it, and makes the tables that are missing. The file is in WAL mode, and each
    /// transaction is on disk before [`SqlSource::apply`] returns.
    pub async fn open(path: impl AsRef<Path>) -> Result<SqliteSource, SourceError> {
        let options = SqliteConnectOptions::new()
            .filename(path.as_ref())
            .busy_timeout(BUSY)
            .synchronous(SqliteSynchronous::Full);
        let writer = options.clone().create_if_missing(true).journal_mode(SqliteJournalMode::Wal);
        // One connection writes: callers of this process wait for it in order, not in SQLite's loop.
        let writers = SqlitePoolOptions::new().max_connections(1).connect_lazy_with(writer);
        let readers =
            SqlitePoolOptions::new().max_connections(READERS).connect_lazy_with(options.read_only(true));
        SqlSource::new(readers, writers).await
    }
}

impl Dialect for Sqlite {
    type Driver = sqlx::Sqlite;
    const NAME: &'static str = "SQLite";
    const STATEMENTS: Statements = SQLITE;

    async fn rows(
        connection: &mut SqliteConnection,
        statement: &'static str,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, sqlx::Error> {
        let mut query = sqlx::query(statement);
        for value in values {
            query = match *value {
                Value::Bytes(bytes) => query.bind(bytes),
                Value::Text(text) => query.bind(text),
                Value::Number(number) => query.bind(number),
                Value::Ids(ids) => query.bind(ids_as_json(ids)),
                Value::Tokens(tokens) => query.bind(tokens_as_json(tokens)),
            };
        }
        query.fetch_all(connection).await?.iter().map(row).collect()
    }
}

fn row(row: &SqliteRow) -> Result<Row, sqlx::Error> {
    let id: Vec<u8> = row.try_get(0)?;
    // A text can be read as bytes, but it is found as text only.
    let kind = row.try_get_raw(0)?.type_info().name().to_owned();
    if kind != "BLOB" {
        let error =
            format!("the id of row {} is {kind}, not BLOB: correct or delete the row", id.escape_ascii());
        return Err(sqlx::Error::Decode(error.into()));
    }
    Ok(Row { id, number: row.try_get(1), home: row.try_get(2) })
}

/// JSON is SQLite's only list: `["6964", ..]`, ids in hexadecimal digits.
fn ids_as_json(ids: &[TokenId]) -> String {
    let ids: Vec<String> = ids.iter().map(|id| format!("\"{}\"", hex(id))).collect();
    format!("[{}]", ids.join(","))
}

/// `[["6964",amount,home], ..]`.
fn tokens_as_json(tokens: &[&Token]) -> String {
    let json = |token: &&Token| {
        let home = token.home.map_or("null".to_owned(), |home| home.get().to_string());
        format!("[\"{}\",{},{home}]", hex(&token.id), token.amount)
    };
    let tokens: Vec<String> = tokens.iter().map(json).collect();
    format!("[{}]", tokens.join(","))
}

fn hex(id: &TokenId) -> String {
    id.as_bytes().iter().fold(String::with_capacity(id.as_bytes().len() * 2), |mut text, byte| {
        // Nothing can fail that is written to a string.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
