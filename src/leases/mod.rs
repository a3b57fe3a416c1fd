//! Pure. Leases of clients: expiry, sessions, the requests of each, the grace period after a restart.
//!
//! # Decisions
//!
//! - **A lease and the requests under it share one series of numbers** (`docs/algorithm/log.md#17-numbers`),
//!   so an id that is older than the lease was never its own.
//! - **Leases are known to their own datacenter only.** Heartbeats carry neither them nor held requests:
//!   these would be outdated when they are needed, after the datacenter has died.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(missing_docs)]

mod check;
mod finished;
mod lease;
mod names_of_clients;
mod reader;
mod requests;
mod table;

pub(crate) use lease::LeaseIndex;
pub use lease::{ClientId, LeaseRecord, OnDisconnect, Proof, SessionId};
pub(crate) use table::{LeaseError, Leases};
