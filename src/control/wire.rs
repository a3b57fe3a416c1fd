//! The forms in which votes, entries and snapshots are on disk and on the way. They are our own, so that they
//! stay when openraft's types change. Append only; golden bytes in the tests.
//!
//! Decoding checks everything that openraft takes for granted: a message of a faulty member is refused here
//! and never breaks an assertion there.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use openraft::impls::leader_id_std::LeaderId;
use openraft::vote::RaftLeaderId;
use openraft::{EntryPayload, StoredMembership};
use serde::{Deserialize, Serialize};

use super::error::Refusal;
use super::group::{MAX_COMMAND, MAX_MEMBERS};
use super::member::{MemberId, ServerId};
use super::types::{EncodedCommand, Entry, LogId, Members, StoredMembers, Vote};

/// Terms and positions stay below: a number beyond cannot be reached, and would overflow when counted on.
const MAX_NUMBER: u64 = 1 << 48;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct WireVote {
    pub term: u64,
    pub leader: MemberId,
    pub committed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(super) struct WireLogId {
    pub term: u64,
    pub index: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct WireMembers {
    /// One set of voters, or two while they change.
    pub voters: Vec<BTreeSet<MemberId>>,
    /// All members, with their directories.
    pub servers: BTreeMap<MemberId, ServerId>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum WirePayload {
    Blank,
    Command(Bytes),
    Members(WireMembers),
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct WireEntry {
    pub id: WireLogId,
    pub payload: WirePayload,
}

/// A snapshot of the list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct WireSnapshot {
    pub last: Option<WireLogId>,
    pub members_at: Option<WireLogId>,
    pub members: WireMembers,
    /// Number of the last decision.
    pub decided: u64,
    /// The encoded fold.
    pub state: Bytes,
}

fn number(n: u64) -> Result<u64, Refusal> {
    if n < MAX_NUMBER { Ok(n) } else { Err(Refusal::Malformed) }
}

impl From<&Vote> for WireVote {
    fn from(vote: &Vote) -> WireVote {
        let leader = vote.leader_id();
        WireVote { term: leader.term, leader: leader.voted_for, committed: vote.is_committed() }
    }
}

impl TryFrom<WireVote> for Vote {
    type Error = Refusal;

    fn try_from(vote: WireVote) -> Result<Vote, Refusal> {
        let term = number(vote.term)?;
        Ok(match vote.committed {
            true => Vote::new_committed(term, vote.leader),
            false => Vote::new(term, vote.leader),
        })
    }
}

impl From<&LogId> for WireLogId {
    fn from(id: &LogId) -> WireLogId {
        WireLogId { term: *id.leader_id, index: id.index }
    }
}

impl TryFrom<WireLogId> for LogId {
    type Error = Refusal;

    fn try_from(id: WireLogId) -> Result<LogId, Refusal> {
        // The id of an entry has only the term of its leader.
        let anybody = MemberId { dc: geolock_api::names::DcId::new(0).expect("0 is a slot"), generation: 0 };
        let leader = LeaderId { term: number(id.term)?, voted_for: anybody };
        Ok(LogId { leader_id: leader.to_committed(), index: number(id.index)? })
    }
}

/// Returns the id in openraft's form, or nothing for nothing.
pub(super) fn log_id(id: Option<WireLogId>) -> Result<Option<LogId>, Refusal> {
    id.map(LogId::try_from).transpose()
}

impl From<&Members> for WireMembers {
    fn from(members: &Members) -> WireMembers {
        WireMembers {
            voters: members.get_joint_config().clone(),
            servers: members.nodes().map(|(member, server)| (*member, *server)).collect(),
        }
    }
}

impl TryFrom<WireMembers> for Members {
    type Error = Refusal;

    fn try_from(members: WireMembers) -> Result<Members, Refusal> {
        if members.voters.len() > 2 || members.servers.len() > MAX_MEMBERS {
            return Err(Refusal::Malformed);
        }
        // The list of a member that was never in a group.
        if members.voters.is_empty() && members.servers.is_empty() {
            return Ok(Members::default());
        }
        if members.voters.is_empty() {
            return Err(Refusal::Malformed);
        }
        Members::new(members.voters, members.servers).map_err(|_| Refusal::Malformed)
    }
}

impl From<&Entry> for WireEntry {
    fn from(entry: &Entry) -> WireEntry {
        let payload = match &entry.payload {
            EntryPayload::Blank => WirePayload::Blank,
            EntryPayload::Normal(EncodedCommand(bytes)) => WirePayload::Command(bytes.clone()),
            EntryPayload::Membership(members) => WirePayload::Members(members.into()),
        };
        WireEntry { id: (&entry.log_id).into(), payload }
    }
}

impl WireEntry {
    /// Returns the entry in openraft's form.
    pub(super) fn checked(self) -> Result<Entry, Refusal> {
        let payload = match self.payload {
            WirePayload::Blank => EntryPayload::Blank,
            WirePayload::Command(bytes) if bytes.len() <= MAX_COMMAND => {
                EntryPayload::Normal(EncodedCommand(bytes))
            }
            WirePayload::Command(_) => return Err(Refusal::Malformed),
            WirePayload::Members(members) => {
                if members.voters.is_empty() {
                    return Err(Refusal::Malformed);
                }
                EntryPayload::Membership(members.try_into()?)
            }
        };
        Ok(Entry { log_id: self.id.try_into()?, payload })
    }
}

/// Returns the entries of a message in openraft's form, if they follow `prev` one by one and none is of a
/// later term than the leader's.
pub(super) fn entries(
    prev: Option<WireLogId>,
    entries: Vec<WireEntry>,
    term: u64,
) -> Result<Vec<Entry>, Refusal> {
    let mut next = WireLogId { term: 0, index: 0 };
    if let Some(prev) = prev {
        next = WireLogId { term: prev.term, index: number(prev.index)? + 1 };
    }
    let mut checked = Vec::with_capacity(entries.len());
    for entry in entries {
        let follows = entry.id.index == next.index && (next.term..=term).contains(&entry.id.term);
        if !follows {
            return Err(Refusal::Malformed);
        }
        next = WireLogId { term: entry.id.term, index: entry.id.index + 1 };
        checked.push(entry.checked()?);
    }
    if next.term > term { Err(Refusal::Malformed) } else { Ok(checked) }
}

impl WireSnapshot {
    /// Returns the members of the snapshot in openraft's form.
    pub(super) fn stored_members(&self) -> Result<StoredMembers, Refusal> {
        Ok(StoredMembership::new(log_id(self.members_at)?, self.members.clone().try_into()?))
    }
}
