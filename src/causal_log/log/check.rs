//! The invariants of the log.

use geolock_api::names::{DcId, MAX_DCS, Position};

use super::Log;

impl Log {
    /// Asserts the invariants that hold after every step. Walks all kept entries: for tests and the
    /// simulator.
    pub fn check(&self) {
        assert!(self.applied.covers(&self.truncated), "truncated entries were applied");
        let end = self.first + self.kept.len() as u64;
        assert!((self.first..=end).contains(&self.durable_end), "the first entries are the durable ones");
        assert!(self.own_end <= self.durable_end, "own durable entries are durable entries");
        let weight: usize = self.kept.iter().map(|kept| kept.weight as usize).sum();
        assert_eq!(weight, self.weight, "the weight of the kept entries");
        let mut last = [0; MAX_DCS];
        let mut before = Position::default();
        for kept in self.kept.iter() {
            let (dc, seq) = (kept.dc, kept.seq);
            assert_eq!((kept.entry.dc, kept.entry.seq), (dc, seq), "a kept entry is the one that it says");
            assert!(seq > last[dc.index()], "entries of {dc} are kept in their order");
            assert!(kept.position >= before, "entries are kept in the order of the journal");
            last[dc.index()] = seq;
            before = kept.position;
        }
        for (dc, applied) in self.applied.iter() {
            let known = last[dc.index()].max(self.truncated.get(dc));
            assert_eq!(known, applied, "the applied entries of {dc} are kept or truncated");
        }
        self.peers.iter().for_each(|peer| self.check_peer(peer, end));
    }

    fn check_peer(&self, peer: DcId, end: u64) {
        assert!(peer != self.me, "{peer} is no peer of itself");
        let Some(link) = &self.rows[peer.index()].link else { return };
        assert!(link.cursor <= end && link.urgent_end <= end, "the link to {peer} is at an entry");
        let in_flight: usize = link.batches.iter().sum();
        assert_eq!(in_flight, link.batches_weight, "the weight of the batches on their way to {peer}");
    }
}
