//! Pure. The lock table, the request table, and every decision about locks: order, grants, transfers, hold
//! policy.
//!
//! `locks.rs` is the entrance, and lends each kind of event the parts that it may change: `acquire.rs`
//! requests of clients, `apply.rs` operations of the log and `install_state.rs` the state of another
//! datacenter, `member_changes.rs` the members (`joining.rs` those that join, `leaving.rs` those that leave,
//! `evicting.rs` and `forgetting.rs` what is left of one that has ended, `rehoming.rs` the homes of
//! prefixes), `replay.rs` the disk. They change the tables (`tables.rs`: the locks, the requests, the
//! published requests, the requests for enough of many locks (`enough/`), the owners), and `schedule/`
//! decides what follows. `queue.rs` orders the waiters of a lock. `hold_policy.rs` decides when a lock
//! leaves, `idle_return.rs` when its unused parts go home. The others only read: `validate.rs` checks
//! entries, `inspect.rs` describes, and `waiting.rs` counts the requests that wait for each datacenter.
//!
//! # Decisions
//!
//! - **How soon a lock leaves depends on the cost of its move** (`hold_policy.rs`), not on fixed bounds,
//!   which can still be configured. Reuse is measured only while other datacenters want the lock, too, so a
//!   grant without contention costs nothing.
//! - **Remote requests that are known when parts arrive are not due at once**
//!   (`docs/algorithm/ownership.md#25-remote-requests`). Rejected: a lock that was not used since its parts
//!   arrived is due. Under contention some remote request always waits, so the lock left after one grant: 13
//!   grants/s. Now it has 905/s, with a longest wait of 2.0 s (`geolock sim --figures`).
//! - **Locks to return are found without a timer for each lock** (`idle_return.rs`). For the age,
//!   heartbeats scan some rows, and a row has four bytes for its last use. For the number, a list links the
//!   rows in the order of use (8 bytes a row). Rejected: a histogram of the times of use, which needs a
//!   scan of all rows for the few that are older than its cut. A use moves a row in that list only when the
//!   lock leaves the lock table, so a grant does not pay for it.
//! - **Listing locks is paged by rows, in no order**, so the cost of a page does not depend on the number
//!   of locks.
//! - **Hot locks are a table of 128 rows** (`hot_locks.rs`). Only grants that waited, and moves, are
//!   counted. Rejected: a counter for each lock, which would need a row for every lock ever used, while
//!   operators ask for the top.
//! - **Requests that wait for a datacenter are counted when they are queried**, of the first 1 024
//!   (`waiting.rs`). A counter would have to follow each move of a lock with many waiters.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(missing_docs)]

mod acquire;
mod amend;
mod apply;
mod check;
mod enough;
mod evicting;
mod forgetting;
mod hold_policy;
mod hot_locks;
mod id_index;
mod idle;
mod idle_return;
mod inspect;
mod install_state;
mod joining;
mod leaving;
mod lock;
mod lock_table;
mod locks;
mod member_changes;
mod names;
mod owners;
mod policies;
mod queue;
mod rehoming;
mod replay;
mod request;
mod request_table;
mod requests;
mod reuse_estimate;
mod schedule;
mod tables;
#[cfg(test)]
mod tests;
mod use_history;
mod use_walk;
mod validate;
mod view;
mod waiting;

pub(crate) use acquire::{Acquired, Downgraded, HeldRequest, IfNotFree, NewEnough, NewRequest};
pub(crate) use apply::Published;
pub use enough::{AnyOf, AnyOfError};
pub use hold_policy::{HoldPolicy, HoldRule, IDLE_RETURN_AFTER, MAX_REQUEST_DELAY, MAX_TURN};
pub use hot_locks::Heat;
pub use idle_return::MAX_AWAY_LOCKS;
pub(crate) use inspect::{Holder, HolderCursor, HotRow, LockRow, WaiterRow, Walk};
pub(crate) use install_state::Foreign;
pub(crate) use joining::Naming;
pub use leaving::Parting;
pub(crate) use locks::Locks;
pub(crate) use owners::Known;
pub(crate) use rehoming::Keeping;
pub use request::RequestRow;
pub(crate) use request::{Local, RequestIndex, State};
pub(crate) use request_table::Piece;
pub(crate) use view::Permissions;
pub(crate) use waiting::WaitingFor;
