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
//!
//! # Decisions
//!
//! - **Decisions are agreed by Raft, with a library.** Home-made implementations fail at changes of the
//!   majority, snapshots and reads. The release of openraft is 0.10, although not final: 0.9 draws its
//!   election timeout once for each process, so two survivors of three can split every vote.
//! - **Elections and votes follow measured round trips** (`elections.rs`): a new leader decides within 20
//!   of them and one second. With times of the library for far members, near ones waited 9 to 12 s; with
//!   those for near members, members 220 ms apart elected no leader, because it gives votes and heartbeats
//!   up before they are answered. Its lease is not needed: nothing reads by it.
//! - **The vote and the log are a `redb` file** (`store.rs`). Rejected: the journal. A vote must be durable
//!   before it is answered, entries are cut off again after a change of leader, and neither waits for the
//!   batches of the journal.
//! - **Votes and entries have forms of our own on disk and on the way** (`wire.rs`), so the types of the
//!   library may change, and a faulty peer cannot break an assertion in it.
//! - **A snapshot goes in pieces** (`pieces.rs`), because that of a config at all limits is larger than a
//!   frame. A snapshot that cannot be made is skipped: an error would stop all members at the same entry.
//! - **One founder writes the first list of voters**, after all have shown their directories
//!   (`founding.rs`).
//! - **A group whose majority is gone is replaced, not repaired** (`succession.rs`). Each survivor begins a
//!   new group from the same snapshot, in a file that takes the place of the old one at once, under
//!   directory names that no old voter knows.
//! - **One member in between can relay frames** (`route.rs`). Voters that cannot reach each other in that
//!   way count as cut off; Raft elects among the others.

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
