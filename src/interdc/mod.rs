//! Links between datacenters: QUIC with mutual TLS. Dials, accepts, backs off, and keeps exactly one link per
//! pair of datacenters. Knows bytes and peers, no locks.
//!
//! ```text
//!   Interdc ── send ──> lane queues ──> writers ══ QUIC ══> readers ── Received ──> events
//!      │                                   ▲                   ▲
//!      └ its own thread, one runtime:      └── link.rs ────────┘   one link: its lanes, one end
//!           endpoint.rs   starts and joins everything
//!           peer.rs       one task per peer: no link -> link -> no link; the only reporter of its events
//!           dial.rs       outgoing attempts        accept.rs   incoming ones, until the peer is identified
//!           addresses.rs  where peers were reached last
//!           source.rs     the ports that attempts begin from
//!           hello.rs      the first messages of both sides
//!           runs.rs       two servers under one identity: a copied machine
//!           join.rs       the request of a server that is no member yet
//! ```
//!
//! # Decisions
//!
//! - **Every message names its link** ([`LinkId`]), so a message that was queued for a link that broke is
//!   not sent on the next one.
//! - **The control group has a lane of its own, which bypasses the actor** (`link.rs`). Frames of a busy
//!   group delay no entry, a busy actor delays no vote, and a full queue costs a frame, not the link.
//! - **Two runs of one identity are noticed by the links, and both stop** (`runs.rs`). The machine cannot
//!   tell a copy from its original; the hello can, because each run has a number. Refusing only one would
//!   leave the wrong one in half of the cases.

mod accept;
mod addresses;
mod config;
mod dial;
mod endpoint;
mod error;
mod event;
mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod handle;
mod hello;
mod join;
mod link;
mod peer;
mod queue;
mod runs;
mod shared;
mod source;
mod stats;
mod transport;
mod wan;
mod wan_profile;

#[cfg(test)]
mod tests;

pub use addresses::LastAddresses;
pub use config::{ControlFrame, InterdcConfig, JoinCall, QueueBound};
pub use error::{DownReason, FrameError, InterdcError, Refusal, SendError};
pub use event::{Lane, LinkEvent, LinkId};
pub use handle::{Interdc, Links};
pub use join::{JoinCallError, MAX_JOIN_ANSWER, MAX_JOIN_REQUEST, ask_to_join};
pub use stats::{InterdcStats, LaneStats, PeerStats, WireStats};
pub use wan::{Wan, WanPath, WanTally};
pub use wan_profile::{WanProfile, WanProfileError};
