//! Entries that arrived and cannot be applied yet: of each link in the order of arrival.
//!
//! A correct peer sends in causal order, so what waits here waits for an entry whose stamp is too far ahead
//! of our clock (the link pauses before it), or for one that another link brings.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::causal_log::entry::Entry;
use crate::names::{DcId, MAX_DCS};

/// Most entries held back per link.
pub(crate) const MAX_HELD_BACK: usize = 16 * 1024;

/// See the module.
pub(crate) struct Inbox {
    links: [VecDeque<Arc<Entry>>; MAX_DCS],
    len: usize,
}

/// A link brought more than can be held back; it is to be reset.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Overflow;

impl Inbox {
    pub fn new() -> Inbox {
        Inbox { links: std::array::from_fn(|_| VecDeque::new()), len: 0 }
    }

    pub fn push(&mut self, peer: DcId, entries: Vec<Arc<Entry>>) -> Result<(), Overflow> {
        let link = &mut self.links[peer.index()];
        if link.len() + entries.len() > MAX_HELD_BACK {
            return Err(Overflow);
        }
        self.len += entries.len();
        link.extend(entries);
        Ok(())
    }

    /// The next entry of a link, which stays.
    pub fn first(&self, peer: DcId) -> Option<&Arc<Entry>> {
        self.links[peer.index()].front()
    }

    pub fn pop(&mut self, peer: DcId) {
        if self.links[peer.index()].pop_front().is_some() {
            self.len -= 1;
        }
    }

    pub fn clear(&mut self, peer: DcId) {
        self.len -= self.links[peer.index()].len();
        self.links[peer.index()] = VecDeque::new();
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
