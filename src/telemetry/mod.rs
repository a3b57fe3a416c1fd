//! Edge. Output for operators: log lines, metrics, and probes of liveness and readiness.
//!
//! The actor publishes a [`Snapshot`] of plain numbers on the [`Board`] every 100 ms; everything here reads
//! that. So a scrape never reaches into the lock server, however often it comes. Counters that edges keep
//! themselves, such as refused calls, are on the board, too.

mod classic;
mod http;
mod log_writer;
mod logs;
mod memory;
mod metrics;
pub mod reasons;
mod snapshot;

#[cfg(test)]
mod tests;

pub use http::serve;
pub use logs::{LogError, LogFormat, LogOptions, flush as flush_log, lines_lost, tell as tell_through_log};
pub use memory::resident_bytes;
pub use snapshot::{Board, CertificateFigures, EvictionCause, LinkFigures, Places, Snapshot};
