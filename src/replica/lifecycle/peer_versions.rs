//! The protocol versions of the members. Own entries name their predecessors once every member knows
//! version 2: version 1 would not relay that field, and entries would look like another log.

use geolock_api::names::{DcId, DcSet};

/// The protocol versions of the members.
pub(in crate::replica) struct PeerVersions {
    peers: DcSet,
    /// Peers that know version 2 of the protocol.
    upgraded: DcSet,
    /// All members know version 2, now or earlier. This never ends.
    chained: bool,
}

impl PeerVersions {
    pub fn new(peers: DcSet) -> PeerVersions {
        PeerVersions { peers, upgraded: DcSet::EMPTY, chained: false }
    }

    pub fn set_peers(&mut self, peers: DcSet) {
        self.peers = peers;
    }

    /// Notes the peers that know version 2: `peer` itself, and the members that it reports.
    pub fn note_upgraded(&mut self, peer: DcId, members: DcSet) {
        self.upgraded = self.upgraded.union(members);
        self.upgraded.insert(peer);
        self.chained |= self.upgraded.is_superset(self.peers);
    }

    /// An entry or a checkpoint shows that all members know version 2.
    pub fn note_chained(&mut self) {
        self.chained = true;
    }

    /// Returns true if own entries name their predecessors.
    #[inline]
    pub fn are_chained(&self) -> bool {
        self.chained
    }

    /// Returns the peers that know version 2.
    pub fn upgraded(&self) -> DcSet {
        self.upgraded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_chained_once_every_peer_is_known_to_understand_them() {
        let dc = |id| DcId::new(id).expect("a small id");
        let peers = DcSet::only(dc(1)).union(DcSet::only(dc(2)));
        let mut versions = PeerVersions::new(peers);
        versions.note_upgraded(dc(1), DcSet::EMPTY);
        assert!(!versions.are_chained());
        versions.note_upgraded(dc(1), DcSet::only(dc(2)));
        assert!(versions.are_chained() && versions.upgraded() == peers);
    }
}
