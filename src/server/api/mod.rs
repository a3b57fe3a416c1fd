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
//! | `parse.rs`, `parse_store.rs`, `parse_watch.rs` | messages to calls |
//! | `authorize.rs` | authorization by the access rules |
//! | `answer.rs` | replies to messages |
//! | `error.rs` | refusals and their reasons |
//! | `show.rs`, `show_store.rs`, `show_watch.rs` | descriptions, status, reads and events, to messages |
//! | `members.rs` | the members: to messages |
//! | `reclaim.rs` | reclaims that come in several messages |
//! | `server_info.rs` | identity of this server |

mod accept;
mod answer;
mod authorize;
mod connection;
mod door;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod locks;
mod members;
mod native;
mod options;
mod parse;
mod parse_store;
mod parse_watch;
mod reclaim;
mod serve;
mod server_info;
mod shares;
mod show;
mod show_store;
mod show_top;
mod show_watch;
mod stream;
mod watch;

#[cfg(test)]
mod tests;

pub use options::ApiOptions;
pub use serve::{ServeError, serve};
pub use server_info::ServerInfo;
