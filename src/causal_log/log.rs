//! The log of one datacenter: own and foreign entries in the order in which it applied them.
//!
//! That order is causal, so a peer that receives a piece of it can apply every entry on arrival
//! (`docs/algorithm/log.md#12-causal-delivery`). For each peer there is the index of the next entry to send.
//! A peer is sent, once the journal is durable up to there:
//!
//! - own entries, at once;
//! - before an own entry, all earlier entries that the peer is not known to have, because the own entry
//!   depends on them;
//! - any other entry that the peer did not receive by other ways within one heartbeat, or at once if the peer
//!   has no link to its maker.
//!
//! So a datacenter that can reach some member that can reach another still makes progress. A peer is known to
//! have the vector that it announced, the entries that were sent on this link, and the dependencies of the
//! entries that it sent itself.
//!
//! [`Log`] has the vectors, and moves them together with the parts that own the rest: the kept entries
//! ([`KeptEntries`]), those that are not kept any more ([`Truncated`]), the hashes ([`Chain`]), and the peers
//! ([`PeerTable`]), each with its link and the vectors that it acknowledged. `truncation` decides how long an
//! entry is kept; `lag` says how far a peer is behind, `majority` which own entries more than half of the
//! members have.

mod acknowledged;
mod chain;
mod check;
mod entries;
mod in_flight;
mod lag;
mod link;
mod majority;
mod peer;
mod peers;
mod truncated;
mod truncation;

pub use majority::Majority;

use std::sync::Arc;
use std::time::Duration;

use crdts::CvRDT;

use crate::base::bugs::Bugs;
use crate::base::entry_number::follows;
use crate::base::time::{Instant, Timestamp};
use crate::causal_log::entry::Entry;
use crate::crdt::VersionVector;
use chain::Chain;
use entries::KeptEntries;
use geolock_api::names::{DcId, DcSet, MAX_DCS, Position};
use link::Source;
use peer::Peer;
use peers::PeerTable;
use truncated::Truncated;

/// The log of one datacenter, with the state of every peer.
pub(crate) struct Log {
    applied: VersionVector,
    durable: Arc<VersionVector>,
    /// An installed state that is not durable yet, with its journal position.
    taken: Option<(Position, VersionVector)>,
    /// The stamp of the last applied entry of each datacenter.
    stamps: [Timestamp; MAX_DCS],
    chain: Chain,
    entries: KeptEntries,
    truncated: Truncated,
    peers: PeerTable,
}

impl Log {
    /// Returns an empty log of `me`, in tests with a deliberate bug.
    pub fn new(me: DcId, members: DcSet, bugs: Bugs) -> Log {
        Log {
            applied: VersionVector::default(),
            durable: Arc::default(),
            taken: None,
            stamps: [Timestamp::ZERO; MAX_DCS],
            chain: Chain::new(),
            entries: KeptEntries::new(me),
            truncated: Truncated::default(),
            peers: PeerTable::new(me, members, bugs),
        }
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
        assert_eq!(self.entries.numbers(), 0..0, "a log is restored before anything else");
        assert_eq!(self.entries.durable_end(), 0, "a log is restored before anything else");
        for (dc, stamp) in stamps {
            self.stamps[dc.index()] = *stamp;
        }
        self.truncated = Truncated::before(kept, &applied);
        for entry in kept {
            self.entries.push(entry.clone(), Position::default(), Instant::ZERO);
        }
        self.applied = applied;
        self.chain.restore((self.peers.members(), &self.applied), hashes, kept);
        self.note_durable(Position::default(), now);
        self.durable = Arc::new(self.applied.clone());
        assert_eq!(self.entries.durable_end(), self.entries.numbers().end, "a disk has durable entries only");
    }

    pub fn applied(&self) -> &VersionVector {
        &self.applied
    }

    /// Returns the durable vector.
    pub fn durable(&self) -> &Arc<VersionVector> {
        &self.durable
    }

    /// Returns the vector of an installed state that is not durable yet.
    pub fn taken(&self) -> Option<&VersionVector> {
        self.taken.as_ref().map(|(_, vector)| vector)
    }

    pub fn last_stamp(&self, dc: DcId) -> Timestamp {
        self.stamps[dc.index()]
    }

    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// Returns the kept entries.
    pub fn entries(&self) -> &KeptEntries {
        &self.entries
    }

    /// Returns the entries that are applied here and not kept any more.
    pub fn truncated(&self) -> &Truncated {
        &self.truncated
    }

    pub fn truncated_mut(&mut self) -> &mut Truncated {
        &mut self.truncated
    }

    pub fn peers(&self) -> &PeerTable {
        &self.peers
    }

    pub fn peers_mut(&mut self) -> &mut PeerTable {
        &mut self.peers
    }

    pub fn peer(&self, peer: DcId) -> &Peer {
        self.peers.row(peer)
    }

    pub fn peer_mut(&mut self, peer: DcId) -> &mut Peer {
        self.peers.row_mut(peer)
    }

    /// Returns all known hashes, for a checkpoint: of each log, those of its last entries.
    pub fn hashes(&self) -> Vec<(DcId, Vec<u64>)> {
        self.chain.hashes(self.peers.members(), &self.applied)
    }

    /// Returns the last hashes of each log, for a state transfer.
    pub fn last_hashes(&self) -> Vec<(DcId, Vec<u64>)> {
        self.chain.last_hashes(self.peers.members(), &self.applied)
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
        debug_assert!(self.peers.members().contains(entry.dc), "{} is a member", entry.dc);
        self.applied.raise(entry.dc, entry.seq);
        self.stamps[entry.dc.index()] = entry.at;
        self.chain.append(&entry, self.truncated.vector().get(entry.dc));
        self.entries.push(entry, position, now);
    }

    /// Installs a state of another datacenter that has applied `vector`, as the journal has it at `position`,
    /// with the stamps and the hashes of its last entries. The entries between stay unknown here.
    pub fn install_state(
        &mut self,
        vector: &VersionVector,
        stamps: &[(DcId, Timestamp)],
        hashes: &[(DcId, Vec<u64>)],
        position: Position,
    ) {
        assert!(self.taken.is_none(), "one state is taken over at a time");
        for (dc, seq) in vector.iter() {
            if self.applied.get(dc) < seq {
                self.applied.raise(dc, seq);
                self.truncated.add_recorded(dc, seq);
            }
        }
        for (dc, stamp) in stamps {
            self.stamps[dc.index()] = self.stamps[dc.index()].max(*stamp);
        }
        debug_assert!(self.applied.covers(vector), "an installed state is applied");
        self.chain.install(self.peers.members(), &self.applied, hashes);
        self.taken = Some((position, vector.clone()));
    }

    /// Records that the journal is durable up to `position`. Returns true if the durable vector grew.
    pub fn note_durable(&mut self, position: Position, now: Instant) -> bool {
        let has_entries = self.entries.note_durable(position, now, &mut self.durable);
        let taken = self.taken.take_if(|(taken_at, _)| *taken_at <= position);
        let has_taken = taken.is_some();
        if let Some((_, vector)) = taken {
            Arc::make_mut(&mut self.durable).merge(vector);
        }
        debug_assert!(self.applied.covers(&self.durable), "nothing is durable that was not applied");
        has_taken || has_entries
    }

    /// Adds a member that has no state yet. Entries are kept for it from now on; its first own entry follows
    /// number `base`.
    pub fn admit(&mut self, dc: DcId, base: u64) {
        self.peers.add_member(dc);
        if self.applied.get(dc) <= base {
            self.peers.row_mut(dc).admit(base);
            self.chain.forget(dc);
        }
    }

    /// Records the durable vector and the links that a peer announced. Returns true if the peer lacks
    /// truncated entries.
    pub fn note_announced(&mut self, peer: DcId, durable: &VersionVector, links: DcSet) -> bool {
        debug_assert!(peer != self.entries.me(), "{peer} knows its own vector");
        self.peers.row_mut(peer).note_announced((durable, links), &self.durable, &self.entries);
        self.is_too_far_behind(peer)
    }

    /// Records a peer's durable vector that another member relayed. It counts only while there is no link to
    /// the peer, and if it covers the vector that the peer announced here.
    pub fn note_relayed(&mut self, peer: DcId, durable: &VersionVector) {
        self.peers.row_mut(peer).note_relayed(durable, &self.durable, &self.entries);
    }

    /// Handles a report that a peer holds entries back because others are missing: all that it lacks is sent
    /// at once.
    pub fn note_missing(&mut self, peer: DcId, durable: &VersionVector) {
        self.peers.row_mut(peer).note_missing(durable, self.entries.durable_end());
    }

    /// Returns true if a peer lacks truncated entries.
    pub fn is_too_far_behind(&self, peer: DcId) -> bool {
        let peer = self.peers.row(peer);
        let lacks_some = || !peer.acknowledged().vector().covers(self.truncated.vector());
        // An installed state is not announced before it is durable.
        self.taken.is_none() && (peer.awaits_state() || lacks_some())
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
        // It could apply next to nothing of the entries that are left; or it is to join, and gets a state
        // first.
        let is_of_no_use = self.is_too_far_behind(peer) || !self.peers.members().contains(peer);
        let peer = self.peers.row_mut(peer);
        // A new member applies nothing before it has a state, also if this one has just taken one itself.
        if is_of_no_use || peer.awaits_state() {
            peer.end_search();
            return Vec::new();
        }
        let (entries, durable) = (&self.entries, &*self.durable);
        peer.next_batch(&Source { entries, durable, now, patience, window })
    }
}
