//! The `geolock` command as a user sees it: exit codes, output, signals, terminals. Guarantees:
//! docs/guarantees.md#not-promised (`geolock lock`).
//!
//! Signals and terminals are those of child processes, so the tests share a binary and run in parallel.

#[path = "../fixture/mod.rs"]
mod fixture;

mod commands;
mod homes;
mod kv;
mod readme;
mod signals;
#[cfg(target_os = "linux")]
mod terminal;
