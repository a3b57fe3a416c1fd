//! The invariants of watches.

use super::{Watches, weight};

impl Watches {
    /// Asserts them. Walks all watches and remembered entries: for tests and the simulator.
    pub fn check(&self) {
        self.history.check();
        self.check_scans();
        let bytes: usize = self.rows.values().map(|row| weight(&row.patterns)).sum();
        assert_eq!(self.weight, bytes, "the bytes of all watches");
        assert_eq!(self.reached.len(), self.rows.len(), "each watch is listed once");
        for (call, row) in &self.rows {
            let listed = (row.reached.0, row.reached.1, *call);
            assert!(self.reached.contains(&listed), "{call:?} is listed by its last `Reached`");
        }
    }
}
