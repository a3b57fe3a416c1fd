//! A new group in the place of one that has lost its majority for good: the members that are left start it
//! from the same state, each by itself. They need no election and no message for that, because all of them
//! make the same snapshot of the same decision.
//!
//! The directories get new names, so a member of the former group and one of the new group never take part
//! in each other's elections.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::error::StoreError;
use super::fold::Fold;
use super::group::ControlFile;
use super::member::{MemberId, ServerId};
use super::store::Store;
use super::wire::{WireLogId, WireMembers, WireSnapshot, WireVote};
use crate::base::wire;

/// The beginning of a group that takes the place of another: equal at all its members.
pub struct Succession<F> {
    /// The members, with the new names of their directories.
    pub members: BTreeMap<MemberId, ServerId>,
    /// Those that vote; at least one.
    pub voters: BTreeSet<MemberId>,
    /// The number of the decision with which it begins.
    pub decided: u64,
    /// The state after that decision.
    pub state: F,
    /// The name under which the file of the former group is kept.
    pub former: String,
}

impl<F: Fold> Succession<F> {
    /// Puts the file of `me` in the new group in the place of that in the former one, at once, and opens it.
    /// That one must not be in use. Repeating it before the new group has begun is harmless.
    pub fn begin(&self, dir: &Path, me: MemberId) -> Result<ControlFile, StoreError> {
        let server = self.members.get(&me).copied();
        let (Some(server), Some(first)) = (server, self.voters.first().copied()) else {
            return Err(StoreError::NotInSuccession(me));
        };
        // The log begins behind one entry, of one term, which the snapshot has. No leader of that term
        // continues: all voters have voted for the first one, and no election has made it the leader.
        let last = WireLogId { term: 1, index: 1 };
        let vote = WireVote { term: last.term, leader: first, committed: false };
        let snapshot = WireSnapshot {
            last: Some(last),
            members_at: Some(last),
            members: WireMembers { voters: vec![self.voters.clone()], servers: self.members.clone() },
            decided: self.decided,
            state: wire::encode("state of the list", &self.state)?.into(),
        };
        Store::replace(dir, (me, server), (&snapshot, vote), &self.former)?;
        ControlFile::open(dir, me)
    }
}
