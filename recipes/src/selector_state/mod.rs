//! Pure. The token selector: what a replica knows of the tokens of its pools, the decisions of a selection,
//! and the life of what was selected.
//!
//! ```text
//!  source --listing--> Space( Cache of each pool ) --best fit--> Select --Picked--> Open
//!                        ^   ^                                     |                 |
//!  watches --marks, news-'   '--holders, moves       requests, amendments      reserve, spent,
//!                                                                              release, linger
//! ```
//!
//! Safety rests on two rules. A token is chosen under its lock, and only if the snapshot of the grant has no
//! mark of another transaction on it. A mark is written by a transaction that commits only while the lock is
//! held; from then on the mark protects the token, also when the lock is lost.
//!
//! | file | job |
//! |---|---|
//! | `token.rs` | tokens and their pools |
//! | `options.rs` | options, checked |
//! | `fit.rs` | the best fit |
//! | `pool.rs`, `space.rs` | what is known of tokens |
//! | `record.rs` | what is written, and its encoding |
//! | `select.rs` | one selection, up to its [`Verdict`] |
//! | `open.rs` | a selection that was made, until its locks are free |
//!
//! # Decisions
//!
//! - **PostgreSQL and SQLite are asked through `sqlx`**, one interface for both, behind features
//!   (`selector/sql/`): more than 80 crates. The database of a sequencer's node is `rusqlite`, with about
//!   ten. Both share one SQLite.
//! - **A listing of tokens serves for twice its freshness.** Older, it could list tokens whose marks have
//!   expired; then a selection waits for the query. Only a listing that itself had too little makes a
//!   selection say so: the sum of an old listing and later news may be too small although the pool never
//!   was, as the simulation found.
//! - **A waiting selection names no large token while small ones would do**, for as long as `patience`: the
//!   server prefers a token that is free here, and would break a large one for a small amount.
//! - **Change is homed where a selection waits for its inputs.** The server knows that datacenter: the
//!   request waits for the locks of the inputs. Announced needs would tell too, but only after `patience`.
//!   Change that is homed where it was spent costs the selection that waits for it three one-way delays:
//!   the news, the request, the parts.

mod bugs;
mod fit;
mod open;
mod options;
mod pool;
mod record;
mod select;
mod space;
#[cfg(test)]
mod tests;
mod token;
mod verdict;

pub(crate) use open::{Answer, Call, Effect as OpenEffect, Event as OpenEvent, Open, Stage, Write};
#[cfg(test)]
pub(crate) use options::MAX_SPACE;
pub use options::{Backoff, SelectorConfigError, SelectorOptions};
pub use record::{MAX_TX, MarkState, TxId, TxIdError};
pub(crate) use record::{Mark, Need, Record, decode_news, encode_news};
pub(crate) use select::{Ask, Effect, Event, MarkRead, Select, Wait};
pub(crate) use space::{Change, NEED_LASTS, Space};
pub use token::{MAX_AMOUNT, MAX_TOKEN_ID, Pool, Token, TokenError, TokenId};
pub(crate) use verdict::Verdict;
pub use verdict::{HeldBy, Holder, Limit};
