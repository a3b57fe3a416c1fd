//! Tests of docs/guarantees.md.

#[path = "../fixture/mod.rs"]
mod fixture;

mod away;
mod between_datacenters;
