//! Operators: force release, signals, logs that nobody reads, limits of open files. Guarantees:
//! docs/guarantees.md#not-promised; how to operate: docs/operations.md.
//!
//! Signals and limits are those of server processes, not of the process of the tests, so they share a binary
//! and run in parallel.
#![allow(clippy::disallowed_methods, reason = "tests are edges")]

#[path = "../fixture/mod.rs"]
mod fixture;

mod force_release;
mod log_pipe;
mod open_files;
mod signals;
