//! The invariants of the ownership map.

use super::Ownership;

impl Ownership {
    /// Asserts the invariants. Walks the whole map: for tests and the simulator.
    pub fn check(&self) {
        for (place, row) in self.rows.iter().enumerate() {
            assert_eq!(self.find(&row.lock), Some(place), "lock {} is found by its name", row.lock);
            assert!(!row.is_empty(), "lock {} has a row because a part has a register", row.lock);
        }
        let oldest_first = std::iter::successors(self.oldest(), |row| self.next_newer(*row));
        let listed = oldest_first.inspect(|row| {
            let row = self.at(*row);
            assert!(self.is_listed(&row.lock), "lock {} is in the list of uses and says so", row.lock);
        });
        assert_eq!(
            listed.take(self.len() + 1).count(),
            self.listed(),
            "the list of uses has all listed rows"
        );
        for reader in &self.readers {
            assert!(reader.next <= reader.end, "a reader ends where the map ended");
            let unread = reader.next..reader.end;
            assert!(reader.before.keys().all(|row| unread.contains(row)), "copies are of rows to be read");
            let is_there = |row: &usize| *row < self.len() || reader.before.contains_key(row);
            assert!(unread.clone().all(|row| is_there(&row)), "rows to be read are there, or a copy is");
        }
    }
}
