//! Pure. A value that the holder of a lock keeps in the store: its record, the holder that writes it, and the
//! follower that shows it to others.
//!
//! ```text
//!            granted
//!               v                        each TTL, if it expires
//!            write --written--> rest --------------------------> write
//!             ^  |               |  '-------- set --------------> write
//!       pause-'--' not written   '-- leave --> clear, if it expires --> release
//! ```
//!
//! The record is written by transactions that commit only while the lock is held. A grant's snapshot has
//! everything that was committed under the lock before, so the records of a lock form one causal chain, in
//! the order of their tokens, and every datacenter applies them in that order.

mod follower;
mod holder;
mod record;
#[cfg(test)]
mod tests;

pub(crate) use follower::{Follower, News};
pub(crate) use holder::{Denied, Effect, Event, Holder};
pub use record::HeldValue;
pub(crate) use record::Record;
