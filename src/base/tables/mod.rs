//! Tables for up to millions of rows that grow in small steps.
//!
//! A table in one piece of memory is copied whole when it is full; at a million rows that takes longer than a
//! step may. These tables consist of many small pieces of memory, and a step copies or clears at most one of
//! them.
//!
//! # Decisions
//!
//! - **Rows are in blocks, and a hash index is 256 tables.** A table in one piece takes about 700 ms to
//!   grow at a million locks, in the step that fills it. The price is a shift and a load for each access.

mod fifo;
mod index;
mod keyed_rows;
mod list;
mod rows;

pub use fifo::Fifo;
pub use index::{Index, short_hash};
pub use keyed_rows::{Keyed, KeyedRows};
pub use list::List;
pub(crate) use rows::row_index;
pub use rows::{Blocks, RowIndex, Rows};
