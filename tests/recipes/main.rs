//! Recipes on real servers: sections, periodic jobs, elections, locks with a value, reentrant locks,
//! read-write locks, semaphores, latches, barriers. Guarantees: docs/guarantees.md#recipes.
//!
//! Each test has servers of its own, and waits for what it expects however long that takes. So the tests
//! share a binary and run in parallel.

#[path = "../fixture/mod.rs"]
mod fixture;

mod barrier;
mod command;
mod elect;
mod election;
mod every;
mod instances;
mod latch;
mod reentrant;
mod rwlock;
mod semaphore;
mod valued;
