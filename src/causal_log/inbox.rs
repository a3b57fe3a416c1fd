//! Held-back entries: entries that arrived and cannot be applied yet. They are queued per link and per maker,
//! in `seq` order.
//!
//! An entry is held back because its stamp is too far ahead of our clock (then the link pauses before it), or
//! because an entry that it depends on is missing; that one will arrive on another link, or again on this
//! link. A retransmitted entry arrives after the entries that depend on it, so one queue in order of arrival
//! would block (`docs/algorithm/log.md#12-causal-delivery`).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry::Vacant;
use std::ops::Bound;
use std::sync::Arc;

use crate::causal_log::entry::Entry;
use geolock_api::names::{DcId, MAX_DCS};

/// Maximum number of entries held back per link.
const MAX_ENTRIES: usize = 16 * 1024;
/// Maximum number of their bytes, as on the wire: sixteen of the largest commits.
const MAX_BYTES: usize = 64 << 20;

/// Maximum number of entries held back for a paused link. It may be paused for long, and further entries are
/// sent again afterwards.
const PAUSED_ENTRIES: usize = 256;
const PAUSED_BYTES: usize = 4 << 20;

/// The held-back entries of all links.
pub(crate) struct Inbox {
    links: Box<[HeldBack]>,
    len: usize,
}

/// The held-back entries of one link.
#[derive(Default)]
struct HeldBack {
    entries: BTreeMap<(DcId, u64), Arc<Entry>>,
    bytes: usize,
}

/// A link delivered more entries than can be held back; the caller resets it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Overflow {
    pub entries: usize,
    pub bytes: usize,
}

impl Inbox {
    pub fn new() -> Inbox {
        Inbox { links: (0..MAX_DCS).map(|_| HeldBack::default()).collect(), len: 0 }
    }

    /// Adds all entries, also beyond the limit: the reset of the link drops them.
    pub fn push(&mut self, peer: DcId, entries: impl Iterator<Item = Arc<Entry>>) -> Result<(), Overflow> {
        let link = &mut self.links[peer.index()];
        for entry in entries {
            let Vacant(place) = link.entries.entry((entry.dc, entry.seq)) else { continue };
            link.bytes += entry.weight();
            self.len += 1;
            place.insert(entry);
        }
        let (entries, bytes) = (link.entries.len(), link.bytes);
        if entries > MAX_ENTRIES || bytes > MAX_BYTES { Err(Overflow { entries, bytes }) } else { Ok(()) }
    }

    /// Returns the first held-back entry of a link, of the next maker after this one.
    pub fn next(&self, peer: DcId, after: Option<DcId>) -> Option<&Arc<Entry>> {
        let start = after.map_or(Bound::Unbounded, |maker| Bound::Excluded((maker, u64::MAX)));
        self.links[peer.index()].entries.range((start, Bound::Unbounded)).next().map(|(_, entry)| entry)
    }

    pub fn remove(&mut self, peer: DcId, entry: &Entry) {
        let link = &mut self.links[peer.index()];
        if let Some(removed) = link.entries.remove(&(entry.dc, entry.seq)) {
            link.bytes -= removed.weight();
            self.len -= 1;
            assert!(link.bytes > 0 || link.entries.is_empty(), "entries held back have bytes");
        }
    }

    pub fn clear(&mut self, peer: DcId) {
        let gone = std::mem::take(&mut self.links[peer.index()]);
        self.len -= gone.entries.len();
        debug_assert_eq!(
            self.len,
            self.links.iter().map(|link| link.entries.len()).sum::<usize>(),
            "the count of entries held back"
        );
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if a paused link may deliver more entries.
    pub fn has_room_while_paused(&self, peer: DcId) -> bool {
        let link = &self.links[peer.index()];
        link.entries.len() < PAUSED_ENTRIES && link.bytes < PAUSED_BYTES
    }

    pub fn holds_of(&self, peer: DcId) -> bool {
        !self.links[peer.index()].entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::Timestamp;
    use crate::causal_log::{Op, Wants};
    use crate::crdt::VersionVector;
    use geolock_api::names::{ClusterId, LockName, Mode, RequestId};

    fn dc(id: u8) -> DcId {
        DcId::new(id).expect("a small id")
    }

    /// Builds an entry of about this number of kilobytes.
    fn entry(seq: u64, kilobytes: usize) -> Arc<Entry> {
        let (cluster, at, id) =
            (ClusterId::from_raw(1), Timestamp::from_millis(seq), RequestId { dc: dc(1), n: 1 });
        let lock = LockName::try_from(&*"x".repeat(1_000)).expect("a valid name");
        let op = Op::Request { id, at, wants: Wants::All(vec![(lock, Mode::Shared)]) };
        let ops = vec![op; kilobytes];
        Arc::new(Entry {
            cluster,
            epoch: 0,
            prev: 0,
            lead_ms: 0,
            dc: dc(1),
            seq,
            at,
            deps: VersionVector::default(),
            ops,
        })
    }

    #[test]
    fn what_waits_is_bounded_in_number() {
        let (mut inbox, small) = (Inbox::new(), entry(1, 0));
        let many = (1..=MAX_ENTRIES as u64).map(|seq| Arc::new(Entry { seq, ..(*small).clone() }));
        inbox.push(dc(1), many).expect("so many may wait");
        inbox.push(dc(2), [entry(1, 0)].into_iter()).expect("those of another link do not count");
        // A second copy takes no room.
        inbox.push(dc(1), [entry(7, 0)].into_iter()).expect("it is there");
        let overflow = inbox.push(dc(1), [entry(0, 0)].into_iter()).expect_err("one too many");
        assert_eq!(overflow.entries, MAX_ENTRIES + 1);
        inbox.clear(dc(1));
        assert_eq!((inbox.len(), inbox.holds_of(dc(1)), inbox.holds_of(dc(2))), (1, false, true));
    }

    #[test]
    fn what_waits_is_bounded_in_bytes() {
        let mut inbox = Inbox::new();
        let fit = (MAX_BYTES / entry(1, 1_000).weight()) as u64;
        inbox.push(dc(1), (1..=fit).map(|seq| entry(seq, 1_000))).expect("so much may wait");
        let first = inbox.next(dc(1), None).expect("it is there").clone();
        inbox.remove(dc(1), &first);
        inbox.push(dc(1), [first].into_iter()).expect("it made room");
        let overflow = inbox.push(dc(1), [entry(fit + 1, 1_000)].into_iter()).expect_err("too much");
        assert!(overflow.bytes > MAX_BYTES, "{overflow:?}");
    }
}
