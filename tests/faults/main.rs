//! Tests with injected faults: `cargo test --features faults --test faults`.

#[path = "../common/mod.rs"]
mod common;

mod clocks;
mod network;
mod script;
mod steps;
