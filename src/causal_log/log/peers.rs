//! The table of peers, and the questions that concern several of them: which are linked, and how many have an
//! entry.

use super::entries::KeptEntries;
use super::peer::Peer;
use crate::base::bugs::Bugs;
use crate::base::entry_number::entries_between;
use crate::crdt::VersionVector;
use geolock_api::names::{DcId, DcSet, MAX_DCS};

/// The peers of a datacenter.
pub(crate) struct PeerTable {
    me: DcId,
    /// The members that entries are kept for, and this datacenter.
    members: DcSet,
    /// The members to which there may be links: those of decisions that are not entered yet, too.
    peers: DcSet,
    /// One of each datacenter. Boxed, as all such tables: a state of the size of a stack could not be moved.
    rows: Box<[Peer]>,
    bugs: Bugs,
}

impl PeerTable {
    pub(super) fn new(me: DcId, members: DcSet, bugs: Bugs) -> PeerTable {
        let all = (0..MAX_DCS as u8).filter_map(DcId::new);
        PeerTable {
            me,
            members,
            peers: members.difference(DcSet::only(me)),
            rows: all.map(|dc| Peer::new(dc, bugs)).collect(),
            bugs,
        }
    }

    /// Returns this datacenter.
    pub(super) fn me(&self) -> DcId {
        self.me
    }

    pub(super) fn bugs(&self) -> Bugs {
        self.bugs
    }

    pub(super) fn row(&self, peer: DcId) -> &Peer {
        &self.rows[peer.index()]
    }

    pub(super) fn row_mut(&mut self, peer: DcId) -> &mut Peer {
        &mut self.rows[peer.index()]
    }

    /// Returns the members that entries are kept for, and this datacenter.
    pub(super) fn members(&self) -> DcSet {
        self.members
    }

    /// Returns the members that this one has a link to.
    pub fn linked(&self) -> DcSet {
        self.peers.iter().filter(|peer| self.row(*peer).is_linked()).collect()
    }

    /// Returns the number of own entries that no peer has acknowledged: those that are lost with this disk.
    /// `None` if there are no peers.
    pub fn only_here(&self, applied: &VersionVector) -> Option<u64> {
        let (me, own) = (self.me, applied.get(self.me));
        let acknowledged = self.peers.iter().map(|peer| self.row(peer).acknowledged().vector().get(me));
        acknowledged.map(|seq| entries_between(seq, own)).min()
    }

    /// Sets the members to which there may be links.
    pub fn set_peers(&mut self, peers: DcSet) {
        debug_assert!(!peers.contains(self.me), "{} is no peer of its own", self.me);
        self.peers = peers.union(self.linked());
    }

    /// Sets the members that entries are kept for.
    pub fn set_members(&mut self, members: DcSet) {
        debug_assert!(!members.is_empty(), "a cluster has members");
        self.members = members;
    }

    /// Adds a member that entries are kept for.
    pub(super) fn add_member(&mut self, dc: DcId) {
        self.members.insert(dc);
    }

    pub fn link_up(&mut self, peer: DcId) {
        assert!(peer != self.me, "{peer} has no link to itself");
        self.peers.insert(peer);
        self.row_mut(peer).link_up();
    }

    pub fn link_down(&mut self, peer: DcId) {
        self.row_mut(peer).link_down();
    }

    fn others(&self) -> DcSet {
        self.members.difference(DcSet::only(self.me))
    }

    /// Returns true if every member has acknowledged an entry that is durable here.
    pub(super) fn all_have(&self, dc: DcId, seq: u64) -> bool {
        self.others().iter().all(|peer| self.row(peer).acknowledged().has(dc, seq))
    }

    /// Returns true if a quorum has an entry that is durable here: of each other member a vector counts that
    /// it announced and that is durable here, too.
    pub(super) fn quorum_has(&self, dc: DcId, seq: u64) -> bool {
        let has_it = |peer: &DcId| *peer == self.me || self.row(*peer).acknowledged().has_shared(dc, seq);
        is_quorum(self.members.iter().filter(has_it).collect(), self.members)
    }

    /// Records that this is the durable vector here.
    pub(super) fn update_shared(&mut self, durable: &VersionVector) {
        self.rows.iter_mut().for_each(|peer| peer.acknowledged_mut().update_shared(durable));
    }

    /// Continues to count the entries that members have acknowledged. Returns true if there may be more.
    pub(super) fn continue_match(&mut self, entries: &KeptEntries) -> bool {
        let mut goes_on = false;
        for peer in self.others().iter() {
            goes_on |= self.row_mut(peer).acknowledged_mut().continue_match(entries);
        }
        goes_on
    }

    /// Asserts the invariants. `durable_end` is the number after the last durable entry here.
    pub(super) fn check(&self, durable_end: u64) {
        assert!(!self.peers.contains(self.me), "{} is no peer of itself", self.me);
        self.peers.iter().for_each(|peer| self.row(peer).check(durable_end));
    }
}

/// Returns true if these are a quorum of all: more than half of them, or half of them including the first.
fn is_quorum(some: DcSet, all: DcSet) -> bool {
    let twice = 2 * some.len();
    twice > all.len() || (twice == all.len() && all.iter().next().is_some_and(|first| some.contains(first)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_two_quorums_have_a_member_in_common() {
        for size in 1..=6_u8 {
            let members: Vec<DcId> = (0..size).filter_map(DcId::new).collect();
            let all: DcSet = members.iter().copied().collect();
            let subset = |mask: u32| -> DcSet {
                members.iter().copied().filter(|dc| mask & 1 << dc.index() != 0).collect()
            };
            let quorums: Vec<DcSet> =
                (0..1 << size).map(subset).filter(|some| is_quorum(*some, all)).collect();
            assert!(!quorums.is_empty());
            for a in &quorums {
                assert!(quorums.iter().all(|b| !a.intersection(*b).is_empty()), "of {size} members");
            }
        }
    }
}
