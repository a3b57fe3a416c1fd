//! The primitives that the combiner is made of.

pub(super) use std::sync::atomic::{AtomicBool, Ordering, fence};
pub(super) use std::sync::{Mutex, MutexGuard};

pub(super) use tokio::sync::Notify;
