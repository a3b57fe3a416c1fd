//! The control group: the members of a cluster agree on one short list of decisions. Runs Raft (openraft),
//! keeps its vote and its log in a file of its own, and knows no locks: the module `membership` defines the
//! meaning of a decision, through [`Fold`].
//!
//! ```text
//!  propose ──> ControlGroup ──> openraft ──> LogStore ──> redb (vote and log, synced)
//!                  │               │  └────> Machine ──> Applied (decisions in order)
//!                  │               └─ Peer ┐
//!  handle_request ─┘                       └─> ControlTransport ──> Relay ──> frames on links
//! ```
//!
//! Nothing on the path of a lock waits for the control group. Its figures are those of a handful of voters
//! and a few decisions a day; so it is written to be simple and to lose nothing, not to be fast.
//!
//! # Votes that are not forgotten
//!
//! A voter that forgets its vote can elect two leaders of one term, and one that forgets its log can lose
//! decisions. Against crashes the store syncs both before anything is answered. Against a lost directory each
//! directory has a random [`ServerId`], and the list of voters names it: requests are addressed to a member
//! *and* its server id, so a member that returns with an empty directory takes no part ([`Status::founding`]
//! shows it) until it is admitted as a new generation. openraft alone does not notice this. An old copy of
//! the same directory is noticed by a leader only that saw more of its log before.

mod client;
mod config;
mod elections;
mod error;
mod fold;
mod founding;
mod frame;
mod group;
mod leading;
mod log_store;
mod machine;
mod member;
mod message;
mod pieces;
mod relay;
mod route;
mod serve;
mod status;
mod store;
mod succession;
mod transport;
mod types;
mod wire;

#[cfg(test)]
mod tests;

pub use config::{ControlConfig, Start, Timing};
pub use error::{CallError, ProposeError, Refusal, StartError, StoreError};
pub use fold::{Applied, Decided, Fold};
pub use founding::Founding;
pub use frame::{Frame, FrameError, FrameKind, MAX_PAYLOAD};
pub use group::{ControlFile, ControlGroup, MAX_COMMAND, MAX_VOTERS};
pub use member::{MemberId, ServerId};
pub use message::MemberStep;
pub use relay::{ControlLinks, Incoming, Relay};
pub use status::Status;
pub use store::MAX_STATE;
pub use succession::Succession;
pub use transport::{Calling, ControlTransport, Unreachable};
