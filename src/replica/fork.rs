//! Two logs under one name: a datacenter went on from an older disk and wrote other entries under numbers that some member
//! has already.
//!
//! Nothing can merge that: what depends on one of the entries is wrong where the other is applied. So whoever sees two hashes of one
//! entry stops for good, across restarts: it grants, hands over, appends and applies nothing more, and tells all peers, which stop,
//! too. Readers are still served. Which of the two histories is kept, people decide ([`Replica::resolve_fork`]).
//!
//! It is seen in what a peer says of its durable vector, in an entry whose predecessor is another one than that which is here, in
//! an entry that comes again and is another one, and in a state, which comes with the hashes of the last entries of every log.
//! Entries wait until the peer that brings them has said what it has: one that only depends on another history shows nothing. It is
//! not seen when those that meet have given each other up and each has gone on for so many entries that they know no hash of
//! one number: then the one that lacks entries takes the state of the other over.

use serde::{Deserialize, Serialize};

use super::Replica;
use super::effect::Report;
use super::message::Heartbeat;
use super::record::Record;
use crate::causal_log::{Entry, Violation};
use crate::crdt::VersionVector;
use crate::lock_state::Permissions;
use crate::names::{DcId, DcSet};

/// Which entry there are two of. Disk type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fork {
    /// Whose log it is.
    pub dc: DcId,
    /// The first entry of it that is known to differ; the first that does may be an earlier one.
    pub seq: u64,
    /// [`Entry::hash`] of the one here; 0 if there is none here.
    pub ours: u64,
    /// And of the other one; 0 if only the word of `peer` is known.
    pub theirs: u64,
    /// The peer that has the other one, or told of it.
    pub peer: DcId,
}

impl Replica {
    /// A data directory was chosen to be the one that is kept, and all others that differ are gone. To be called before the first
    /// step.
    pub fn resolve_fork(&mut self) {
        if self.life.fork.take().is_some() {
            self.persist(Record::ForkResolved);
        }
    }

    pub(super) fn is_forked(&self) -> bool {
        self.life.fork.is_some()
    }

    pub(super) fn note_fork(&mut self, fork: Fork) {
        if self.is_forked() {
            return;
        }
        // What this step has already decided is part of the history that is here: a wait that is over, say.
        let ops = self.locks.take_ops();
        if !ops.is_empty() {
            self.make_entries(ops);
        }
        self.locks.permit(Permissions { grant: false, append: false });
        self.life.fork = Some(fork);
        self.persist(Record::Forked(fork));
        self.report(Report::Forked(fork));
        self.stop_transfers();
        // All are to stop at once.
        self.tell_links();
    }

    /// `peer` has the entry `seq` of the log of `dc`, with this hash.
    pub(super) fn compare_hash(&mut self, peer: DcId, dc: DcId, seq: u64, theirs: u64) {
        #[cfg(test)]
        if self.mutated(crate::sim::Mutation::ForksNotCompared) {
            return;
        }
        let ours = self.log.hash_at(dc, seq);
        if ours != 0 && theirs != 0 && ours != theirs {
            self.note_fork(Fork { dc, seq, ours, theirs, peer });
        }
    }

    /// A state of `peer` has these hashes of the last entries of each log in `vector`.
    pub(super) fn compare_hashes(&mut self, peer: DcId, vector: &VersionVector, hashes: &[(DcId, Vec<u64>)]) {
        for (dc, hashes) in hashes {
            let mut numbered = (1..=vector.get(*dc)).rev().zip(hashes.iter().rev());
            // The last one that both know stands for those before.
            if let Some((seq, hash)) =
                numbered.find(|(seq, hash)| **hash != 0 && self.log.hash_at(*dc, *seq) != 0)
            {
                self.compare_hash(peer, *dc, seq, *hash);
            }
        }
    }

    /// An entry came from `peer`: again, or as the next one of its log.
    pub(super) fn compare_entry(&mut self, peer: DcId, entry: &Entry) {
        if entry.seq <= self.log.applied().get(entry.dc) {
            if self.log.hash_at(entry.dc, entry.seq) != 0 {
                self.compare_hash(peer, entry.dc, entry.seq, entry.hash());
            }
        } else if entry.prev != 0 {
            self.compare_hash(peer, entry.dc, entry.seq - 1, entry.prev);
        }
    }

    /// What a peer says of the logs as it has them. Returns whether all is one history still.
    pub(super) fn compare_histories(&mut self, peer: DcId, heartbeat: &Heartbeat) -> bool {
        self.compare_heads(peer, &heartbeat.durable, &heartbeat.heads);
        if let Some((dc, seq)) = heartbeat.fork {
            let ours = self.log.hash_at(dc, seq);
            self.note_fork(Fork { dc, seq, ours, theirs: 0, peer });
        }
        !self.is_forked()
    }

    /// A peer has these logs up to `durable`, with these hashes of the last entries.
    pub(super) fn compare_heads(&mut self, peer: DcId, durable: &VersionVector, heads: &[(DcId, u64)]) {
        for (dc, hash) in heads {
            self.compare_hash(peer, *dc, durable.get(*dc), *hash);
        }
        self.links.note_heads(peer);
    }

    /// Whether entries of a peer have to wait until it has said what it has: they may be of another history, and nothing in
    /// them shows that if they only depend on it. Version 1 does not say it.
    pub(super) fn awaits_heads(&self, peer: DcId) -> bool {
        self.life.chained && !self.links.has_told_heads(peer)
    }

    /// What peers are told of the logs as they are here on disk.
    pub(super) fn heads_to_tell(&self) -> Vec<(DcId, u64)> {
        #[cfg(test)]
        if self.mutated(crate::sim::Mutation::HeadsNotTold) {
            return Vec::new();
        }
        self.log.durable_heads()
    }

    /// Members that are known to know version 2, themselves or by the word of others.
    pub(super) fn note_upgraded(&mut self, peer: DcId, others: DcSet) {
        self.life.upgraded.insert(peer);
        let members = self.config.agreed.members;
        others.intersection(members).iter().for_each(|dc| self.life.upgraded.insert(dc));
        self.life.chained |= self.life.upgraded.is_superset(self.peers());
    }

    /// Version 1 knows nothing of hashes: what it passed on would look like another log.
    pub(super) fn refuse_version_1(&mut self, peer: DcId) -> bool {
        if self.life.chained {
            self.close_link(peer, Violation::OldVersion);
        }
        self.life.chained
    }

    /// The hash that the next own entry names as that of its predecessor.
    pub(super) fn own_head(&self) -> u64 {
        if self.life.chained { self.log.head(self.config.dc) } else { 0 }
    }
}
