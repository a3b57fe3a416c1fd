//! Requests of members to each other, and the answers. Wire types: variants are appended only.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::error::Refusal;
use super::member::{MemberId, ServerId};
use super::pieces::Piece;
use super::wire::{WireEntry, WireLogId, WireSnapshot, WireVote};

/// A request with its addresses.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Envelope {
    pub from: MemberId,
    pub from_server: ServerId,
    pub to: MemberId,
    /// The directory that the sender knows the member by. Votes and logs are asked for only with it.
    pub to_server: Option<ServerId>,
    pub request: Request,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) enum Request {
    Append {
        vote: WireVote,
        prev: Option<WireLogId>,
        entries: Vec<WireEntry>,
        committed: Option<WireLogId>,
    },
    Vote(Candidacy),
    PreVote(Candidacy),
    Snapshot {
        vote: WireVote,
        snapshot: WireSnapshot,
    },
    /// Asks for an election at once: the leader goes.
    TransferLeader {
        vote: WireVote,
        last: Option<WireLogId>,
    },
    /// Asks a founder for its directory.
    Identify {
        founders: BTreeSet<MemberId>,
    },
    /// Asks the leader for something.
    Lead(LeaderRequest),
    /// A part of a snapshot that is larger than a frame.
    SnapshotPiece {
        vote: WireVote,
        piece: Piece,
    },
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Candidacy {
    pub vote: WireVote,
    pub last: Option<WireLogId>,
    /// The former leader asked for this election.
    pub transfer: bool,
}

/// A request that only the leader can carry out. Each is answered with the number of a decision.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) enum LeaderRequest {
    /// Decide this command. Answered with its number.
    Propose(Bytes),
    /// Answered with the number of the last decision that anybody can know of.
    ReadIndex,
    /// Answered with the number of the last decision before it took effect.
    Change(MemberStep),
}

/// A change of the members of the group. One at a time; safe to repeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MemberStep {
    /// Takes a member in that receives the list and does not vote. `server` is its
    /// [`server_id`](super::ControlGroup::server_id).
    AddLearner { member: MemberId, server: ServerId },
    /// Lets a learner vote.
    Promote(MemberId),
    /// Makes a learner of a voter.
    Demote(MemberId),
    /// Ends a membership, of a voter or a learner.
    Remove(MemberId),
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Appended(Appended),
    Vote {
        vote: WireVote,
        granted: bool,
        last: Option<WireLogId>,
    },
    Installed {
        vote: WireVote,
    },
    /// True if an election begins.
    Transferred(bool),
    Identity(Identity),
    /// The number that [`LeaderRequest`] is answered with.
    Decided(u64),
    Refused(Refusal),
    /// The number of bytes that are there of a snapshot of which a piece came.
    SnapshotHas(u64),
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(super) enum Appended {
    All,
    UpTo(Option<WireLogId>),
    Conflict,
    HigherVote(WireVote),
}

/// A founder's answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Identity {
    pub server: ServerId,
    /// The founders in its configuration; nothing if it means to join.
    pub founders: Option<BTreeSet<MemberId>>,
    /// It is in a group, or was.
    pub in_group: bool,
    /// The directory under which its group knows the member that asks.
    pub knows_you_as: Option<ServerId>,
}
