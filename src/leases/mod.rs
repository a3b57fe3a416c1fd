//! Pure. Leases of clients: deadlines, sessions, what each holds, the grace period after a restart.

mod lease;
mod leases;

pub use lease::{ClientKey, OnDisconnect, Proof, SessionId};
pub(crate) use lease::{Lease, LeaseIndex};
pub(crate) use leases::{LeaseError, Leases};
