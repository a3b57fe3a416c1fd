//! Counts how much a step examines: rows, keys, waiters, elements, and blocks of bytes that were hashed or
//! copied.
//!
//! The core promises that the cost of a step depends on the rows that it touches and is bounded
//! (`docs/algorithm/model.md#2-the-machine`). Loops whose length depends on the amount of data count here
//! what they examine; the simulator and tests read the count after each step and compare it with the bound.
//! There is one counter per thread, because a step runs in one thread, so no function has to pass a counter
//! on.
//!
//! This file also releases the memory of queues that were long under load.

use std::cell::Cell;
use std::collections::VecDeque;

/// A step that examines more than this takes too long. Each row costs some ten to a few hundred nanoseconds,
/// so this is about one millisecond, and a few at most.
pub const MAX_PER_STEP: u64 = 20_000;

thread_local! {
    static LOOKED_AT: Cell<u64> = const { Cell::new(0) };
}

/// Number of bytes that count as one when they are hashed or copied: that takes about as long as a row.
pub const BLOCK: usize = 1 << 12;

/// Adds to the count.
#[inline]
pub fn count(many: usize) {
    LOOKED_AT.with(|all| all.set(all.get() + many as u64));
}

/// Returns the count since the last call, and resets it.
pub fn take() -> u64 {
    LOOKED_AT.with(|all| all.replace(0))
}

/// An empty queue keeps memory for this number of elements.
const KEPT: usize = 1 << 12;

/// Releases most of a queue's memory when it is nearly empty after a great load. The elements that stay are
/// moved; many times as many left before.
#[inline]
pub fn give_back<T>(queue: &mut VecDeque<T>) {
    if queue.capacity() > KEPT && queue.len() < queue.capacity() / 16 {
        queue.shrink_to(2 * queue.len());
    }
}
