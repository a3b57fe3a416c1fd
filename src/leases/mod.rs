//! Pure. Leases of clients: deadlines, sessions, what each holds, the grace period after a restart.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod lease;
mod table;

pub use lease::{ClientKey, OnDisconnect, Proof, SessionId};
pub(crate) use lease::{Lease, LeaseIndex};
pub(crate) use table::{LeaseError, Leases};
