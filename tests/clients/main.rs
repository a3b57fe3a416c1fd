//! Tests of docs/guarantees.md.

#[path = "../fixture/mod.rs"]
mod fixture;

mod python;
mod rust;
