//! The source of tokens in PostgreSQL.

use std::str::FromStr as _;
use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPoolOptions, PgRow};

use super::super::source::SourceError;
use super::dialect::{Dialect, Row, Value};
use super::errors::SqlError;
use super::source::SqlSource;
use super::statements::{POSTGRES, Statements};
use crate::selector_state::Token;

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Connections of a source.
const CONNECTIONS: u32 = 8;

/// A source of tokens in a database of PostgreSQL. With the feature `tokens-postgres`.
pub type PostgresSource = SqlSource<Postgres>;

/// PostgreSQL.
#[derive(Debug)]
pub struct Postgres;

impl PostgresSource {
    /// Opens the database, `postgres://user:password@host:port/database`, and makes the tables that are
    /// missing. A Unix socket is `postgres://user@localhost/database?host=/folder`. Connections have no TLS.
    pub async fn open(url: &str) -> Result<PostgresSource, SourceError> {
        let options = PgConnectOptions::from_str(url);
        let options = options.map_err(|error| SqlError::Database {
            database: Postgres::NAME,
            operation: "understand the address",
            error,
        })?;
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(CONNECT);
        let pool = pool.connect_lazy_with(options);
        SqlSource::new(pool.clone(), pool).await
    }
}

impl Dialect for Postgres {
    type Driver = sqlx::Postgres;
    const NAME: &'static str = "PostgreSQL";
    const STATEMENTS: Statements = POSTGRES;

    async fn rows(
        connection: &mut PgConnection,
        statement: &'static str,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, sqlx::Error> {
        let mut query = sqlx::query(statement);
        for value in values {
            query = match *value {
                Value::Bytes(bytes) => query.bind(bytes),
                Value::Text(text) => query.bind(text),
                Value::Number(number) => query.bind(number),
                Value::Ids(ids) => query.bind(ids.iter().map(|id| id.as_bytes()).collect::<Vec<_>>()),
                Value::Tokens(tokens) => query
                    .bind(tokens.iter().map(|token| token.id.as_bytes()).collect::<Vec<_>>())
                    .bind(tokens.iter().map(|token| token.amount.cast_signed()).collect::<Vec<_>>())
                    .bind(tokens.iter().map(home).collect::<Vec<_>>()),
            };
        }
        query.fetch_all(connection).await?.iter().map(row).collect()
    }
}

fn home(token: &&Token) -> Option<i32> {
    token.home.map(|home| i32::from(home.get()))
}

fn row(row: &PgRow) -> Result<Row, sqlx::Error> {
    let home = row.try_get::<Option<i32>, _>(2);
    Ok(Row { id: row.try_get(0)?, number: row.try_get(1), home: home.map(|home| home.map(i64::from)) })
}
