//! Locks: mutual exclusion, order, and which locks can be taken while a datacenter is down. Guarantees:
//! docs/guarantees.md#locks.
//!
//! Each test has servers of its own, and waits for what it expects however long that takes. So the tests
//! share a binary and run in parallel.

#[path = "../fixture/mod.rs"]
mod fixture;

mod away;
mod between_datacenters;
mod homes;
mod names;
mod requests;
