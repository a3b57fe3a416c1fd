//! Keys that do not live for ever: what their datacenters have to know of them.

use crate::crdt::value::Dot;
use crate::keys::Key;
use crate::names::Position;
use crate::store_state::Store;
use crate::store_state::marks::Lifetime;
use crate::time::TimeToLive;

/// What a commit did to how long a key lives, or may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Touched {
    /// It is to live on for that long from now, at least.
    Lives(TimeToLive),
    /// It ended: what was asked of it counts no more.
    Ended,
    /// It may have been written for the last time.
    MayBeDone,
}

impl Store {
    /// The lifetime of a key whose datacenter sees to its end, with everything applied so far.
    pub fn standing_lifetime(&self, key: &Key) -> Option<&Lifetime> {
        self.by_key.get(key).and_then(|row| self.records[*row as usize].standing())
    }

    /// How long a key is to live, as each datacenter wants it that does, with everything applied so far.
    pub fn lifetimes(&self, key: &Key) -> &[Lifetime] {
        self.by_key.get(key).map_or(&[], |row| self.records[*row as usize].lifetimes())
    }

    /// Keys that are to live only for some time.
    pub fn mortal_keys(&self) -> impl Iterator<Item = (&Key, &[Lifetime])> {
        let rows = self.records.iter().map(|(_, record)| (&record.key, record.lifetimes()));
        rows.filter(|(_, lifetimes)| !lifetimes.is_empty())
    }

    /// Which commit wrote a key for the last time, see [`Slots::done_by`](crate::crdt::value::Slots::done_by), with
    /// everything applied so far.
    pub fn done_by(&mut self, key: &Key) -> Option<Dot> {
        let row = *self.by_key.get(key)?;
        self.records[row as usize].read(Position(u64::MAX)).slots.done_by()
    }

    /// Keys that were written for the last time.
    pub fn done_keys(&mut self) -> impl Iterator<Item = &Key> {
        self.records.iter_mut().filter_map(|(_, record)| {
            let is_done = record.read(Position(u64::MAX)).slots.done_by().is_some();
            is_done.then_some(&record.key)
        })
    }
}
