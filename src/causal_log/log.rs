//! The log of one datacenter: own and foreign entries in the order in which it applied them.
//!
//! That order is causal, so a peer that receives a piece of it can apply every entry on arrival
//! (`docs/algorithm.md#42-causal-delivery`). Each peer has one cursor into it. A peer is sent, once the
//! journal is durable up to there:
//!
//! - own entries, at once;
//! - before an own entry, all earlier entries that the peer is not known to have, because the own entry
//!   depends on them;
//! - any other entry that the peer did not receive by other ways within one heartbeat, or at once if the peer
//!   has no link to its maker.
//!
//! So a datacenter that can reach some member that can reach another still makes progress. A peer is known to
//! have the vector that it announced, the entries that were sent on this link, and the dependencies of the
//! entries that it sent itself. `truncation` decides how long an entry is kept; `lag` says how far a peer is
//! behind, `majority` which own entries more than half of the members have.

mod chain;
mod check;
mod lag;
mod majority;
mod truncation;

pub use majority::Majority;

use crate::base::bugs::{Bug, Bugs};
use crate::base::entry_number::follows;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crdts::CvRDT;
use truncation::Told;

use crate::base::tables::Fifo;
use crate::base::time::{Instant, Timestamp};
use crate::base::work;
use crate::causal_log::entry::Entry;
use crate::crdt::VersionVector;
use geolock_api::names::{DcId, DcSet, MAX_DCS, Position};

/// A message of entries to a peer ends at about this number of bytes.
const BATCH_WEIGHT: usize = 128 << 10;
/// And at about this number of locks, parts and keys: the receiver applies a whole message in one step.
const BATCH_ROWS: usize = 32;
/// Maximum number of bytes of entries in flight on a link. The link breaks when far more than that wait (a
/// few of the largest commits), and all would be sent again. It is more than the bandwidth-delay product of
/// any WAN link.
const WINDOW_WEIGHT: usize = 16 << 20;
/// Maximum number of entries that one batch skips because the peer already has them; the next step continues
/// after them.
const LOOKS_PER_BATCH: u64 = 4096;

/// The log of one datacenter, with the state of every peer.
pub(crate) struct Log {
    me: DcId,
    members: DcSet,
    /// The members to which there may be links: those of decisions that are not entered yet, too.
    peers: DcSet,
    applied: VersionVector,
    durable: Arc<VersionVector>,
    chain: chain::Chain,
    /// The stamp of the last applied entry of each datacenter.
    stamps: [Timestamp; MAX_DCS],
    kept: Fifo<Kept>,
    /// Approximate number of bytes of `kept`.
    weight: usize,
    /// The number of the first entry of `kept`; numbers count applications since the start of the process.
    first: u64,
    /// The number after the last durable entry.
    durable_end: u64,
    /// The number after the last durable own entry.
    own_end: u64,
    /// The entries that are not kept any more, or never were because their effects came with a state
    /// transfer.
    truncated: VersionVector,
    forgotten: truncation::Forgotten,
    /// An installed state that is not durable yet, with its journal position.
    taken: Option<(Position, VersionVector)>,
    /// One of each datacenter. Boxed, as all such tables: a state of the size of a stack could not be moved.
    rows: Box<[Peer]>,
    bugs: Bugs,
}

struct Kept {
    position: Position,
    applied_at: Instant,
    /// Valid once the entry is durable.
    durable_at: Instant,
    weight: u32,
    /// Those of the entry: peers' vectors are compared with them, and the entry itself is seldom in a cache.
    dc: DcId,
    seq: u64,
    entry: Arc<Entry>,
}

#[derive(Clone, Default)]
struct Peer {
    link: Option<Link>,
    /// The members that the peer has links to, as it announced.
    linked: DcSet,
    told: Told,
    /// It is a new member and has no state yet: entries are of no use to it. The number that its first entry
    /// follows.
    joins_after: Option<u64>,
    mark: lag::Mark,
    #[cfg(test)]
    sent_ever: VersionVector,
}

#[derive(Clone, Default)]
struct Link {
    /// The peer announced its vector on this link; before that nothing is sent.
    told: bool,
    /// The number of the next entry to examine.
    cursor: u64,
    known: VersionVector,
    /// The last search examined as many entries as it may and found nothing to send.
    goes_on: bool,
    /// Every entry before this number is sent without waiting.
    urgent_end: u64,
    in_flight: usize,
    /// The weights of the batches of entries among the messages in flight, in their order, and their sum.
    batches: VecDeque<usize>,
    batches_weight: usize,
}

impl Log {
    pub fn new(me: DcId, members: DcSet) -> Log {
        Log {
            me,
            members,
            peers: members.difference(DcSet::only(me)),
            applied: VersionVector::default(),
            durable: Arc::default(),
            chain: chain::Chain::new(),
            stamps: [Timestamp::ZERO; MAX_DCS],
            kept: Fifo::default(),
            weight: 0,
            first: 0,
            durable_end: 0,
            own_end: 0,
            truncated: VersionVector::default(),
            forgotten: truncation::Forgotten::default(),
            taken: None,
            rows: (0..MAX_DCS).map(|_| Peer::default()).collect(),
            bugs: Bugs::default(),
        }
    }

    /// The same with a deliberate bug, in tests.
    pub fn with_bugs(mut self, bugs: Bugs) -> Log {
        self.bugs = bugs;
        self
    }

    /// Restores the log from a checkpoint: `kept` are the last of the entries in `applied`, `hashes` the last
    /// hashes.
    pub fn restore(
        &mut self,
        applied: VersionVector,
        stamps: &[(DcId, Timestamp)],
        hashes: &[(DcId, Vec<u64>)],
        kept: &[Arc<Entry>],
        now: Instant,
    ) {
        assert!(self.kept.is_empty(), "a log is restored before anything else");
        assert_eq!((self.first, self.durable_end), (0, 0), "a log is restored before anything else");
        for (dc, stamp) in stamps {
            self.stamps[dc.index()] = *stamp;
        }
        // Of each log, the kept entries count that reach to its end without a gap; there may be further ones
        // from before a state was installed.
        let mut missing = std::array::from_fn::<u64, MAX_DCS, _>(|_| 0);
        applied.iter().for_each(|(dc, seq)| missing[dc.index()] = seq);
        for entry in kept.iter().rev() {
            let missing = &mut missing[entry.dc.index()];
            if entry.seq == *missing {
                *missing = entry.predecessor();
            }
        }
        self.truncated = applied.iter().map(|(dc, _)| (dc, missing[dc.index()])).collect();
        for entry in kept {
            self.push(entry.clone(), Position::default(), Instant::ZERO);
        }
        self.applied = applied;
        self.restore_hashes(hashes, kept);
        self.note_durable(Position::default(), now);
        self.durable = Arc::new(self.applied.clone());
        assert_eq!(self.durable_end, self.first + self.kept.len() as u64, "a disk has durable entries only");
        debug_assert!(self.applied.covers(&self.truncated), "truncated entries were applied");
    }

    /// Returns the entries that are applied here and not kept any more.
    pub fn truncated(&self) -> &VersionVector {
        &self.truncated
    }

    pub fn applied(&self) -> &VersionVector {
        &self.applied
    }

    /// Returns the durable vector.
    pub fn durable(&self) -> &Arc<VersionVector> {
        &self.durable
    }

    /// Returns the number after the last durable entry, counted since the start of the process.
    pub fn durable_end(&self) -> u64 {
        self.durable_end
    }

    /// Returns the durable entries from number `start` on; all of them must still be kept.
    pub fn durable_since(&self, start: u64) -> Vec<Arc<Entry>> {
        let kept = self.kept.range((start - self.first) as usize..(self.durable_end - self.first) as usize);
        kept.map(|kept| kept.entry.clone()).collect()
    }

    pub fn last_stamp(&self, dc: DcId) -> Timestamp {
        self.stamps[dc.index()]
    }

    pub fn len(&self) -> usize {
        self.kept.len()
    }

    pub fn kept(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.kept.iter().map(|kept| &kept.entry)
    }

    /// Applies the next entry of its datacenter, recorded at `position`.
    pub fn apply(&mut self, entry: Arc<Entry>, position: Position, now: Instant) {
        assert!(follows(entry.seq, self.applied.get(entry.dc)), "entries of {} apply in order", entry.dc);
        assert!(
            self.applied.covers(&entry.deps),
            "entry {}:{} is applied before what it depends on",
            entry.dc,
            entry.seq
        );
        debug_assert!(entry.at > self.last_stamp(entry.dc), "stamps of {} increase", entry.dc);
        debug_assert!(self.members.contains(entry.dc), "{} is a member", entry.dc);
        self.applied.raise(entry.dc, entry.seq);
        self.stamps[entry.dc.index()] = entry.at;
        self.chain_on(&entry);
        self.push(entry, position, now);
    }

    fn push(&mut self, entry: Arc<Entry>, position: Position, applied_at: Instant) {
        let (weight, dc, seq) = (entry.weight(), entry.dc, entry.seq);
        debug_assert!(weight <= u32::MAX as usize, "an entry fits a frame");
        self.weight += weight;
        let durable_at = applied_at;
        self.kept.push_back(Kept { position, applied_at, durable_at, weight: weight as u32, dc, seq, entry });
    }

    /// Records that the journal is durable up to `position`. Returns true if the durable vector grew.
    pub fn note_durable(&mut self, position: Position, now: Instant) -> bool {
        let before = self.durable_end;
        while let Some(kept) = self.kept.get_mut((self.durable_end - self.first) as usize) {
            if kept.position > position {
                break;
            }
            kept.durable_at = now;
            self.durable_end += 1;
            Arc::make_mut(&mut self.durable).raise(kept.dc, kept.seq);
            if kept.dc == self.me {
                self.own_end = self.durable_end;
            }
        }
        let taken = self.taken.take_if(|(taken_at, _)| *taken_at <= position);
        let has_taken = taken.is_some();
        if let Some((_, vector)) = taken {
            Arc::make_mut(&mut self.durable).merge(vector);
        }
        debug_assert!(self.applied.covers(&self.durable), "nothing is durable that was not applied");
        debug_assert!(self.own_end <= self.durable_end, "own durable entries are durable entries");
        debug_assert!(self.durable_end - self.first <= self.kept.len() as u64, "durable entries are kept");
        has_taken || self.durable_end > before
    }

    /// Sets the members to which there may be links.
    pub fn set_peers(&mut self, peers: DcSet) {
        debug_assert!(!peers.contains(self.me), "{} is no peer of its own", self.me);
        self.peers = peers.union(self.linked());
    }

    /// Sets the members that entries are kept for.
    pub fn set_members(&mut self, members: DcSet) {
        debug_assert!(!members.is_empty(), "a cluster has members");
        self.members = members;
    }

    /// Adds a member that has no state yet. Entries are kept for it from now on; its first own entry follows
    /// number `base`.
    pub fn admit(&mut self, dc: DcId, base: u64) {
        self.members.insert(dc);
        if self.applied.get(dc) <= base {
            let row = &mut self.rows[dc.index()];
            row.joins_after = Some(base);
            // An earlier member with the slot may have told more.
            (row.told, row.mark) = (Told::default(), lag::Mark::default());
            self.chain.forget(dc);
        }
    }

    /// Returns true if a peer is a new member that has no state yet.
    pub fn awaits_state(&self, peer: DcId) -> bool {
        self.rows[peer.index()].joins_after.is_some()
    }

    pub fn link_up(&mut self, peer: DcId) {
        assert!(peer != self.me, "{peer} has no link to itself");
        self.peers.insert(peer);
        self.rows[peer.index()].link = Some(Link { cursor: self.first, ..Link::default() });
    }

    pub fn link_down(&mut self, peer: DcId) {
        self.rows[peer.index()].link = None;
    }

    pub fn is_linked(&self, peer: DcId) -> bool {
        self.rows[peer.index()].link.is_some()
    }

    /// Returns the members that this one has a link to.
    pub fn linked(&self) -> DcSet {
        self.peers.iter().filter(|peer| self.is_linked(*peer)).collect()
    }

    /// Returns true if a peer announced its durable vector on its present link.
    pub fn has_announced(&self, peer: DcId) -> bool {
        self.rows[peer.index()].link.as_ref().is_some_and(|link| link.told)
    }

    /// Returns the vector that a peer last announced as durable.
    pub fn acknowledged(&self, peer: DcId) -> &VersionVector {
        &self.rows[peer.index()].told.last
    }

    /// Records the durable vector and the links that a peer announced. Returns true if the peer lacks
    /// truncated entries.
    pub fn note_told(&mut self, peer: DcId, durable: &VersionVector, linked: DcSet) -> bool {
        debug_assert!(peer != self.me, "{peer} knows its own vector");
        let row = &mut self.rows[peer.index()];
        row.linked = linked;
        // Its first entry says that it has a state.
        row.joins_after.take_if(|base| durable.get(peer) > *base);
        let before = row.told.note(durable, &self.durable);
        self.move_mark(peer, &before);
        let row = &mut self.rows[peer.index()];
        if let Some(link) = &mut row.link {
            if !std::mem::replace(&mut link.told, true) {
                link.urgent_end = self.durable_end;
            }
            link.known.merge(durable.clone());
            #[cfg(test)]
            if self.bugs.has(Bug::LostRequestNotResent) {
                link.known.merge(row.sent_ever.clone());
            }
        }
        self.is_too_far_behind(peer)
    }

    /// Records a peer's durable vector that another member relayed. It counts only while there is no link to
    /// the peer, and if it covers the vector that the peer announced here.
    pub fn note_relayed(&mut self, peer: DcId, durable: &VersionVector) {
        let row = &mut self.rows[peer.index()];
        if row.link.is_some() || !durable.covers(&row.told.last) {
            return;
        }
        let before = row.told.note(durable, &self.durable);
        self.move_mark(peer, &before);
    }

    /// Returns the members that a peer has links to, as it announced.
    pub fn links_of(&self, peer: DcId) -> DcSet {
        self.rows[peer.index()].linked
    }

    /// Returns true if a peer lacks truncated entries.
    pub fn is_too_far_behind(&self, peer: DcId) -> bool {
        // An installed state is not announced before it is durable.
        self.taken.is_none() && (self.awaits_state(peer) || !self.acknowledged(peer).covers(&self.truncated))
    }

    /// Handles a report that a peer holds entries back because others are missing: all that it lacks is sent
    /// at once.
    pub fn note_missing(&mut self, peer: DcId, durable: &VersionVector) {
        // Retransmission on request would repair these bugs.
        if self.bugs.has(Bug::LostRequestNotResent) || self.bugs.has(Bug::RelayOnConnectOnly) {
            return;
        }
        if let Some(link) = &mut self.rows[peer.index()].link {
            link.known = durable.clone();
            link.cursor = self.first;
            link.urgent_end = self.durable_end;
        }
    }

    /// Records that a peer sent this entry: it has the entry and, if it is the maker, all dependencies.
    pub fn note_sent_by(&mut self, peer: DcId, entry: &Entry) {
        if let Some(link) = &mut self.rows[peer.index()].link {
            link.known.raise(entry.dc, entry.seq);
            if entry.dc == peer {
                link.known.merge(entry.deps.clone());
            }
        }
    }

    /// Records that the link took this number of messages off its queue, `batches` of them with entries.
    pub fn note_flushed(&mut self, peer: DcId, messages: usize, batches: usize) {
        if let Some(link) = &mut self.rows[peer.index()].link {
            link.in_flight = link.in_flight.saturating_sub(messages);
            let batches = batches.min(link.batches.len());
            link.batches_weight -= link.batches.drain(..batches).sum::<usize>();
            debug_assert_eq!(link.batches_weight, link.batches.iter().sum::<usize>(), "the weight in flight");
        }
    }

    /// Records another message to a peer: it takes room on the link, too.
    pub fn note_message(&mut self, peer: DcId) {
        if let Some(link) = &mut self.rows[peer.index()].link {
            link.in_flight += 1;
        }
    }

    /// Returns true if the next step continues the search for entries that a peer lacks.
    pub fn goes_on(&self, peer: DcId) -> bool {
        self.rows[peer.index()].link.as_ref().is_some_and(|link| link.goes_on)
    }

    /// Returns the next entries to send to a peer; none if it has all that it should get now or its link is
    /// full. `patience`: the time in which an entry of others may arrive by other ways.
    pub fn next_batch(
        &mut self,
        peer: DcId,
        now: Instant,
        patience: Duration,
        window: usize,
    ) -> Vec<Arc<Entry>> {
        let mut batch = Vec::new();
        // It could apply next to nothing of the entries that are left; or it is to join, and gets a state
        // first.
        // A new member applies nothing before it has a state, also if this one has just taken one itself.
        let is_of_no_use =
            self.is_too_far_behind(peer) || self.awaits_state(peer) || !self.members.contains(peer);
        let row = &mut self.rows[peer.index()];
        let Some(link) = &mut row.link else { return batch };
        link.goes_on = false;
        if is_of_no_use {
            return batch;
        }
        if !link.told || link.in_flight >= window || link.batches_weight >= WINDOW_WEIGHT {
            return batch;
        }
        link.cursor = link.cursor.max(self.first);
        let lacks_own = link.known.get(self.me) < self.durable.get(self.me);
        let (mut weight, mut rows, from) = (0, 0, link.cursor);
        while link.cursor < self.durable_end && weight < BATCH_WEIGHT && rows < BATCH_ROWS {
            if link.cursor - from >= LOOKS_PER_BATCH {
                break;
            }
            let kept = &self.kept[(link.cursor - self.first) as usize];
            let lacks = link.known.get(kept.dc) < kept.seq;
            let at_once = kept.dc == self.me
                || kept.dc == peer
                || link.cursor < link.urgent_end
                || (lacks_own && link.cursor < self.own_end)
                || !row.linked.contains(kept.dc);
            let relay_ends = self.bugs.has(Bug::RelayOnConnectOnly) && kept.dc != self.me;
            let lacks = lacks && !(relay_ends && link.cursor >= link.urgent_end);
            if lacks && !at_once && kept.applied_at + patience > now {
                break;
            }
            link.cursor += 1;
            if lacks {
                weight += kept.weight as usize;
                rows += kept.entry.rows();
                link.known.raise(kept.dc, kept.seq);
                batch.push(kept.entry.clone());
            }
        }
        work::count((link.cursor - from) as usize);
        debug_assert!(link.cursor <= self.durable_end, "only durable entries are sent");
        debug_assert!(batch.is_sorted_by(|a, b| a.dc != b.dc || a.seq < b.seq), "a batch is in order");
        link.goes_on = batch.is_empty() && link.cursor - from >= LOOKS_PER_BATCH;
        if !batch.is_empty() {
            link.in_flight += 1;
            link.batches.push_back(weight);
            link.batches_weight += weight;
        }
        #[cfg(test)]
        row.sent_ever.merge(batch.iter().map(|entry| (entry.dc, entry.seq)).collect());
        batch
    }
}
