//! Selection of tokens that no other payment has taken.

mod apply;
mod memory;
mod source;
#[cfg(any(feature = "tokens-sqlite", feature = "tokens-postgres"))]
mod sql;

pub use apply::ApplyError;
pub use memory::{Gate, MemorySource, Queries};
pub use source::{MAX_AMOUNT, MAX_TOKEN_ID, Pool, SourceError, Token, TokenError, TokenId, TokenSource};
#[cfg(feature = "tokens-postgres")]
pub use sql::PostgresSource;
#[cfg(feature = "tokens-sqlite")]
pub use sql::SqliteSource;
#[cfg(any(feature = "tokens-sqlite", feature = "tokens-postgres"))]
pub use sql::{SqlError, SqlSource};
