//! Tests with injected faults: `cargo test --features faults --test faults`.

#[path = "../fixture/mod.rs"]
mod fixture;

mod clocks;
mod joins;
mod network;
mod script;
mod steps;
mod upgrades;
