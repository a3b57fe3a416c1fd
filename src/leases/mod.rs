//! Pure. Leases of clients: expiry, sessions, the requests of each, the grace period after a restart.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(missing_docs)]

mod check;
mod finished;
mod lease;
mod requests;
mod table;

pub(crate) use lease::{Lease, LeaseIndex};
pub use lease::{OnDisconnect, Proof, SessionId};
pub(crate) use table::{LeaseError, Leases};
