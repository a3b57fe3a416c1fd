//! Edge. The members of a running cluster: this server's part in the control group, and servers that join.
//!
//! ```text
//!   lock server ── Propose ──> Group ──> ControlGroup <── frames ──> other members (lane of the links)
//!        ^                                   │
//!        └────────────── Decided ────────────┘
//!   server that joins ── JoinCall ──> admission.rs ── Propose(Admit) ──> lock server
//! ```
//!
//! The lock server never waits for anything here: without a control group, or without its majority, members
//! stay as they are and all locks are served. Decisions reach the machine in their order, from this member's
//! copy of the list, and from other members if that is behind.
//!
//! | file | job |
//! |---|---|
//! | `group.rs` | [`Group`]: starts and stops the tasks of this member |
//! | `operators.rs` | [`MembersApi`]: the list and the commands of operators |
//! | `tasks.rs` | the tasks: frames, decisions, proposals, requests to join |
//! | `succession.rs` | the group that takes the place of one whose majority is gone |
//! | `recovery.rs` | forced recovery, for operators |
//! | `leading.rs` | the leader's duties: the first decision, and Raft's members as decided |
//! | `decisions.rs` | the list of decisions as the control group keeps it |
//! | `lanes.rs` | the links as the control group sees them |
//! | `admission.rs`, `wire.rs` | answers servers that ask to join; their messages |
//! | `join.rs`, `joined_file.rs` | the server that joins: asks, and remembers that it was admitted |
//! | `end.rs` | the end of a server, and the question for it of one that is refused |
//! | `returning.rs` | the server that was evicted and joins again: its old files, out of the way |
//! | `durable_file.rs` | small files of the data directory |
//!
//! # Decisions
//!
//! - **A founder is named by its slot, a server that joined by its directory** (`decisions.rs`). As long as
//!   no member can be replaced, a founder that lost its disk must be able to get its log back under its old
//!   name. Its vote does not come back with it.
//! - **A server that asks to join is answered at once, and asks again** (`admission.rs`). The member that
//!   is asked remembers nothing about it; decisions that name its id are the only state. So any step may be
//!   lost or repeated.

mod admission;
mod decisions;
mod durable_file;
mod end;
mod group;
mod join;
mod joined_file;
mod lanes;
mod last_addresses;
mod leading;
mod operators;
mod recovery;
mod returning;
mod succession;
mod tasks;
mod wire;

#[cfg(test)]
mod tests;

pub use decisions::{DecisionList, founder_id};
pub use end::{EndError, ServerEnd, ask_for_end};
pub use group::{Channels, Founders, Group, GroupConfig, GroupError, channels};
pub use join::{JoinError, JoinOptions, Joined, join};
pub use joined_file::{JoinedFileError, is_joined, read as read_joined};
pub use last_addresses::kept_addresses;
pub use operators::{Lost, MembersApi, ProposalError};
pub use returning::{ReturningError, is_returning, set_aside};
