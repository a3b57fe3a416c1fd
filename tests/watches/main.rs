//! Watches: every change once and in order, also across reconnects and restarts. Guarantees:
//! docs/guarantees.md#watches.

#[path = "../fixture/mod.rs"]
mod fixture;

mod client;
mod servers;
