//! Transactions: serial under locks, causal without locks, each committed once. Guarantees:
//! docs/guarantees.md#transactions-and-data.
//!
//! Each test has servers of its own. The loads are fixed numbers of commits, not of seconds, so a neighbour
//! makes a test slower and nothing else.

#[path = "../fixture/mod.rs"]
mod fixture;

mod between_datacenters;
mod client;
mod convergence;
mod counting;
