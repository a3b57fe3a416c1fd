//! The link to a peer: the entries that the peer is known to have, and the next ones to send to it.

use std::sync::Arc;
use std::time::Duration;

use super::entries::KeptEntries;
use super::in_flight::InFlight;
use crdts::CvRDT;

use crate::base::bugs::{Bug, Bugs};
use crate::base::time::Instant;
use crate::base::wire::MAX_FRAME;
use crate::base::work;
use crate::causal_log::commit::MAX_COMMIT_BYTES;
use crate::causal_log::entry::Entry;
use crate::crdt::VersionVector;
use geolock_api::names::{DcId, DcSet};

/// A message of entries to a peer ends at about this number of bytes.
const BATCH_WEIGHT: usize = 128 << 10;
/// And at about this number of locks, parts and keys: the receiver applies a whole message in one step.
const BATCH_ROWS: usize = 32;
/// Maximum number of entries that one batch skips because the peer already has them; the next step continues
/// after them.
const LOOKS_PER_BATCH: u64 = 4096;

// The last entry of a batch may be a commit as large as they get. A change takes at most half more bytes than
// its weight.
const _: () =
    assert!((BATCH_WEIGHT + MAX_COMMIT_BYTES) * 3 / 2 + (1 << 20) <= MAX_FRAME, "a batch fits a frame");

/// The link to a peer.
#[derive(Default)]
pub(super) struct Link {
    /// The peer announced its vector on this link; before that nothing is sent.
    has_announced: bool,
    /// The number of the next entry to examine, or less than that of the first kept one.
    next_index: u64,
    known: VersionVector,
    /// The last search examined as many entries as it may and found nothing to send.
    goes_on: bool,
    /// Every entry before this number is sent without waiting.
    urgent_end: u64,
    pub in_flight: InFlight,
}

/// The rest that the choice of entries for a link depends on.
pub(super) struct Source<'a> {
    pub entries: &'a KeptEntries,
    /// The durable vector here.
    pub durable: &'a VersionVector,
    pub now: Instant,
    /// The time in which an entry of others may arrive by other ways.
    pub patience: Duration,
    /// The maximum number of messages in flight.
    pub window: usize,
}

impl Link {
    pub fn has_announced(&self) -> bool {
        self.has_announced
    }

    /// Returns true if the next step continues the search for entries that the peer lacks.
    pub fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// Returns the entries that the peer is known to have.
    pub fn known(&self) -> &VersionVector {
        &self.known
    }

    /// Records the durable vector that the peer announced. `durable_end` is the number after the last durable
    /// entry here.
    pub fn note_announced(&mut self, durable: VersionVector, durable_end: u64) {
        if !std::mem::replace(&mut self.has_announced, true) {
            self.urgent_end = durable_end;
        }
        self.note_known(durable);
    }

    /// Records that the peer has these entries.
    pub fn note_known(&mut self, vector: VersionVector) {
        self.known.merge(vector);
    }

    /// Records that the peer has no entries but these: all others are sent at once.
    pub fn retransmit(&mut self, known: &VersionVector, durable_end: u64) {
        self.known = known.clone();
        self.next_index = 0;
        self.urgent_end = durable_end;
    }

    /// Records that the peer sent this entry: it has the entry and, if it is the maker, all dependencies.
    pub fn note_sent_by(&mut self, peer: DcId, entry: &Entry) {
        self.known.raise(entry.dc, entry.seq);
        if entry.dc == peer {
            self.known.merge(entry.deps.clone());
        }
    }

    /// Ends the search for entries that the peer lacks.
    pub fn end_search(&mut self) {
        self.goes_on = false;
    }

    /// Returns the next entries to send to a peer that has links to the members `linked`; none if it has all
    /// that it should get now or its link is full.
    pub fn next_batch(
        &mut self,
        (peer, linked): (DcId, DcSet),
        source: &Source<'_>,
        bugs: Bugs,
    ) -> Vec<Arc<Entry>> {
        let mut batch = Vec::new();
        self.goes_on = false;
        if !self.has_announced || self.in_flight.is_full(source.window) {
            return batch;
        }
        let entries = source.entries;
        let (me, durable_end) = (entries.me(), entries.durable_end());
        self.next_index = self.next_index.max(entries.numbers().start);
        let lacks_own = self.known.get(me) < source.durable.get(me);
        let (mut weight, mut rows, from) = (0, 0, self.next_index);
        while self.next_index < durable_end && weight < BATCH_WEIGHT && rows < BATCH_ROWS {
            if self.next_index - from >= LOOKS_PER_BATCH {
                break;
            }
            let kept = entries.row(self.next_index);
            let lacks = self.known.get(kept.dc) < kept.seq;
            let at_once = kept.dc == me
                || kept.dc == peer
                || self.next_index < self.urgent_end
                || (lacks_own && self.next_index < entries.own_end())
                || !linked.contains(kept.dc);
            let relay_ends = bugs.has(Bug::RelayOnConnectOnly) && kept.dc != me;
            let lacks = lacks && !(relay_ends && self.next_index >= self.urgent_end);
            if lacks && !at_once && kept.applied_at + source.patience > source.now {
                break;
            }
            self.next_index += 1;
            if lacks {
                weight += kept.weight as usize;
                rows += kept.entry.rows();
                self.known.raise(kept.dc, kept.seq);
                batch.push(kept.entry.clone());
            }
        }
        work::count((self.next_index - from) as usize);
        debug_assert!(self.next_index <= durable_end, "only durable entries are sent");
        debug_assert!(batch.is_sorted_by(|a, b| a.dc != b.dc || a.seq < b.seq), "a batch is in order");
        self.goes_on = batch.is_empty() && self.next_index - from >= LOOKS_PER_BATCH;
        if !batch.is_empty() {
            self.in_flight.add_batch(weight);
        }
        batch
    }

    /// Asserts the invariants. `durable_end` is the number after the last durable entry here.
    pub fn check(&self, durable_end: u64) {
        assert!(self.next_index <= durable_end, "the link is at a durable entry or behind the last one");
        assert!(self.urgent_end <= durable_end, "only durable entries are urgent");
        self.in_flight.check();
    }
}
