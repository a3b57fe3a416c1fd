//! Entries that arrived and cannot be applied yet: of each link, by their makers, in order.
//!
//! What waits here waits for an entry whose stamp is too far ahead of our clock (the link pauses before it), or for one
//! that another link brings, or that this one brings again. Not in the order of arrival: what is sent again comes after
//! what waits for it.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::causal_log::entry::Entry;
use crate::names::{DcId, MAX_DCS};

/// Most entries held back per link.
pub(crate) const MAX_HELD_BACK: usize = 16 * 1024;

/// See the module.
pub(crate) struct Inbox {
    links: [BTreeMap<(DcId, u64), Arc<Entry>>; MAX_DCS],
    len: usize,
}

/// A link brought more than can be held back; it is to be reset.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Overflow;

impl Inbox {
    pub fn new() -> Inbox {
        Inbox { links: std::array::from_fn(|_| BTreeMap::new()), len: 0 }
    }

    pub fn push(
        &mut self,
        peer: DcId,
        entries: impl ExactSizeIterator<Item = Arc<Entry>>,
    ) -> Result<(), Overflow> {
        let link = &mut self.links[peer.index()];
        let before = link.len();
        if before + entries.len() > MAX_HELD_BACK {
            return Err(Overflow);
        }
        for entry in entries {
            link.entry((entry.dc, entry.seq)).or_insert(entry);
        }
        self.len += link.len() - before;
        Ok(())
    }

    /// The first entry that a link brought of the next maker after this one.
    pub fn next(&self, peer: DcId, after: Option<DcId>) -> Option<&Arc<Entry>> {
        let start = after.map_or(Bound::Unbounded, |maker| Bound::Excluded((maker, u64::MAX)));
        self.links[peer.index()].range((start, Bound::Unbounded)).next().map(|(_, entry)| entry)
    }

    pub fn remove(&mut self, peer: DcId, entry: &Entry) {
        if self.links[peer.index()].remove(&(entry.dc, entry.seq)).is_some() {
            self.len -= 1;
        }
    }

    pub fn clear(&mut self, peer: DcId) {
        self.len -= self.links[peer.index()].len();
        self.links[peer.index()] = BTreeMap::new();
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn holds_of(&self, peer: DcId) -> bool {
        !self.links[peer.index()].is_empty()
    }
}
