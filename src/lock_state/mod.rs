//! Pure. The lock table, the request table, and every decision about locks: order, grants, transfers, hold
//! policy.
//!
//! `queue.rs` orders the waiters of a lock. `acquire.rs` has the rule of local grants; `scheduler.rs` decides
//! which parts move to other datacenters and which requests are published. `hold_policy.rs` decides when a
//! lock leaves.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod acquire;
mod apply;
mod check;
mod describe;
mod distances;
mod hold_policy;
mod hot_locks;
mod id_index;
mod idle;
mod idle_return;
mod install_state;
mod lock;
mod locks;
mod names;
mod orphans;
mod parking;
mod queue;
mod readers;
mod request;
mod reuse_estimate;
mod scheduler;
mod sweep;

pub(crate) use acquire::{Acquired, HeldRequest, IfNotFree, NewRequest};
pub(crate) use apply::Published;
pub(crate) use describe::{Holder, HolderCursor, HotRow, LockRow, WaiterRow, Walk};
pub use hold_policy::{HoldPolicy, HoldRule, IDLE_RETURN_AFTER, MAX_REQUEST_DELAY, MAX_TURN};
pub use hot_locks::Heat;
pub(crate) use install_state::Foreign;
pub(crate) use locks::{Locks, Permissions};
pub(crate) use readers::Piece;
pub use request::RequestRow;
pub(crate) use request::{Local, RequestIndex, State};
