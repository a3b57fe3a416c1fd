//! Access: rules, tokens and certificates. Guarantees: docs/guarantees.md#access.
#![allow(clippy::disallowed_methods, reason = "tests are edges")]

#[path = "../fixture/mod.rs"]
mod fixture;

mod refusals;
mod rules;
