//! Makes a checkpoint step by step: everything is read as it was when the checkpoint began, some rows per
//! step, so that no client waits while millions of locks, keys, leases and entries are copied.

use std::ops::Range;
use std::sync::Arc;

use super::recover::begin_checkpoint;
use crate::base::bugs::Bug;
use crate::base::work;
use crate::causal_log::Log;
use crate::crdt::ReaderId;
use crate::lock_state::{Locks, Piece};
use crate::replica::Replica;
use crate::replica::clients::Clients;
use crate::replica::config::ReplicaConfig;
use crate::replica::data::Data;
use crate::replica::effect::Effect;
use crate::replica::lend::lend;
use crate::replica::outputs::Outputs;
use crate::replica::peers::copies::Copies;
use crate::replica::record::Checkpoint;
use geolock_api::names::{IdempotencyKey, LeaseId, Position};

/// A checkpoint in progress.
pub(in crate::replica) struct CheckpointBuilder {
    checkpoint: Box<Checkpoint>,
    at: Position,
    /// `None` when all locks and requests are read.
    pub(in crate::replica) reader: Option<ReaderId>,
    next: Next,
    /// The numbers of the entries that are to be read: they are not truncated before.
    entries: Range<u64>,
}

/// The rows that are read next, after locks and requests.
enum Next {
    /// Keys, from this row on.
    Keys(usize),
    Leases,
    /// Outcomes of transactions, from this one on.
    Outcomes((LeaseId, IdempotencyKey)),
    Entries,
    Nothing,
}

/// All outcomes are from this one on.
pub(in crate::replica) const FIRST_OUTCOME: (LeaseId, IdempotencyKey) = (LeaseId::from_raw(0), 0);

impl CheckpointBuilder {
    /// Returns the number of the first entry that has to be kept.
    pub fn first_entry(&self) -> u64 {
        self.entries.start
    }
}

impl Replica {
    /// Begins a checkpoint, unless one is in progress.
    pub(in crate::replica) fn on_checkpoint_wanted(&mut self) {
        if self.copies.transfers.is_taking() {
            self.copies.transfers.postpone_checkpoint();
        } else if self.copies.checkpoint_builder.is_none() {
            let applied = Arc::new(self.log.applied().clone());
            self.data.store.open_snapshot_at(self.out.position, &applied);
            let entries = self.log.entries().numbers();
            let mut checkpoint = Box::new(begin_checkpoint(self));
            checkpoint.requests.reserve_exact(self.locks.inspect().asked());
            checkpoint.contents.reserve_exact(self.data.store.counts().keys as usize);
            checkpoint.leases.reserve_exact(self.clients.leases.len());
            let (leases, commits) = self.data.transactions.outcomes.counts();
            checkpoint.outcomes.reserve_exact(leases);
            checkpoint.commit_contents.reserve_exact(commits);
            checkpoint.log.reserve_exact((entries.end - entries.start) as usize);
            self.clients.leases.begin_reading(self.ids.next_n);
            let reader = Some(self.locks.reading().open(self.log.applied()));
            let (at, next) = (self.out.position, Next::Keys(0));
            self.copies.checkpoint_builder =
                Some(CheckpointBuilder { checkpoint, at, reader, next, entries });
        }
    }

    /// Begins a postponed checkpoint, and copies some more rows of the one in progress. Called when the log
    /// has all that happened in the step.
    pub(in crate::replica) fn continue_checkpoint(&mut self) {
        if self.copies.transfers.take_postponed_checkpoint() {
            self.on_checkpoint_wanted();
        }
        if self.copies.checkpoint_builder.is_some() {
            lend!(CheckpointSteps, self).build();
        }
    }
}

/// Copies rows into the checkpoint in progress.
pub(in crate::replica) struct CheckpointSteps<'a> {
    pub config: &'a ReplicaConfig,
    pub out: &'a mut Outputs,
    pub log: &'a Log,
    pub locks: &'a mut Locks,
    pub clients: &'a mut Clients,
    pub data: &'a mut Data,
    pub copies: &'a mut Copies,
}

impl CheckpointSteps<'_> {
    fn build(&mut self) {
        let Some(mut builder) = self.copies.checkpoint_builder.take() else { return };
        let most = self.config.local.checkpoint_rows;
        let mut left = most;
        let is_done = self.read_locks(&mut builder, &mut left) && self.read_rest(&mut builder, &mut left);
        work::count(most - left);
        if is_done {
            let (at, left) = (builder.at, &builder.entries);
            assert!(left.is_empty(), "the checkpoint at {at:?} is whole, without entries {left:?}");
            assert!(builder.reader.is_none(), "the checkpoint at {at:?} is whole with all locks");
            let leases = &builder.checkpoint.leases;
            debug_assert!(leases.iter().all(|lease| lease.lease.n() < builder.checkpoint.n), "at {at:?}");
            self.out.effects.push_back(Effect::Checkpoint(builder.checkpoint));
        } else {
            self.copies.checkpoint_builder = Some(builder);
        }
    }

    /// Returns true if all locks and requests are read.
    fn read_locks(&mut self, builder: &mut CheckpointBuilder, left: &mut usize) -> bool {
        while let Some(reader) = builder.reader
            && *left > 0
        {
            match self.locks.reading().read(reader, *left) {
                Piece::Owned(rows) => {
                    *left -= rows.len();
                    builder.checkpoint.ownership.extend(rows);
                }
                Piece::Requests { rows, looked_at } => {
                    *left -= looked_at;
                    builder.checkpoint.requests.extend(rows);
                }
                Piece::End => {
                    self.locks.reading().close(reader);
                    builder.reader = None;
                }
            }
        }
        builder.reader.is_none()
    }

    /// Returns true if everything is read.
    fn read_rest(&mut self, builder: &mut CheckpointBuilder, left: &mut usize) -> bool {
        while *left > 0 && !matches!(builder.next, Next::Nothing) {
            let (next, examined) = self.read_next(builder, *left);
            builder.next = next;
            *left -= examined.min(*left);
        }
        matches!(builder.next, Next::Nothing)
    }

    /// Reads up to `most` rows of one kind. Returns what comes next, and how many rows were examined.
    fn read_next(&mut self, builder: &mut CheckpointBuilder, most: usize) -> (Next, usize) {
        let CheckpointBuilder { checkpoint, at, next, entries, .. } = builder;
        match *next {
            Next::Keys(row) => {
                let (mut contents, beyond) = self.data.store.export(*at, row, most);
                let examined = contents.len();
                checkpoint.contents.append(&mut contents);
                match beyond {
                    Some(row) => (Next::Keys(row), most),
                    None => {
                        self.data.store.close_snapshot(*at);
                        (Next::Leases, examined)
                    }
                }
            }
            Next::Leases => {
                let (leases, examined) = self.clients.leases.read(most);
                checkpoint.leases.extend(leases);
                let next = if examined < most { Next::Outcomes(FIRST_OUTCOME) } else { Next::Leases };
                (next, examined)
            }
            Next::Outcomes(from) => {
                let later = self.config.bugs.has(Bug::LaterOutcomes);
                let upto = if later { Position(u64::MAX) } else { *at };
                let to = (&mut checkpoint.outcomes, &mut checkpoint.commit_contents);
                let (beyond, examined) = self.data.transactions.outcomes.copy(from, upto, most, to);
                (beyond.map_or(Next::Entries, Next::Outcomes), examined)
            }
            Next::Entries => {
                let some = entries.start..entries.end.min(entries.start + most as u64);
                entries.start = some.end;
                let examined = (some.end - some.start) as usize;
                checkpoint.log.extend(self.log.entries().range(some).cloned());
                (if entries.is_empty() { Next::Nothing } else { Next::Entries }, examined)
            }
            Next::Nothing => (Next::Nothing, 0),
        }
    }
}
