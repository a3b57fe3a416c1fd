//! Loads whose result is checked exactly, while servers are killed, links are cut, processes are paused, and
//! clients ask for too much. Guarantees: docs/guarantees.md#locks and
//! docs/guarantees.md#transactions-and-data.
//!
//! Each of these tests loads all cores, and demands a minimum of progress and of faults that were noticed.
//! So they have a binary of their own, and run one after the other: see [`alone`].
#![allow(clippy::disallowed_methods, reason = "tests are edges")]

#[path = "../fixture/mod.rs"]
mod fixture;

mod bank;
mod lists;
mod memory;
mod overload;
mod pauses;
mod soak;

/// Waits until no other test of this binary runs. Hold the result to the end of the test.
async fn alone() -> tokio::sync::MutexGuard<'static, ()> {
    static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    ALONE.lock().await
}
