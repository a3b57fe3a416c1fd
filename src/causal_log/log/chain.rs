//! Hashes of the entries of every log, as far back as members may still have to compare.
//!
//! Each entry names the hash of its predecessor, so two logs with the same hash at one number are equal up to
//! there. So it is enough to compare at one number that both know (`docs/algorithm/log.md#15-hash-chain`). 64
//! bits are enough against accidents: a disk that was rolled back, a directory that was copied. They do not
//! protect against an attacker who searches for a collision, but a member that lies can do worse anyway.
//!
//! A hash is known if the entry was applied here, or if the hash came with a state transfer. 0 stands for an
//! unknown hash: of an entry from version 1, or one too far back.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::causal_log::entry::Entry;
use crate::crdt::VersionVector;
use geolock_api::names::{DcId, DcSet, MAX_DCS};

/// Number of hashes of a log that are kept beyond the entries that some member may lack. 8 bytes each.
const BEYOND: u64 = 1024;

/// Number of hashes of each log in a state transfer.
const TOLD: usize = 4 * BEYOND as usize;

/// The hashes of the last entries of each log.
pub(crate) struct Chain {
    rows: Box<[Row]>,
}

#[derive(Clone, Default)]
struct Row {
    /// The number of the newest entry.
    last: u64,
    /// The hashes up to `last`, without gaps.
    hashes: VecDeque<u64>,
}

impl Row {
    fn first(&self) -> u64 {
        self.last + 1 - self.hashes.len() as u64
    }

    fn at(&self, seq: u64) -> u64 {
        if seq > self.last || seq < self.first() {
            return 0;
        }
        self.hashes[(seq - self.first()) as usize]
    }
}

impl Chain {
    pub(super) fn new() -> Chain {
        Chain { rows: (0..MAX_DCS).map(|_| Row::default()).collect() }
    }

    /// Removes the hashes of a log: its next entry is the first one of another generation.
    pub(super) fn forget(&mut self, dc: DcId) {
        self.rows[dc.index()] = Row::default();
    }

    /// Adds the hash of an entry that was just applied. No member lacks entries of its log up to `truncated`.
    pub(super) fn append(&mut self, entry: &Entry, truncated: u64) {
        self.push(entry.dc, entry.seq, entry.hash(), truncated);
    }

    fn push(&mut self, dc: DcId, seq: u64, hash: u64, truncated: u64) {
        let row = &mut self.rows[dc.index()];
        if seq != row.last + 1 {
            row.hashes.clear();
        }
        row.last = seq;
        row.hashes.push_back(hash);
        debug_assert!(hash != 0, "0 is no hash: it says that none is known");
        debug_assert!(row.hashes.len() as u64 <= seq, "there are no more hashes than entries");
        while row.first() + BEYOND <= truncated {
            row.hashes.pop_front();
        }
    }

    /// Returns the hash of an entry; 0 if it is not known.
    pub fn hash_at(&self, dc: DcId, seq: u64) -> u64 {
        self.rows[dc.index()].at(seq)
    }

    /// Returns the hashes of the last entries in a vector, as far as they are known.
    pub fn heads_at(&self, vector: &VersionVector) -> Vec<(DcId, u64)> {
        let heads = vector.iter().map(|(dc, seq)| (dc, self.hash_at(dc, seq)));
        heads.filter(|(_, hash)| *hash != 0).collect()
    }

    /// Returns all known hashes of the logs of these members: of each log, those of its last entries.
    pub(super) fn hashes(&self, members: DcSet, applied: &VersionVector) -> Vec<(DcId, Vec<u64>)> {
        let known = members.iter().map(|dc| (dc, &self.rows[dc.index()]));
        // An installed state may have come without the hash of its last entry.
        let known = known.filter(|(dc, row)| !row.hashes.is_empty() && row.last == applied.get(*dc));
        known.map(|(dc, row)| (dc, row.hashes.iter().copied().collect())).collect()
    }

    /// Returns as many of the last hashes as a state transfer has.
    pub(super) fn last_hashes(&self, members: DcSet, applied: &VersionVector) -> Vec<(DcId, Vec<u64>)> {
        let mut hashes = self.hashes(members, applied);
        for (_, hashes) in &mut hashes {
            hashes.drain(..hashes.len().saturating_sub(TOLD));
        }
        hashes
    }

    /// Restores the hashes up to the applied vector from a checkpoint with the entries `kept`. A checkpoint
    /// of version 1 has no hashes, but may have entries.
    pub(super) fn restore(
        &mut self,
        (members, applied): (DcSet, &VersionVector),
        hashes: &[(DcId, Vec<u64>)],
        kept: &[Arc<Entry>],
    ) {
        if hashes.is_empty() {
            kept.iter().for_each(|entry| self.append(entry, 0));
        }
        for (dc, hashes) in hashes {
            let last = applied.get(*dc);
            if hashes.len() as u64 <= last {
                self.rows[dc.index()] = Row { last, hashes: hashes.iter().copied().collect() };
            }
        }
        self.install(members, applied, &[]);
    }

    /// Installs the hashes of a state that covers more than was applied here: those of its last entries, up
    /// to `applied`. Older hashes are kept if there is no gap.
    pub(super) fn install(&mut self, members: DcSet, applied: &VersionVector, hashes: &[(DcId, Vec<u64>)]) {
        for dc in members.iter() {
            let (last, row) = (applied.get(dc), &mut self.rows[dc.index()]);
            if row.last == last {
                continue;
            }
            let theirs = hashes.iter().find(|(of, _)| *of == dc).map_or(&[][..], |(_, hashes)| hashes);
            let (missing, most) = ((last - row.last) as usize, theirs.len().min(TOLD));
            let new = &theirs[theirs.len() - most..];
            match new.len().checked_sub(missing) {
                Some(known) if !row.hashes.is_empty() => row.hashes.extend(&new[known..]),
                _ => row.hashes = new.iter().copied().collect(),
            }
            debug_assert!(row.hashes.len() as u64 <= last, "there are no more hashes than entries");
            row.last = last;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_known_as_far_as_anybody_may_ask() {
        let (mut chain, dc) = (Chain::new(), DcId::new(1).expect("a small id"));
        (1..=5_000).for_each(|seq| chain.push(dc, seq, seq * 10, 0));
        let row = |chain: &Chain| (chain.rows[1].first(), chain.rows[1].last);
        assert_eq!(row(&chain), (1, 5_000), "somebody may lack all of it");
        chain.push(dc, 5_001, 50_010, 4_000);
        assert_eq!(row(&chain), (4_000 - BEYOND + 1, 5_001));
        let at = |seq| chain.rows[1].at(seq);
        assert_eq!([at(1), at(3_000), at(5_001), at(5_002)], [0, 30_000, 50_010, 0]);
        chain.push(dc, 9_000, 7, 9_000);
        assert_eq!(row(&chain), (9_000, 9_000), "what is between came with a state");
    }
}
