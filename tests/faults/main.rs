//! Servers that were built to fail on purpose: `cargo test --features faults --test faults`.

#[path = "../common/mod.rs"]
mod common;

mod clocks;
mod network;
mod script;
mod steps;
