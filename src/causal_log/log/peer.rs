//! A peer of this datacenter in the log: its link, its acknowledgements, and the links that it has itself.

use std::sync::Arc;

#[cfg(test)]
use crdts::CvRDT;

use super::acknowledged::Acknowledged;
use super::entries::KeptEntries;
use super::link::{Link, Source};
use crate::base::bugs::{Bug, Bugs};
use crate::causal_log::entry::Entry;
use crate::crdt::VersionVector;
use geolock_api::names::{DcId, DcSet};

/// The state of a peer.
pub(crate) struct Peer {
    dc: DcId,
    link: Option<Link>,
    /// The members that the peer has links to, as it announced.
    links: DcSet,
    acknowledged: Acknowledged,
    /// It is a new member and has no state yet: entries are of no use to it. The number that its first entry
    /// follows.
    joins_after: Option<u64>,
    bugs: Bugs,
    #[cfg(test)]
    sent_ever: VersionVector,
}

impl Peer {
    pub(super) fn new(dc: DcId, bugs: Bugs) -> Peer {
        Peer {
            dc,
            link: None,
            links: DcSet::EMPTY,
            acknowledged: Acknowledged::new(dc),
            joins_after: None,
            bugs,
            #[cfg(test)]
            sent_ever: VersionVector::default(),
        }
    }

    pub fn is_linked(&self) -> bool {
        self.link.is_some()
    }

    /// Returns true if the peer announced its durable vector on its present link.
    pub fn has_announced(&self) -> bool {
        self.link.as_ref().is_some_and(Link::has_announced)
    }

    /// Returns the members that the peer has links to, as it announced.
    pub fn links(&self) -> DcSet {
        self.links
    }

    pub fn acknowledged(&self) -> &Acknowledged {
        &self.acknowledged
    }

    pub(super) fn acknowledged_mut(&mut self) -> &mut Acknowledged {
        &mut self.acknowledged
    }

    /// Returns true if the peer is a new member that has no state yet.
    pub fn awaits_state(&self) -> bool {
        self.joins_after.is_some()
    }

    /// Returns true if the next step continues the search for entries that the peer lacks.
    pub fn goes_on(&self) -> bool {
        self.link.as_ref().is_some_and(Link::goes_on)
    }

    /// Returns the number of the last entry of `me`, this datacenter, that the peer is known to have durably.
    pub(super) fn durable_of(&self, me: DcId) -> u64 {
        match &self.link {
            Some(link) if self.bugs.has(Bug::SentCountsAsDurable) => link.known().get(me),
            _ => self.acknowledged.vector().get(me),
        }
    }

    /// Records that there is a link now, another one than before.
    pub(super) fn link_up(&mut self) {
        self.link = Some(Link::default());
    }

    pub(super) fn link_down(&mut self) {
        self.link = None;
    }

    /// Records that the peer is a new member without a state, whose first entry follows number `base`.
    pub(super) fn admit(&mut self, base: u64) {
        self.joins_after = Some(base);
        // An earlier member with the slot may have told more.
        self.acknowledged = Acknowledged::new(self.dc);
    }

    /// Records the durable vector and the links that the peer announced. `durable` and `entries` are those
    /// here.
    pub(super) fn note_announced(
        &mut self,
        (announced, links): (&VersionVector, DcSet),
        durable: &VersionVector,
        entries: &KeptEntries,
    ) {
        self.links = links;
        // Its first entry says that it has a state.
        self.joins_after.take_if(|base| announced.get(self.dc) > *base);
        self.acknowledged.note(announced, durable, entries);
        if let Some(link) = &mut self.link {
            link.note_announced(announced.clone(), entries.durable_end());
            #[cfg(test)]
            if self.bugs.has(Bug::LostRequestNotResent) {
                link.note_known(self.sent_ever.clone());
            }
        }
    }

    /// Records the peer's durable vector as another member relayed it. It counts only while there is no link
    /// to the peer, and if it covers the vector that the peer announced here.
    pub(super) fn note_relayed(
        &mut self,
        relayed: &VersionVector,
        durable: &VersionVector,
        entries: &KeptEntries,
    ) {
        if self.link.is_none() && relayed.covers(self.acknowledged.vector()) {
            self.acknowledged.note(relayed, durable, entries);
        }
    }

    /// Handles a report that the peer holds entries back because others are missing.
    pub(super) fn note_missing(&mut self, announced: &VersionVector, durable_end: u64) {
        // Retransmission on request would repair these bugs.
        if self.bugs.has(Bug::LostRequestNotResent) || self.bugs.has(Bug::RelayOnConnectOnly) {
            return;
        }
        if let Some(link) = &mut self.link {
            link.retransmit(announced, durable_end);
        }
    }

    /// Records that the peer sent this entry.
    pub fn note_sent(&mut self, entry: &Entry) {
        if let Some(link) = &mut self.link {
            link.note_sent_by(self.dc, entry);
        }
    }

    /// Records that the link took this number of messages off its queue, `batches` of them with entries.
    pub fn note_flushed(&mut self, messages: usize, batches: usize) {
        if let Some(link) = &mut self.link {
            link.in_flight.remove(messages, batches);
        }
    }

    /// Records another message to the peer: it takes room on the link, too.
    pub fn note_message(&mut self) {
        if let Some(link) = &mut self.link {
            link.in_flight.add_message();
        }
    }

    /// Returns the next entries to send to the peer.
    pub(super) fn next_batch(&mut self, source: &Source<'_>) -> Vec<Arc<Entry>> {
        let Some(link) = &mut self.link else { return Vec::new() };
        let batch = link.next_batch((self.dc, self.links), source, self.bugs);
        #[cfg(test)]
        self.sent_ever.merge(batch.iter().map(|entry| (entry.dc, entry.seq)).collect());
        batch
    }

    /// Records that there is nothing to send to the peer: entries are of no use to it.
    pub(super) fn end_search(&mut self) {
        if let Some(link) = &mut self.link {
            link.end_search();
        }
    }

    /// Asserts the invariants. `durable_end` is the number after the last durable entry here.
    pub(super) fn check(&self, durable_end: u64) {
        self.acknowledged.check();
        if let Some(link) = &self.link {
            link.check(durable_end);
        }
    }
}
