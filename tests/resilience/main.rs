//! Tests of docs/guarantees.md.

#[path = "../fixture/mod.rs"]
mod fixture;

mod bank;
mod lists;
mod overload;
mod pauses;
mod soak;
