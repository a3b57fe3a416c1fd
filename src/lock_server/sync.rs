//! The primitives that the combiner is made of. `tests/combiner` compiles the combiner beside a module of
//! the same name with the primitives of loom.

pub(super) use std::sync::atomic::{AtomicBool, Ordering, fence};
pub(super) use std::sync::{Mutex, MutexGuard};

pub(super) use tokio::sync::Notify;
