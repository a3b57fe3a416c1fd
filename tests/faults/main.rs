//! Tests with injected faults: `cargo test --features faults --test faults`.

#[path = "../fixture/mod.rs"]
mod fixture;

mod clocks;
mod network;
mod script;
mod steps;
