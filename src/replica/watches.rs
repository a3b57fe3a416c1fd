//! Who follows keys: every committed change of them, once, in causal order.
//!
//! A watch is told of commits when they are durable here, in the order in which they were applied. Its client keeps a
//! vector of what it has been told and goes on from there after a reconnect, at any datacenter. How far back that may be is
//! bounded by [`HISTORY_BYTES`]; beyond, the client reads the keys and begins anew.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::Replica;
use super::call::{CallId, Reply};
use super::effect::{Effect, Notice};
use super::store_call::{Changed, TxnRefusal, Watch};
use crate::causal_log::{Change, Commit, Entry, Op};
use crate::crdt::VersionVector;
use crate::leases::SessionId;

/// Commits that a watch can go on from are at most of this weight together; far below what a session may have
/// outstanding, so that a watch that catches up is not taken for one that does not read.
const HISTORY_BYTES: usize = 4 << 20;
/// Most watches of one session.
const MAX_PER_SESSION: usize = 1_000;

/// See the module.
#[derive(Default)]
pub(super) struct Watches {
    /// By the call that began them.
    rows: BTreeMap<CallId, Row>,
    /// Durable commits, in the order of application.
    history: VecDeque<Arc<Entry>>,
    history_weight: usize,
    /// What stands before the history.
    forgotten: VersionVector,
}

struct Row {
    watch: Watch,
    /// What it was told, or knew before.
    told: VersionVector,
}

impl Watches {
    /// After a restart: nothing of before can be gone on from.
    pub fn begin_at(&mut self, applied: &VersionVector) {
        self.forgotten = applied.clone();
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    fn remember(&mut self, entry: Arc<Entry>) {
        self.history_weight += entry.weight();
        self.history.push_back(entry);
        while self.history_weight > HISTORY_BYTES {
            let oldest = self.history.pop_front().expect("what weighs is there");
            self.history_weight -= oldest.weight();
            self.forgotten.raise(oldest.dc, oldest.seq);
        }
    }

    pub fn close_session(&mut self, session: SessionId) {
        let (first, last) = (CallId { session, tag: 0 }, CallId { session, tag: u64::MAX });
        let gone: Vec<CallId> = self.rows.range(first..=last).map(|(call, _)| *call).collect();
        gone.iter().for_each(|call| drop(self.rows.remove(call)));
    }
}

fn commit_of(entry: &Entry) -> Option<&Commit> {
    entry.ops.iter().find_map(Op::as_commit)
}

impl Row {
    /// What this watch is told of an entry; `None` if nothing.
    fn changes(&mut self, call: CallId, entry: &Entry) -> Option<Effect> {
        if entry.seq <= self.told.get(entry.dc) {
            return None;
        }
        self.told.raise(entry.dc, entry.seq);
        let follows = |change: &&Change| self.watch.follows(&change.key);
        let changes: Vec<Change> = commit_of(entry)?.changes.iter().filter(follows).cloned().collect();
        if changes.is_empty() {
            return None;
        }
        let changed = Changed { watch: call.tag, dc: entry.dc, seq: entry.seq, at: entry.at, changes };
        Some(Effect::Notify { session: call.session, notice: Notice::Changed(Box::new(changed)) })
    }
}

impl Replica {
    pub(super) fn on_watch(&mut self, call: CallId, watch: Watch) {
        let session = call.session;
        let (first, last) = (CallId { session, tag: 0 }, CallId { session, tag: u64::MAX });
        if self.watches.rows.range(first..=last).count() >= MAX_PER_SESSION {
            return self.refuse(call, TxnRefusal::TooManyWatches(MAX_PER_SESSION).into());
        }
        let durable = self.log.durable().clone();
        let from = match &watch.from {
            None => (*durable).clone(),
            Some(from) => {
                if let Err(refusal) = self.validate_vector(from) {
                    return self.refuse(call, refusal.into());
                }
                if !from.covers(&self.watches.forgotten) {
                    let begins = self.watches.forgotten.clone();
                    return self.refuse(call, TxnRefusal::WatchTooOld { begins }.into());
                }
                from.clone()
            }
        };
        self.reply(call, Reply::Watching { from: from.clone() });
        let mut row = Row { watch, told: from };
        for entry in &self.watches.history {
            self.effects.extend(row.changes(call, entry));
        }
        self.watches.rows.insert(call, row);
    }

    /// Ends a watch; one that is over already is none, too.
    pub(super) fn on_unwatch(&mut self, call: CallId, watch: u64) {
        self.watches.rows.remove(&CallId { session: call.session, tag: watch });
        self.reply(call, Reply::Unwatched);
    }

    /// These entries became durable, in this order.
    pub(super) fn tell_watches(&mut self, entries: Vec<Arc<Entry>>) {
        for entry in entries {
            if commit_of(&entry).is_none() {
                continue;
            }
            for (call, row) in &mut self.watches.rows {
                self.effects.extend(row.changes(*call, &entry));
            }
            self.watches.remember(entry);
        }
    }
}
