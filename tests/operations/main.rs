//! Tests of docs/guarantees.md.

#[path = "../fixture/mod.rs"]
mod fixture;

mod force_release;
mod log_pipe;
mod open_files;
mod signals;
