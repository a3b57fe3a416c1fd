//! A source of tokens in an SQL database.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use geolock_client::DcId;
use sqlx::{Database, Executor, Pool as Connections};

use super::super::apply::{ApplyError, Transaction, check_amount};
use super::super::source::{SourceError, TokenSource};
use super::dialect::{Dialect, Row, Value};
use super::errors::SqlError;
use crate::selector_state::{MAX_AMOUNT, MAX_TOKEN_ID, Pool, Token, TokenId};

/// A source of tokens in an SQL database: `SqliteSource` or `PostgresSource`. Clones share connections.
pub struct SqlSource<D: Dialect> {
    pub(super) readers: Connections<D::Driver>,
    pub(super) writers: Connections<D::Driver>,
}

/// An SQL transaction of the database, which is rolled back unless it is committed.
type SqlTransaction<D> = sqlx::Transaction<'static, <D as Dialect>::Driver>;

impl<D: Dialect> SqlSource<D> {
    /// Makes the tables that are missing.
    pub(super) async fn new(
        readers: Connections<D::Driver>,
        writers: Connections<D::Driver>,
    ) -> Result<SqlSource<D>, SourceError>
    where
        for<'c> &'c mut <D::Driver as Database>::Connection: Executor<'c, Database = D::Driver>,
    {
        let mut connection = writers.acquire().await.map_err(failed::<D>("open the database"))?;
        let making = sqlx::raw_sql(D::STATEMENTS.tables).execute(&mut *connection);
        making.await.map_err(failed::<D>("make the tables that are missing"))?;
        drop(connection);
        Ok(SqlSource { readers, writers })
    }

    /// Adds tokens to a pool: all, or none. `created_by` is the transaction that made them, for people who
    /// inspect the database.
    pub async fn insert(
        &self,
        pool: &Pool,
        tokens: &[Token],
        created_by: impl AsRef<[u8]> + Send,
    ) -> Result<(), SourceError> {
        for token in tokens {
            check_amount(token).map_err(SourceError::new)?;
        }
        let mut on = self.begin().await?;
        let tokens: Vec<&Token> = tokens.iter().collect();
        let inserted = insert::<D>(&mut on, pool, &tokens, created_by.as_ref()).await;
        inserted.map_err(|error| match error {
            ApplyError::Source(error) => error,
            error => SourceError::new(error),
        })?;
        Ok(commit::<D>(on).await?)
    }

    /// Applies a transaction: its inputs, all of one pool, are spent, and its outputs are added. Both happen,
    /// or neither, in one SQL transaction. `fence` is that of the selection; a transaction with a fence below
    /// the one under which an input was spent is refused. Applying a transaction again, as it was and by its
    /// id, changes nothing and succeeds, so a caller whose answer was lost applies it again.
    pub async fn apply(
        &self,
        tx: impl AsRef<[u8]> + Send,
        pool: &Pool,
        inputs: &[TokenId],
        fence: u64,
        outputs: &[(Pool, Token)],
    ) -> Result<(), ApplyError> {
        let transaction = Transaction { id: tx.as_ref(), pool, inputs, fence, outputs };
        transaction.check()?;
        let mut on = self.begin().await?;
        if apply::<D>(&mut on, &transaction).await? {
            commit::<D>(on).await?;
        }
        Ok(())
    }

    /// Returns the sum of the unspent tokens of all wallets in a currency. One statement reads them: of a
    /// transaction it sees all, or nothing.
    pub async fn balance(&self, currency: &str) -> Result<u64, SourceError> {
        let operation = "sum the unspent tokens up";
        let rows = self.read(operation, D::STATEMENTS.balance, &[Value::Text(currency)]).await?;
        let sum = match rows.into_iter().next().map(|row| row.number) {
            Some(sum) => sum.map_err(failed::<D>(operation))?.unwrap_or(0),
            None => 0,
        };
        Ok(u64::try_from(sum).unwrap_or(0))
    }

    async fn begin(&self) -> Result<SqlTransaction<D>, SqlError> {
        self.writers.begin_with(D::STATEMENTS.begin).await.map_err(failed::<D>("begin a transaction"))
    }

    /// Runs a statement that only reads.
    async fn read(
        &self,
        operation: &'static str,
        statement: &'static str,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, SqlError> {
        let mut connection = self.readers.acquire().await.map_err(failed::<D>(operation))?;
        D::rows(&mut connection, statement, values).await.map_err(failed::<D>(operation))
    }
}

impl<D: Dialect> TokenSource for SqlSource<D> {
    async fn unspent(
        &self,
        pool: &Pool,
        after: Option<&Token>,
        most: usize,
    ) -> Result<Vec<Token>, SourceError> {
        let (wallet, currency) = (Value::Text(&pool.wallet), Value::Text(&pool.currency));
        let most = Value::Number(i64::try_from(most).unwrap_or(i64::MAX));
        let operation = "list the unspent tokens of a pool";
        let rows = match after {
            None => self.read(operation, D::STATEMENTS.first_page, &[wallet, currency, most]).await?,
            Some(after) => {
                let (amount, id) = (signed_amount(after), Value::Bytes(after.id.as_bytes()));
                let values = [wallet, currency, amount, id, most];
                self.read(operation, D::STATEMENTS.next_page, &values).await?
            }
        };
        Ok(rows.into_iter().map(token).collect::<Result<Vec<_>, _>>()?)
    }

    async fn still_unspent(&self, ids: &[TokenId]) -> Result<Vec<bool>, SourceError> {
        let operation = "check which tokens are unspent";
        let rows = self.read(operation, D::STATEMENTS.unspent, &[Value::Ids(ids)]).await?;
        let unspent: BTreeSet<Vec<u8>> = rows.into_iter().map(|row| row.id).collect();
        Ok(ids.iter().map(|id| unspent.contains(id.as_bytes())).collect())
    }
}

impl<D: Dialect> Clone for SqlSource<D> {
    fn clone(&self) -> SqlSource<D> {
        SqlSource { readers: self.readers.clone(), writers: self.writers.clone() }
    }
}

impl<D: Dialect> fmt::Debug for SqlSource<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlSource").field("database", &D::NAME).finish_non_exhaustive()
    }
}

/// Writes a transaction, without a commit. Returns false if it was applied before.
async fn apply<D: Dialect>(
    on: &mut SqlTransaction<D>,
    transaction: &Transaction<'_>,
) -> Result<bool, ApplyError> {
    let sql = &D::STATEMENTS;
    let id = Value::Bytes(transaction.id);
    // If it is being applied by somebody else, this waits for that.
    let content = transaction.content();
    let record = [id, Value::Bytes(&content)];
    if write::<D>(on, "record the transaction as applied", sql.record, &record).await?.is_empty() {
        let rows = write::<D>(on, "read what was applied", sql.applied, &[id]).await?;
        let is_same = rows.iter().any(|row| row.id == content);
        return if is_same { Ok(false) } else { Err(transaction.other_content()) };
    }
    let inputs = Value::Ids(transaction.inputs);
    let (wallet, currency) = (Value::Text(&transaction.pool.wallet), Value::Text(&transaction.pool.currency));
    // First the inputs, which may wait for another transaction that spends them; then the fences it left.
    let of_pool = [wallet, currency, inputs];
    let rows = write::<D>(on, "lock the inputs", sql.lock, &of_pool).await?;
    let unspent = rows.into_iter().map(|row| token_id(row.id, "tokens")).collect::<Result<_, _>>()?;
    let rows = write::<D>(on, "read the fences of the inputs", sql.fences, &[inputs]).await?;
    let fences = rows.into_iter().map(fence).collect::<Result<BTreeMap<_, _>, _>>()?;
    transaction.decide(&unspent, &fences)?;
    let fence = Value::Number(signed_fence(transaction.fence));
    write::<D>(on, "store the fences of the inputs", sql.raise, &[fence, inputs]).await?;
    write::<D>(on, "delete the inputs", sql.delete, &[inputs]).await?;
    let mut outputs: BTreeMap<&Pool, Vec<&Token>> = BTreeMap::new();
    for (pool, token) in transaction.outputs {
        outputs.entry(pool).or_default().push(token);
    }
    for (pool, tokens) in outputs {
        insert::<D>(on, pool, &tokens, transaction.id).await?;
    }
    Ok(true)
}

async fn insert<D: Dialect>(
    on: &mut SqlTransaction<D>,
    pool: &Pool,
    tokens: &[&Token],
    created_by: &[u8],
) -> Result<(), ApplyError> {
    let values = [
        Value::Text(&pool.wallet),
        Value::Text(&pool.currency),
        Value::Bytes(created_by),
        Value::Tokens(tokens),
    ];
    let rows = write::<D>(on, "insert tokens", D::STATEMENTS.insert, &values).await?;
    let mut inserted: BTreeSet<Vec<u8>> = rows.into_iter().map(|row| row.id).collect();
    match tokens.iter().find(|token| !inserted.remove(token.id.as_bytes())) {
        Some(token) => Err(ApplyError::Exists { id: token.id.clone() }),
        None => Ok(()),
    }
}

async fn write<D: Dialect>(
    on: &mut SqlTransaction<D>,
    operation: &'static str,
    statement: &'static str,
    values: &[Value<'_>],
) -> Result<Vec<Row>, SqlError> {
    D::rows(&mut *on, statement, values).await.map_err(failed::<D>(operation))
}

async fn commit<D: Dialect>(on: SqlTransaction<D>) -> Result<(), SqlError> {
    on.commit().await.map_err(failed::<D>("commit the transaction"))
}

fn failed<D: Dialect>(operation: &'static str) -> impl FnOnce(sqlx::Error) -> SqlError {
    move |error| SqlError::Database { database: D::NAME, operation, error }
}

/// Reads a row of `tokens`.
fn token(row: Row) -> Result<Token, SqlError> {
    let id = token_id(row.id, "tokens")?;
    let fault = |fault: String| SqlError::Row { table: "tokens", row: id.to_string(), fault };
    let amount = match row.number {
        Ok(Some(amount @ 1..)) => amount.cast_unsigned(),
        Ok(Some(amount)) => return Err(fault(format!("amount {amount}, and it is 1 to {MAX_AMOUNT}"))),
        Ok(None) => return Err(fault("no amount".to_owned())),
        Err(error) => return Err(fault(format!("an amount that cannot be read ({error})"))),
    };
    let home = match row.home {
        Ok(None) => None,
        Ok(Some(number)) => match u8::try_from(number).ok().and_then(DcId::new) {
            Some(home) => Some(home),
            None => return Err(fault(format!("home {number}, and that is no number of a datacenter"))),
        },
        Err(error) => return Err(fault(format!("a home that cannot be read ({error})"))),
    };
    Ok(Token { id, amount, home })
}

/// Reads a row of `fences`.
fn fence(row: Row) -> Result<(TokenId, u64), SqlError> {
    let id = token_id(row.id, "fences")?;
    let fault = |fault: String| SqlError::Row { table: "fences", row: id.to_string(), fault };
    match row.number {
        Ok(Some(number)) => Ok((id, unsigned_fence(number))),
        Ok(None) => Err(fault("no fence".to_owned())),
        Err(error) => Err(fault(format!("a fence that cannot be read ({error})"))),
    }
}

fn token_id(id: Vec<u8>, table: &'static str) -> Result<TokenId, SqlError> {
    match id.len() {
        1..=MAX_TOKEN_ID => {}
        len => {
            // It is as long as it likes.
            let row = format!("{}..", id[..len.min(40)].escape_ascii());
            let fault = format!("an id of {len} bytes, and it has 1 to {MAX_TOKEN_ID}");
            return Err(SqlError::Row { table, row, fault });
        }
    }
    Ok(TokenId::new(id).expect("its length is that of an id"))
}

fn signed_amount(token: &Token) -> Value<'static> {
    // A token that no source has listed may have a larger one: all tokens follow it.
    Value::Number(i64::try_from(token.amount).unwrap_or(i64::MAX))
}

/// Fencing tokens use all 64 bits; columns are signed. The order stays: 0 is the smallest number.
fn signed_fence(fence: u64) -> i64 {
    (fence ^ (1 << 63)).cast_signed()
}

fn unsigned_fence(number: i64) -> u64 {
    number.cast_unsigned() ^ (1 << 63)
}
