//! The database of the wallets: SQLite or PostgreSQL.

use std::path::PathBuf;

use geolock_recipes::selector::{
    ApplyError, Pool, PostgresSource, SourceError, SqliteSource, Token, TokenId, TokenSource, TxId,
};

/// The place of a database.
#[derive(Clone, Debug)]
pub enum Place {
    Sqlite(PathBuf),
    Postgres(String),
}

/// The database.
#[derive(Clone)]
pub enum Wallets {
    Sqlite(SqliteSource),
    Postgres(PostgresSource),
}

/// A payment, as the database applies it.
pub struct Payment<'a> {
    pub tx: &'a TxId,
    pub pool: &'a Pool,
    pub inputs: &'a [TokenId],
    pub fence: u64,
    pub outputs: &'a [(Pool, Token)],
}

impl Wallets {
    pub async fn open(place: &Place) -> Result<Wallets, SourceError> {
        Ok(match place {
            Place::Sqlite(path) => Wallets::Sqlite(SqliteSource::open(path).await?),
            Place::Postgres(url) => Wallets::Postgres(PostgresSource::open(url).await?),
        })
    }

    pub async fn insert(&self, pool: &Pool, tokens: &[Token]) -> Result<(), SourceError> {
        match self {
            Wallets::Sqlite(source) => source.insert(pool, tokens, "the beginning").await,
            Wallets::Postgres(source) => source.insert(pool, tokens, "the beginning").await,
        }
    }

    pub async fn apply(&self, payment: &Payment<'_>) -> Result<(), ApplyError> {
        let Payment { tx, pool, inputs, fence, outputs } = payment;
        let tx = tx.as_str();
        match self {
            Wallets::Sqlite(source) => source.apply(tx, pool, inputs, *fence, outputs).await,
            Wallets::Postgres(source) => source.apply(tx, pool, inputs, *fence, outputs).await,
        }
    }

    /// Returns the sum of all tokens, read as any other reader would.
    pub async fn balance(&self, currency: &str) -> Result<u64, SourceError> {
        match self {
            Wallets::Sqlite(source) => source.balance(currency).await,
            Wallets::Postgres(source) => source.balance(currency).await,
        }
    }
}

impl TokenSource for Wallets {
    async fn unspent(
        &self,
        pool: &Pool,
        after: Option<&Token>,
        most: usize,
    ) -> Result<Vec<Token>, SourceError> {
        match self {
            Wallets::Sqlite(source) => source.unspent(pool, after, most).await,
            Wallets::Postgres(source) => source.unspent(pool, after, most).await,
        }
    }

    async fn still_unspent(&self, ids: &[TokenId]) -> Result<Vec<bool>, SourceError> {
        match self {
            Wallets::Sqlite(source) => source.still_unspent(ids).await,
            Wallets::Postgres(source) => source.still_unspent(ids).await,
        }
    }
}
