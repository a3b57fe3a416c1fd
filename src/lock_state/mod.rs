//! Pure. Every decision about locks: one lock, the order of requests, hold policy, grants.
//!
//! Who gets a lock next: `queue.rs` and the rules in `local.rs` (local grants) and `settle.rs` (what goes to
//! other datacenters, what is published). When a lock leaves: `hold_policy.rs`.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod by_id;
mod check;
mod describe;
mod distances;
mod go_home;
mod hold_policy;
mod hot;
mod idle;
mod local;
mod lock;
mod locks;
mod names;
mod orphans;
mod parking;
mod queue;
mod readers;
mod remote;
mod request;
mod returns;
mod settle;
mod sweep;
mod take_over;

pub(crate) use describe::{Holder, HolderCursor, HotRow, LockRow, WaiterRow, Walk};
pub use hold_policy::{GO_HOME_AFTER, HoldPolicy, HoldRule, MAX_REQUEST_DELAY, MAX_TURN};
pub use hot::Heat;
pub(crate) use local::{Acquired, HeldRequest, IfNotFree, NewRequest};
pub(crate) use locks::{Locks, Permissions};
pub(crate) use readers::Piece;
pub(crate) use remote::Published;
pub use request::RequestRow;
pub(crate) use request::{Local, RequestIndex, State};
pub(crate) use take_over::Foreign;
