//! Pure. Every decision about locks: one lock, the order of requests, hold policy, grants.

mod hold_policy;

pub use hold_policy::{HoldPolicy, HoldRule, MAX_REQUEST_DELAY};
