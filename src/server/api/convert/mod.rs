//! Conversions between messages of the API and calls and replies of the datacenter, by topic. Each file has
//! both directions. Every message of a client is checked here, once.
//!
//! | file | messages |
//! |---|---|
//! | `session.rs` | hello, answers on a stream, notices |
//! | `lease.rs` | leases |
//! | `lock.rs` | acquires, releases, cancels, reclaims |
//! | `inspect.rs` | descriptions, listings, hot locks, force releases |
//! | `txn.rs` | transactions, their reads and changes |
//! | `watch.rs` | watches and their events |
//! | `members.rs` | the members, and the call that invites one |
//! | `status.rs` | status of the server |
//! | `fields.rs` | fields that several messages have |

mod fields;
pub(super) mod inspect;
pub(super) mod lease;
pub(super) mod lock;
pub(super) mod members;
pub(super) mod session;
pub(super) mod status;
pub(super) mod txn;
pub(super) mod watch;

pub(super) use fields::{ProofBy, millis};
