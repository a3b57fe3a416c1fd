//! Pure. Leases of clients: expiry, sessions, the requests of each, the grace period after a restart.
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
