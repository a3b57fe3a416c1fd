//! The invariants of the store.

#[cfg(test)]
use crate::store_state::content::Content;
use crate::store_state::digest::{self, Digests};
use crate::store_state::store::Store;
#[cfg(test)]
use geolock_api::keys::Key;

impl Store {
    /// Loses the value of a key that has no effects: a deliberate bug.
    #[cfg(test)]
    pub fn corrupt(&mut self, key: &Key) {
        let row = self.records.find(key).expect("it has a value");
        let record = &mut self.records[row];
        self.digests.subtract(key, digest::of(key, &record.content));
        record.content = Content::default();
    }

    /// Asserts the invariants. Walks everything: for tests and the simulator.
    ///
    /// # Panics
    /// If an invariant is broken; the message says which one.
    pub fn check_invariants(&self) {
        let effects: usize = self.records.iter().map(|record| record.effects_len()).sum();
        assert_eq!(effects, self.unfolded.len(), "every effect waits to be folded once");
        let uncompacted: usize = self.records.iter().map(|record| record.uncompacted as usize).sum();
        assert_eq!(uncompacted, self.uncompacted.len(), "every mark waits to be settled once");
        self.records.check();
        self.records.iter().for_each(|record| record.check());
        let mut digests = Digests::default();
        self.records.iter().for_each(|record| {
            digests.add(&record.key, digest::of(&record.key, &record.content));
        });
        assert_eq!(digests.all(), self.digests.all(), "digests are those of what is folded");
        assert_eq!(digests.bytes(), self.digests.bytes(), "and so are the bytes");
        assert_eq!(digests.all().sum(), self.digests.total(), "the sum of all is that of the buckets");
    }
}
