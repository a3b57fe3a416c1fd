//! A start: the checkpoint and the journal are read, and no rule is restored until all is there.

use super::idle_return::second;
use super::tables::Tables;
use crate::base::time::Instant;
use crate::crdt::Ownership;

/// Fills the tables from the disk, see [`super::Locks::replay`].
pub(crate) struct Replay<'a>(pub(super) &'a mut Tables);

impl Replay<'_> {
    /// Sets the ownership map from a checkpoint, before anything is known of any lock.
    pub fn restore_ownership(self, ownership: Ownership) {
        assert!(self.0.locks.is_empty(), "ownership is restored before anything else");
        self.0.owners.replace(ownership);
    }

    /// Drops the locks that became idle with the last entry, which was read from the journal. Otherwise a
    /// restart would keep a row for every lock that was in use since the last checkpoint.
    pub fn forget_idle(self, now: Instant) {
        let Tables { owners, locks, .. } = self.0;
        locks.forget_all_idle(|name| owners.note_used(name, second(now)));
    }

    /// All that is durable was read: from now on the rules hold for every lock.
    pub fn end(self) {
        self.0.locks.mark_all();
    }
}
