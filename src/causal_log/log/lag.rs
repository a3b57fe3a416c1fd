//! How far a peer is behind: which of the entries here it has not acknowledged, and for how long they have been here.

use super::Log;
use crate::crdt::VersionVector;
use crate::names::DcId;
use crate::time::Instant;
use crate::work;

/// Entries that a mark passes at once, at most: a peer may acknowledge all that is kept with one vector.
pub(super) const PASSED_PER_STEP: usize = 4096;

/// Where in the log a peer stands.
#[derive(Clone, Copy, Default)]
pub(super) struct Mark {
    /// Everything before this number it has acknowledged, or made itself.
    end: u64,
    /// There may be more of that after `end`.
    pub goes_on: bool,
}

/// See [`Log::lag`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Lag {
    pub entries: u64,
    /// When the oldest of those that are durable here became that, or when this process started.
    pub since: Option<Instant>,
}

impl Log {
    /// What a peer has not acknowledged of what is here and not its own.
    pub fn lag(&self, peer: DcId) -> Lag {
        let told = self.acknowledged(peer);
        let others = self.applied.iter().filter(|(dc, _)| *dc != peer);
        let entries = others.map(|(dc, seq)| seq.saturating_sub(told.get(dc))).sum();
        let Mark { end, goes_on } = self.first_unacknowledged(peer);
        let is_known = end < self.durable_end && !goes_on;
        Lag { entries, since: is_known.then(|| self.kept[(end - self.first) as usize].durable_at) }
    }

    /// What a peer has told to have and is not here.
    pub fn lacking(&self, peer: DcId) -> u64 {
        self.acknowledged(peer).iter().map(|(dc, seq)| seq.saturating_sub(self.applied.get(dc))).sum()
    }

    /// A peer told another vector than `before`.
    pub(super) fn move_mark(&mut self, peer: DcId, before: &VersionVector) {
        if !self.acknowledged(peer).covers(before) {
            // It lost its disk.
            self.peers[peer.index()].mark = Mark::default();
        }
        self.move_mark_on(peer);
    }

    /// Moves the mark of a peer over what it has acknowledged, by [`PASSED_PER_STEP`] at most.
    pub(super) fn move_mark_on(&mut self, peer: DcId) {
        self.peers[peer.index()].mark = self.first_unacknowledged(peer);
    }

    /// The first entry that a peer has not acknowledged; at most the one after the last durable one. Each is looked at
    /// once, but for those that came since the peer told its vector last.
    fn first_unacknowledged(&self, peer: DcId) -> Mark {
        let told = self.acknowledged(peer);
        let start = self.peers[peer.index()].mark.end.max(self.first);
        let stop = self.durable_end.min(start + PASSED_PER_STEP as u64);
        let has_it =
            |entry: &super::Kept| entry.entry.dc == peer || told.get(entry.entry.dc) >= entry.entry.seq;
        let mut kept = self.kept.range((start - self.first) as usize..(stop - self.first) as usize);
        let passed = kept.position(|entry| !has_it(entry)).map_or(stop - start, |passed| passed as u64);
        work::count(passed as usize);
        Mark { end: start + passed, goes_on: passed == PASSED_PER_STEP as u64 }
    }
}
