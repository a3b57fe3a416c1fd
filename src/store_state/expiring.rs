//! Expiring keys, for the datacenters that write their ends.

use crate::base::time::TimeToLive;
use crate::crdt::value::Dot;
use crate::store_state::Store;
use crate::store_state::tombstones::Lifetime;
use geolock_api::keys::Key;
use geolock_api::names::Position;

/// The effect of a commit on the lifetime of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Touched {
    /// The key is to live for at least that long from now.
    Lives(TimeToLive),
    /// The key ended; earlier wishes count no more.
    Ended,
    /// The key may have been written as done.
    MayBeDone,
}

impl Store {
    /// Returns the lifetime of a key that counts, with everything applied so far; its datacenter writes the
    /// end.
    pub fn standing_lifetime(&self, key: &Key) -> Option<&Lifetime> {
        self.records.find(key).and_then(|row| self.records[row].standing())
    }

    /// Returns the lifetimes that the datacenters want for a key, with everything applied so far.
    pub fn lifetimes(&self, key: &Key) -> &[Lifetime] {
        self.records.find(key).map_or(&[], |row| self.records[row].lifetimes())
    }

    /// Returns all keys with a time to live.
    pub fn expiring_keys(&self) -> impl Iterator<Item = (&Key, &[Lifetime])> {
        let rows = self.records.iter().map(|record| (&record.key, record.lifetimes()));
        rows.filter(|(_, lifetimes)| !lifetimes.is_empty())
    }

    /// Returns the commit that wrote a key as done, with everything applied so far, see
    /// [`Slots::done_by`](crate::crdt::value::Slots::done_by).
    pub fn done_by(&mut self, key: &Key) -> Option<Dot> {
        let row = self.records.find(key)?;
        self.records[row].read(Position(u64::MAX)).slots.done_by()
    }

    /// Returns the keys that were written as done.
    pub fn done_keys(&mut self) -> impl Iterator<Item = &Key> {
        self.records.iter_mut().filter_map(|record| {
            let is_done = record.read(Position(u64::MAX)).slots.done_by().is_some();
            is_done.then_some(&record.key)
        })
    }
}
