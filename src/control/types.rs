//! The types that openraft is used with.

use std::fmt;

use bytes::Bytes;
use openraft::impls::leader_id_std::LeaderId;
use openraft::type_config::alias::{EntryOf, LogIdOf, StoredMembershipOf, VoteOf};

use super::member::{MemberId, ServerId};

/// A command as it is on disk and on the way. The log does not look into it.
#[derive(Clone, PartialEq, Eq)]
pub struct EncodedCommand(pub(super) Bytes);

impl fmt::Display for EncodedCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "command of {} bytes", self.0.len())
    }
}

impl fmt::Debug for EncodedCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

openraft::declare_raft_types!(
    /// A term has one leader; a voter is a member and the name of its directory.
    pub Types:
        D = EncodedCommand,
        // The number of the decision.
        R = u64,
        NodeId = MemberId,
        Node = ServerId,
        LeaderId = LeaderId<u64, MemberId>,
);

pub(super) type Entry = EntryOf<Types>;
pub(super) type LogId = LogIdOf<Types>;
pub(super) type Vote = VoteOf<Types>;
pub(super) type Members = openraft::Membership<MemberId, ServerId>;
pub(super) type StoredMembers = StoredMembershipOf<Types>;
