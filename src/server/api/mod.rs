//! Edge. The client API: gRPC over TLS, as `api/proto/geolock/v1/geolock.proto` describes it; its stream also
//! on connections of its own ([`geolock_api::native`]).
//!
//! Translates between messages and the mailbox of a [`LockServer`](crate::lock_server::LockServer), and
//! decides nothing. Every message is parsed once, here, into the core's own types; one that does not parse is
//! answered here, with a reason of its own. Everything is bounded: connections, handshakes, streams,
//! messages, answers that wait.
//!
//! | file | job |
//! |---|---|
//! | `serve.rs` | [`serve()`]: the gRPC server, its health service, its end |
//! | `accept.rs`, `connection.rs` | connections: TCP, then TLS, with a client certificate or without |
//! | `locks.rs` | the service: unary calls |
//! | `door.rs`, `shares.rs` | authentication, and the share of each client |
//! | `stream.rs` | the service: the stream |
//! | `native.rs` | the stream on connections of its own |
//! | `watch.rs` | the service: watches |
//! | `authorize.rs` | authorization by the access rules |
//! | `convert/` | messages to calls, and replies, status and events to messages |
//! | `error.rs` | refusals and their reasons |
//! | `reclaim.rs` | reclaims that come in several messages |
//! | `server_info.rs` | identity of this server |
//!
//! # Decisions
//!
//! - **Calls are authorized here, between parsing and the mailbox** (`authorize.rs`). The core knows
//!   leases, not users, and the simulator needs no rules. So a call in progress is not authorized again,
//!   and rules restrict acquiring, not returning.
//! - **Nothing of a gRPC call is read before its client is authenticated** (`door.rs`): the headers are
//!   enough for that, so the server neither stores nor waits for the body of an unknown client.
//! - **Data that clients have sent and the server has not read is bounded** by HTTP/2 windows (`serve.rs`),
//!   and on native connections by the kernel's buffers. They are small, because all data in them goes
//!   before every later answer.

mod accept;
mod authorize;
mod connection;
mod convert;
mod door;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod locks;
mod native;
mod options;
mod reclaim;
mod serve;
mod server_info;
mod shares;
mod stream;
mod watch;

#[cfg(test)]
mod tests;

pub use options::ApiOptions;
pub use serve::{ServeError, serve};
pub use server_info::ServerInfo;
