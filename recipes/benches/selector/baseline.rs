//! The baseline of the selector: how a token selector does without a lock server.
//!
//! A lock is a row of a table in the database of the tokens: to insert it is to acquire it, and a conflict
//! means that it is taken. The tokens of a pool are tried one at a time, in random order, until their sum is
//! enough. A caller that finds too little lets all go, waits for a random time, and begins anew, a few times.
//!
//! A list that is older than a payment has tokens that are spent, and whose locks are free again. Their locks
//! are acquired, and only the database refuses them when the payment is applied.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use geolock_recipes::selector::{Pool, Token, TokenId};
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgPool, Row as _};
use tokio::time::sleep;

/// Longest pause before the next attempt.
pub const BACK_OFF: Duration = Duration::from_millis(200);
/// Attempts after the first one.
pub const RETRIES: u32 = 3;

const TABLES: &str = "select pg_advisory_xact_lock(6838271942); \
     create table if not exists token_locks(id bytea primary key, tx bytea not null, \
         created_at timestamptz not null default now()); \
     create index if not exists token_locks_by_tx on token_locks(tx);";

/// The reason why no tokens were selected. None is locked.
#[derive(Debug, thiserror::Error)]
pub enum BaselineError {
    #[error("the pool has {have}, and {asked} were asked for")]
    Insufficient { have: u64, asked: u64 },
    #[error("others hold too many tokens of the pool, after {RETRIES} retries")]
    Locked,
    #[error("the database of the baseline: {0}")]
    Database(#[from] sqlx::Error),
}

/// A replica. It shares the table of locks with the others.
#[derive(Debug)]
pub struct Baseline {
    database: PgPool,
    attempts: AtomicU64,
    /// The state of the generator of pauses.
    dice: Mutex<u64>,
}

impl Baseline {
    /// Opens the database of a [`PostgresSource`](geolock_recipes::selector::PostgresSource), and makes the
    /// table of locks. The seed is for the pauses: another one for each replica.
    pub async fn open(url: &str, seed: u64) -> Result<Baseline, BaselineError> {
        let database = PgPoolOptions::new().max_connections(8).connect(url).await?;
        sqlx::raw_sql(TABLES).execute(&database).await?;
        Ok(Baseline { database, attempts: AtomicU64::new(0), dice: Mutex::new(seed) })
    }

    /// Selects tokens of a pool that reach the amount, and locks them for a transaction.
    pub async fn select(&self, tx: &str, pool: &Pool, amount: u64) -> Result<Vec<Token>, BaselineError> {
        for retry in 0..=RETRIES {
            if retry > 0 {
                sleep(self.pause()).await;
            }
            let tried = self.try_select(tx, pool, amount).await;
            if !matches!(tried, Ok(Some(_))) {
                self.release(tx).await?;
            }
            if let Some(tokens) = tried? {
                return Ok(tokens);
            }
        }
        Err(BaselineError::Locked)
    }

    /// Lets all tokens of a transaction go.
    pub async fn release(&self, tx: &str) -> Result<(), BaselineError> {
        let delete = sqlx::query("delete from token_locks where tx = $1");
        delete.bind(tx.as_bytes()).execute(&self.database).await?;
        Ok(())
    }

    /// Returns how often this replica has tried to lock a token.
    pub fn attempts(&self) -> u64 {
        self.attempts.load(Ordering::Relaxed)
    }

    /// Returns `None` if others hold too many tokens.
    async fn try_select(
        &self,
        tx: &str,
        pool: &Pool,
        amount: u64,
    ) -> Result<Option<Vec<Token>>, BaselineError> {
        let (mut selected, mut sum, mut all) = (Vec::new(), 0_u64, 0_u64);
        for token in self.list(pool).await? {
            all = all.saturating_add(token.amount);
            if self.lock(tx, &token).await? {
                sum = sum.saturating_add(token.amount);
                selected.push(token);
            }
            if sum >= amount {
                return Ok(Some(selected));
            }
        }
        if all < amount { Err(BaselineError::Insufficient { have: all, asked: amount }) } else { Ok(None) }
    }

    /// Lists the unspent tokens of a pool in random order.
    async fn list(&self, pool: &Pool) -> Result<Vec<Token>, BaselineError> {
        let list = "select id, amount from tokens where wallet = $1 and currency = $2 order by random()";
        let rows =
            sqlx::query(list).bind(&pool.wallet).bind(&pool.currency).fetch_all(&self.database).await?;
        let token = |row: &sqlx::postgres::PgRow| {
            let id = TokenId::new(row.try_get::<Vec<u8>, _>(0)?)
                .map_err(|error| sqlx::Error::Decode(error.into()));
            // The table's own check is that it is above 0.
            Ok(Token { id: id?, amount: row.try_get::<i64, _>(1)?.unsigned_abs(), home: None })
        };
        rows.iter().map(token).collect()
    }

    async fn lock(&self, tx: &str, token: &Token) -> Result<bool, BaselineError> {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        let insert = sqlx::query("insert into token_locks(id, tx) values ($1, $2) on conflict do nothing");
        let done = insert.bind(token.id.as_bytes()).bind(tx.as_bytes()).execute(&self.database).await?;
        Ok(done.rows_affected() == 1)
    }

    /// Uniform between 0 and [`BACK_OFF`], by splitmix64.
    fn pause(&self) -> Duration {
        let mut state = self.dice.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        BACK_OFF.mul_f64((mixed >> 11) as f64 / (1_u64 << 53) as f64)
    }
}
