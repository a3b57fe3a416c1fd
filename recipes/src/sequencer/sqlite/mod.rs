//! The database of a node, and a ledger for examples and tests, both in SQLite. With the feature `sqlite`.
//!
//! SQLite blocks, so each call runs on a thread for that. One connection for each; the mode is WAL.

mod ledger;
mod ledger_rows;
mod store;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::task::spawn_blocking;

pub use ledger::{SimLedger, SimLedgerOptions, SimOutcome, SimRule};
pub use store::SqliteStore;

/// Longest wait for another process that writes.
const BUSY: Duration = Duration::from_secs(5);

/// An error of a database in a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqliteError {
    /// SQLite's own.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// A row has something that this version does not know.
    #[error("a row of the table {0} cannot be read")]
    Row(&'static str),
    /// The thread of the call has ended.
    #[error("the call was stopped")]
    Stopped,
}

/// A connection that calls share.
#[derive(Clone, Debug)]
struct Shared(Arc<Mutex<Connection>>);

impl Shared {
    /// Opens a file, and makes its tables. `synchronous`: as SQLite names it.
    fn open(path: &Path, synchronous: &str, tables: &str) -> Result<Shared, SqliteError> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", synchronous)?;
        connection.execute_batch(tables)?;
        Ok(Shared(Arc::new(Mutex::new(connection))))
    }

    /// Runs a transaction that writes. If the future is dropped the transaction goes on, alone.
    async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, SqliteError> + Send + 'static,
    ) -> Result<T, SqliteError> {
        self.run(TransactionBehavior::Immediate, work).await
    }

    /// Runs a transaction that only reads.
    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, SqliteError> + Send + 'static,
    ) -> Result<T, SqliteError> {
        self.run(TransactionBehavior::Deferred, work).await
    }

    async fn run<T: Send + 'static>(
        &self,
        behaviour: TransactionBehavior,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, SqliteError> + Send + 'static,
    ) -> Result<T, SqliteError> {
        let shared = Arc::clone(&self.0);
        let done = spawn_blocking(move || {
            // A call that panicked has rolled back.
            let mut connection = shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let transaction = connection.transaction_with_behavior(behaviour)?;
            let done = work(&transaction)?;
            transaction.commit()?;
            Ok(done)
        });
        done.await.unwrap_or(Err(SqliteError::Stopped))
    }
}

/// SQLite has signed numbers only; the bits stay.
fn signed(number: u64) -> i64 {
    number.cast_signed()
}

fn unsigned(number: i64) -> u64 {
    number.cast_unsigned()
}

#[cfg(test)]
mod tests;
