//! Hashes of the entries of every log, as far back as members may still have to compare.
//!
//! Each entry names the hash of its predecessor, so two logs with the same hash at one number are equal up to
//! there. So it is enough to compare at one number that both know (`docs/algorithm.md#45-hash-chain`). 64
//! bits are enough against accidents: a disk that was rolled back, a directory that was copied. They do not
//! protect against an attacker who searches for a collision, but a member that lies can do worse anyway.
//!
//! A hash is known if the entry was applied here, or if the hash came with a state transfer. 0 stands for an
//! unknown hash: of an entry from version 1, or one too far back.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Log;
use crate::causal_log::entry::Entry;
use geolock_api::names::{DcId, MAX_DCS};

/// Number of hashes of a log that are kept beyond the entries that some member may lack. 8 bytes each.
const BEYOND: u64 = 1024;

/// Number of hashes of each log in a state transfer.
const TOLD: usize = 4 * BEYOND as usize;

/// The hashes of the last entries of each log.
pub(super) struct Chain {
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
    pub fn new() -> Chain {
        Chain { rows: (0..MAX_DCS).map(|_| Row::default()).collect() }
    }

    /// The next entry of this log is the first one of another generation.
    pub fn forget(&mut self, dc: DcId) {
        self.rows[dc.index()] = Row::default();
    }

    /// Adds the hash of the next entry of a log. No member lacks entries up to `truncated`.
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
}

impl Log {
    pub(super) fn chain_on(&mut self, entry: &Entry) {
        let truncated = self.truncated.get(entry.dc);
        self.chain.push(entry.dc, entry.seq, entry.hash(), truncated);
    }

    /// Returns the hash of an entry; 0 if it is not known.
    pub fn hash_at(&self, dc: DcId, seq: u64) -> u64 {
        self.chain.rows[dc.index()].at(seq)
    }

    /// Returns the hash of the last applied entry of a datacenter; 0 if it is not known.
    pub fn head(&self, dc: DcId) -> u64 {
        self.hash_at(dc, self.applied.get(dc))
    }

    /// Returns all known hashes, for a checkpoint: of each log, those of its last entries.
    pub fn hashes(&self) -> Vec<(DcId, Vec<u64>)> {
        let known = self.members.iter().map(|dc| (dc, &self.chain.rows[dc.index()]));
        // An installed state may have come without the hash of its last entry.
        let known = known.filter(|(dc, row)| !row.hashes.is_empty() && row.last == self.applied.get(*dc));
        known.map(|(dc, row)| (dc, row.hashes.iter().copied().collect())).collect()
    }

    /// Returns the last hashes of each log, for a state transfer.
    pub fn last_hashes(&self) -> Vec<(DcId, Vec<u64>)> {
        let mut hashes = self.hashes();
        for (_, hashes) in &mut hashes {
            hashes.drain(..hashes.len().saturating_sub(TOLD));
        }
        hashes
    }

    /// Returns the hashes at the durable vector, as far as they are known.
    pub fn durable_heads(&self) -> Vec<(DcId, u64)> {
        let heads = self.durable.iter().map(|(dc, seq)| (dc, self.hash_at(dc, seq)));
        heads.filter(|(_, hash)| *hash != 0).collect()
    }

    /// Restores the hashes up to the applied vector from a checkpoint. A checkpoint of version 1 has no
    /// hashes, but may have entries.
    pub(super) fn restore_hashes(&mut self, hashes: &[(DcId, Vec<u64>)], kept: &[Arc<Entry>]) {
        if hashes.is_empty() {
            kept.iter().for_each(|entry| self.chain.push(entry.dc, entry.seq, entry.hash(), 0));
        }
        for (dc, hashes) in hashes {
            let last = self.applied.get(*dc);
            if hashes.len() as u64 <= last {
                self.chain.rows[dc.index()] = Row { last, hashes: hashes.iter().copied().collect() };
            }
        }
        self.install_hashes(&[]);
    }

    /// Installs the hashes of a state that covers more than was applied here: those of its last entries, up
    /// to `applied`. Older hashes are kept if there is no gap.
    pub fn install_hashes(&mut self, hashes: &[(DcId, Vec<u64>)]) {
        for dc in self.members.iter() {
            let (last, row) = (self.applied.get(dc), &mut self.chain.rows[dc.index()]);
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
