//! Tests of docs/guarantees.md.

#[path = "../fixture/mod.rs"]
mod fixture;

mod command;
#[cfg(feature = "peers")]
mod peers;
