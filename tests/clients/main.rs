//! Client libraries against real servers: a lock is kept through cuts and restarts, and is lost in time.
//! Guarantees: docs/guarantees.md#locks and docs/guarantees.md#not-promised; rules for other libraries:
//! docs/clients.md.
//!
//! The tests of the Rust client have their server in the process of the test. Each has its own port and
//! folder, and a server keeps nothing in statics, so they share a binary and run in parallel.

#[path = "../fixture/mod.rs"]
mod fixture;

mod guards;
mod python;
mod rust;
