//! Appends the entries of this datacenter's own log.

use std::sync::Arc;

use super::config::ReplicaConfig;
use super::data::Data;
use super::data::transactions::can_commit;
use super::ids::Ids;
use super::lifecycle::Lifecycle;
use super::members::Members;
use super::outputs::Outputs;
use super::record::Record;
use crate::base::bugs::Bug;
use crate::base::entry_number::follows;
use crate::base::time::{Now, Timestamp};
use crate::causal_log::{Action, Change, Commit, Entry, Log, MAX_CHANGES, MAX_COMMIT_BYTES, Op};
use crate::crdt::VersionVector;
use crate::lock_state::Locks;
use geolock_api::keys::Key;
use geolock_api::names::Position;

/// Bytes at which the operations of one entry stop, approximately. Far below a frame.
const ENTRY_WEIGHT: usize = 1 << 20;
/// Most locks and parts in one entry, unless one request has more: an entry is applied in one step.
const ENTRY_ROWS: usize = 32;
/// Most locks of one transfer operation.
const TRANSFER_LOCKS: usize = 32;

const _: () = assert!(TRANSFER_LOCKS <= ENTRY_ROWS, "a piece of a transfer fits an entry");
const _: () = assert!(2 * ENTRY_WEIGHT <= MAX_COMMIT_BYTES, "an entry is no larger than a large commit");

/// Appends own entries to the log, and applies what entries say of the store and the members.
pub(super) struct Writer<'a> {
    pub(super) config: &'a ReplicaConfig,
    pub(super) now: Now,
    pub(super) out: &'a mut Outputs,
    pub(super) ids: &'a mut Ids,
    pub(super) log: &'a mut Log,
    pub(super) locks: &'a mut Locks,
    pub(super) lifecycle: &'a Lifecycle,
    pub(super) members: &'a mut Members,
    pub(super) data: &'a mut Data,
}

impl Writer<'_> {
    /// Appends own entries: one, unless it would be too large for a frame or for one step of its receivers.
    pub(super) fn make_entries(&mut self, ops: Vec<Op>) {
        assert!(!ops.is_empty(), "an entry is made to say something");
        let mut chunk = Vec::new();
        let (mut weight, mut rows) = (0, 0);
        for op in ops.into_iter().flat_map(split_op) {
            (weight, rows) = (weight + op.weight(), rows + op.rows());
            if (weight > ENTRY_WEIGHT || rows > ENTRY_ROWS) && !chunk.is_empty() {
                // A request that is published again is in the entry that withdraws its old id.
                let goes_along =
                    |last: &mut Op| matches!((last, &op), (Op::Withdraw { .. }, Op::Request { .. }));
                let before = chunk.pop_if(goes_along);
                if !chunk.is_empty() {
                    self.make_entry(std::mem::take(&mut chunk));
                }
                (weight, rows) = (op.weight(), op.rows());
                chunk.extend(before);
            }
            chunk.push(op);
        }
        self.make_entry(chunk);
    }

    /// Appends one own entry. Returns its position in the journal.
    pub(super) fn make_entry(&mut self, ops: Vec<Op>) -> Position {
        // The first entry of an epoch says so. This one may have come with a state.
        self.announce_if_owed();
        let at = self.ids.stamp(self.out);
        let dc = self.config.dc;
        let deps = self.log.applied().clone();
        let (last, before) = (deps.get(dc), self.log.last_stamp(dc));
        let seq = last.max(self.members.decided.own_base()) + 1;
        // Once it is recorded, it cannot be taken back.
        assert!(follows(seq, last), "own entry {seq} follows {last}");
        assert!(at > before || at == Timestamp::MAX, "own entry {seq} is stamped {at} after {before}");
        assert!(!ops.is_empty(), "own entry {seq} says something");
        debug_assert!(self.is_valid(&ops, &deps), "a peer would refuse own entry {seq}: {ops:?}");
        self.locks.log_operations().note_own_entry(seq, &ops, self.now.mono);
        let (cluster, prev, epoch) =
            (self.config.agreed.cluster, self.own_head(), self.members.entered.epoch().0);
        // An entry of version 1 has no field for the lead.
        let lead_ms = if self.lifecycle.versions.are_chained() { self.ids.lead.millis } else { 0 };
        assert!(!self.lifecycle.state.is_forked(), "nothing is added to one of two histories");
        let entry = Arc::new(Entry { cluster, epoch, dc, seq, at, deps, ops, prev, lead_ms });
        let position = self.out.persist(Record::Entry(entry.clone()));
        for (index, commit) in entry.ops.iter().enumerate().filter_map(|(i, op)| Some((i, op.as_commit()?))) {
            self.take_in_commit(&entry, index, commit, position);
        }
        entry.ops.iter().for_each(|op| self.take_in_membership((dc, seq), op, position));
        self.log.apply(entry, position, self.now.mono);
        self.out.counts.entries_made += 1;
        self.out.pump = true;
        position
    }

    /// Returns true if the commit of an own entry keeps the rules by which peers judge it.
    fn is_valid(&self, ops: &[Op], deps: &VersionVector) -> bool {
        let mut commits = ops.iter().filter_map(Op::as_commit);
        let Some(commit) = commits.next() else { return true };
        commits.next().is_none() && commit.validate(deps).is_ok() && can_commit(self.lifecycle).is_ok()
    }

    /// Returns the hash of the predecessor for the next own entry.
    pub(super) fn own_head(&self) -> u64 {
        let me = self.config.dc;
        let is_named = self.lifecycle.versions.are_chained();
        if is_named { self.log.chain().hash_at(me, self.log.applied().get(me)) } else { 0 }
    }

    pub(super) fn end_keys(&mut self, mut keys: Vec<Key>) {
        // A key may be done and expired.
        keys.sort_unstable();
        keys.dedup();
        if keys.is_empty() {
            return;
        }
        assert!(keys.len() <= MAX_CHANGES, "{} keys end in one commit", keys.len());
        assert!(can_commit(self.lifecycle).is_ok(), "keys end only while commits may be made");
        self.out.counts.keys_expired += keys.len() as u64;
        let seen = self.log.applied().clone();
        let action = Action::Expired;
        let action = if self.config.bugs.has(Bug::ExpiryByRemoval) { Action::Remove } else { action };
        let changes = keys.into_iter().map(|key| Change { key, action: action.clone() }).collect();
        self.make_entry(vec![Op::Commit(Commit { seen, client: None, changes })]);
    }
}

/// Cuts a transfer of many locks into pieces of moderate size. A request stays whole; its names are at most
/// 1 MiB.
fn split_op(op: Op) -> Vec<Op> {
    match op {
        Op::Transfer { to, parts } if op_is_large(&parts) => {
            parts.chunks(TRANSFER_LOCKS).map(|chunk| Op::Transfer { to, parts: chunk.to_vec() }).collect()
        }
        Op::Keep { parts } if op_is_large(&parts) => {
            parts.chunks(TRANSFER_LOCKS).map(|chunk| Op::Keep { parts: chunk.to_vec() }).collect()
        }
        op => vec![op],
    }
}

fn op_is_large(parts: &[crate::causal_log::LockParts]) -> bool {
    parts.len() > TRANSFER_LOCKS
}
