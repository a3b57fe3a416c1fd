//! The invariants between the parts of the log; each part has its own.

use super::Log;

impl Log {
    /// Asserts the invariants that hold after every step. Walks all kept entries: for tests and the
    /// simulator.
    pub fn check(&self) {
        let truncated = self.truncated.vector();
        assert!(self.applied.covers(truncated), "truncated entries were applied");
        assert!(self.applied.covers(&self.durable), "nothing is durable that was not applied");
        let last = self.entries.check();
        for (dc, applied) in self.applied.iter() {
            let known = last[dc.index()].max(truncated.get(dc));
            assert_eq!(known, applied, "the applied entries of {dc} are kept or truncated");
        }
        self.peers.check(self.entries.durable_end());
    }
}
