//! How much a step looked at: rows, keys, waiters, elements, and blocks of bytes that were copied.
//!
//! The core promises that a step costs what it touches and never more than so much of that. The loops whose length depends
//! on what exists count here what they look at; the simulator and tests read it after each step and hold it against a bound.
//! A counter for each thread, because a step runs on one: nothing is passed through every function for it.
//!
//! And what a load leaves behind: queues that were long give their memory back.

use std::cell::Cell;
use std::collections::VecDeque;

/// A step that looks at more than this takes too long. Each costs some ten to a few hundred nanoseconds, so this is about one
/// millisecond, and a few at most.
pub const MAX_PER_STEP: u64 = 20_000;

thread_local! {
    static LOOKED_AT: Cell<u64> = const { Cell::new(0) };
}

/// So many more were looked at.
#[inline]
pub fn count(many: usize) {
    LOOKED_AT.with(|all| all.set(all.get() + many as u64));
}

/// What was looked at since this was last asked.
pub fn take() -> u64 {
    LOOKED_AT.with(|all| all.replace(0))
}

/// So many places stay in a queue that is empty.
const KEPT: usize = 1 << 12;

/// Gives most of a queue's memory back when it is nearly empty: a great load is over. What stays is moved, for many times as
/// much that went.
#[inline]
pub fn give_back<T>(queue: &mut VecDeque<T>) {
    if queue.capacity() > KEPT && queue.len() < queue.capacity() / 16 {
        queue.shrink_to(2 * queue.len());
    }
}
