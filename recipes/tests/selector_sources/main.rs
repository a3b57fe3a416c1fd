//! The sources of tokens: the same stories in memory, in SQLite and in PostgreSQL.
//!
//! Stories that need a database are there with its feature: `tokens-sqlite`, `tokens-postgres`.

#[cfg(feature = "tokens-postgres")]
#[path = "../../benches/selector/baseline.rs"]
mod baseline;
mod faults;
#[cfg(feature = "tokens-postgres")]
mod locker;
mod open;
#[cfg(feature = "tokens-postgres")]
#[path = "../support/postgres.rs"]
mod postgres;
mod stories;
