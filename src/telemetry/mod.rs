//! Edge. What an operator sees: log lines, metrics, and whether the server lives and serves.
//!
//! The actor publishes a [`Snapshot`] of plain numbers every 100 ms on the [`Board`]; everything here reads
//! that. So a scrape never reaches into the lock server, however often it comes. What edges count by themselves, such as
//! refused calls, hangs there too.

mod classic;
mod http;
mod log_writer;
mod logs;
mod memory;
mod metrics;
mod snapshot;

#[cfg(test)]
mod tests;

pub use http::serve;
pub use logs::{LogError, LogFormat, LogOptions, flush as flush_log, lines_lost, tell as tell_through_log};
pub use memory::resident_bytes;
pub use snapshot::{Board, CertificateFigures, LinkFigures, Places, Snapshot};
