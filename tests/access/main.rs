//! Tests of docs/guarantees.md.

#[path = "../fixture/mod.rs"]
mod fixture;

mod refusals;
mod rules;
