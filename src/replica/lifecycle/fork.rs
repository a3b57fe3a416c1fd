//! Forks: two histories of one log. A datacenter continued from an old disk and wrote other entries under
//! numbers that some member already has (`docs/algorithm/recovery.md#6-two-histories`).
//!
//! Nothing can merge that: an entry that depends on one history is wrong where the other one is applied. So
//! the first member that sees two hashes of one entry stops, across restarts: it grants, transfers, appends
//! and applies nothing more, and informs all peers, which stop, too. Reads are still served. An operator
//! decides which history is kept ([`Replica::resolve_fork`]).
//!
//! A fork shows in the durable vector of a peer with its head hashes, in an entry whose predecessor differs
//! from the one here, in a duplicate that differs, and in a state, which carries the hashes of the last
//! entries of every log. Entries of a peer wait until the peer has announced its heads, because an entry that
//! only depends on another history does not show it. A fork stays unseen if both sides have given each other
//! up and each has written so many entries that they know no hash of a common number: then the side that
//! lacks entries installs the state of the other.

use crate::base::bugs::Bug;
use serde::{Deserialize, Serialize};

use crate::causal_log::{Entry, Log};
use crate::crdt::VersionVector;
use crate::lock_state::Permissions;
use crate::replica::Replica;
use crate::replica::config::ReplicaConfig;
use crate::replica::effect::Report;
use crate::replica::lend::lend;
use crate::replica::message::Heartbeat;
use crate::replica::peers::peering::Peering;
use crate::replica::record::Record;
use geolock_api::names::DcId;

/// The entry that exists in two versions. Disk type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fork {
    /// The datacenter whose log it is.
    pub dc: DcId,
    /// The first entry that is known to differ; the first that really differs may be an earlier one.
    pub seq: u64,
    /// [`Entry::hash`] of the version here; 0 if there is none here.
    pub ours: u64,
    /// The hash of the other version; 0 if `peer` only reported the fork.
    pub theirs: u64,
    /// The peer that has the other version, or reported it.
    pub peer: DcId,
}

/// `peer` has an entry of a log, by its number, with the hash `theirs`. Returns the fork if it has another
/// hash here.
fn fork_at(
    config: &ReplicaConfig,
    log: &Log,
    (dc, seq): (DcId, u64),
    (peer, theirs): (DcId, u64),
) -> Option<Fork> {
    let ours = log.chain().hash_at(dc, seq);
    let differ = ours != 0 && theirs != 0 && ours != theirs;
    (differ && !config.bugs.has(Bug::ForksNotCompared)).then_some(Fork { dc, seq, ours, theirs, peer })
}

/// A state of `peer` has these hashes of the last entries of each log in `vector`. Returns the first fork.
pub(in crate::replica) fn fork_in_hashes(
    config: &ReplicaConfig,
    log: &Log,
    (peer, vector): (DcId, &VersionVector),
    hashes: &[(DcId, Vec<u64>)],
) -> Option<Fork> {
    hashes.iter().find_map(|(dc, hashes)| {
        let mut numbered = (1..=vector.get(*dc)).rev().zip(hashes.iter().rev());
        // The last one that both know stands for all before it.
        let both_know = |(seq, hash): &(u64, &u64)| **hash != 0 && log.chain().hash_at(*dc, *seq) != 0;
        let (seq, hash) = numbered.find(both_know)?;
        fork_at(config, log, (*dc, seq), (peer, *hash))
    })
}

/// An entry came from `peer`, as a duplicate or as the next one of its log. Returns the fork that it shows.
pub(in crate::replica) fn fork_in_entry(
    config: &ReplicaConfig,
    log: &Log,
    peer: DcId,
    entry: &Entry,
) -> Option<Fork> {
    if entry.seq > log.applied().get(entry.dc) {
        return fork_at(config, log, (entry.dc, entry.predecessor()), (peer, entry.prev));
    }
    // The hash of the entry is computed only if there is one to compare it with.
    let is_known = log.chain().hash_at(entry.dc, entry.seq) != 0;
    is_known.then(|| fork_at(config, log, (entry.dc, entry.seq), (peer, entry.hash()))).flatten()
}

impl Replica {
    /// An operator has chosen this data directory, and all others that differ are gone. Call it before the
    /// first step. Returns true if this server needs the state of another one whose history is kept: it lacks
    /// decisions that others have compacted.
    pub fn resolve_fork(&mut self) -> bool {
        if self.lifecycle.on_fork_resolved() {
            self.out.persist(Record::ForkResolved);
        }
        self.members.needs_state()
    }
}

impl Peering<'_> {
    /// Compares the logs that a peer announced with those here. Returns true if all are still one history.
    pub(in crate::replica) fn compare_histories(&mut self, peer: DcId, heartbeat: &Heartbeat) -> bool {
        self.compare_heads(peer, &heartbeat.durable, &heartbeat.heads);
        let fork = heartbeat.fork.map(|(dc, seq)| {
            let ours = self.log.chain().hash_at(dc, seq);
            Fork { dc, seq, ours, theirs: 0, peer }
        });
        self.note_fork(fork);
        !self.lifecycle.state.is_forked()
    }

    /// A peer has these logs up to `durable`, with these hashes of the last entries.
    pub(in crate::replica) fn compare_heads(
        &mut self,
        peer: DcId,
        durable: &VersionVector,
        heads: &[(DcId, u64)],
    ) {
        let fork = heads
            .iter()
            .find_map(|(dc, hash)| fork_at(self.config, self.log, (*dc, durable.get(*dc)), (peer, *hash)));
        self.note_fork(fork);
        self.peers.links.note_heads(peer);
    }

    /// Two histories of one log exist: this datacenter stops. If that is known already, nothing changes.
    pub(in crate::replica) fn note_fork(&mut self, fork: Option<Fork>) {
        let Some(fork) = fork.filter(|_| !self.lifecycle.state.is_forked()) else { return };
        // The decisions that this step has already made, such as the end of a wait, belong to the history
        // here.
        let ops = self.locks.take_ops();
        if !ops.is_empty() {
            lend!(Writer, self).make_entries(ops);
        }
        self.locks.permit(Permissions { grant: false, append: false });
        self.lifecycle.on_fork(fork);
        assert!(!self.lifecycle.permissions().append, "nothing is added to one of two histories");
        self.out.persist(Record::Forked(fork));
        self.out.report(Report::Forked(fork));
        lend!(StateTransfer, self).stop_transfers();
        // All members are to stop at once.
        lend!(LinkHandler, self).tell_links();
    }
}

/// Returns the hashes of the last durable entries here, for peers.
pub(in crate::replica) fn heads_to_tell(config: &ReplicaConfig, log: &Log) -> Vec<(DcId, u64)> {
    if config.bugs.has(Bug::HeadsNotTold) {
        return Vec::new();
    }
    log.chain().heads_at(log.durable())
}
