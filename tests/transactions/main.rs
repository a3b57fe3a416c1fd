//! Tests of docs/guarantees.md.

#[path = "../fixture/mod.rs"]
mod fixture;

mod between_datacenters;
mod client;
mod convergence;
mod counting;
