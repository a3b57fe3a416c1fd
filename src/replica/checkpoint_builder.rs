//! Makes a checkpoint step by step: ownership, request table and contents are read as they were when the
//! checkpoint began, some rows per step, so that no client waits while millions of locks and keys are copied.

use std::sync::Arc;

use super::Replica;
use super::effect::Effect;
use super::lend::lend;
use super::record::Checkpoint;
use super::transfer::StateTransfer;
use crate::base::work;
use crate::crdt::ReaderId;
use crate::lock_state::Piece;
use geolock_api::names::Position;

/// Most keys, requests, or locks that one step copies.
const ROWS_PER_STEP: usize = 1024;

/// A checkpoint in progress.
pub(super) struct CheckpointBuilder {
    checkpoint: Box<Checkpoint>,
    at: Position,
    /// `None` when all locks and requests are read.
    pub(super) reader: Option<ReaderId>,
    next_row: usize,
}

impl Replica {
    /// Begins a checkpoint, unless one is in progress.
    pub(super) fn on_checkpoint_wanted(&mut self) {
        if self.copies.transfers.is_taking() {
            self.copies.transfers.postpone_checkpoint();
        } else if self.copies.checkpoint_builder.is_none() {
            let applied = Arc::new(self.log.applied().clone());
            self.data.store.open_snapshot_at(self.out.position, &applied);
            let mut checkpoint = Box::new(self.begin_checkpoint());
            checkpoint.requests.reserve_exact(self.locks.inspect().asked());
            checkpoint.contents.reserve_exact(self.data.store.counts().keys as usize);
            let reader = Some(self.locks.reading().open(self.log.applied()));
            self.copies.checkpoint_builder =
                Some(CheckpointBuilder { checkpoint, at: self.out.position, reader, next_row: 0 });
        }
    }

    /// Begins a postponed checkpoint, and copies some more rows of the one in progress. Called when the log
    /// has all that happened in the step.
    pub(super) fn continue_checkpoint(&mut self) {
        if self.copies.transfers.take_postponed_checkpoint() {
            self.on_checkpoint_wanted();
        }
        if self.copies.checkpoint_builder.is_some() {
            lend!(StateTransfer, self).build_checkpoint();
        }
    }
}

impl StateTransfer<'_> {
    fn build_checkpoint(&mut self) {
        let Some(mut builder) = self.copies.checkpoint_builder.take() else { return };
        let mut left = ROWS_PER_STEP;
        while let Some(reader) = builder.reader
            && left > 0
        {
            match self.locks.reading().read(reader, left) {
                Piece::Owned(rows) => {
                    left -= rows.len();
                    builder.checkpoint.ownership.extend(rows);
                }
                Piece::Requests { rows, looked_at } => {
                    left -= looked_at;
                    builder.checkpoint.requests.extend(rows);
                }
                Piece::End => {
                    self.locks.reading().close(reader);
                    builder.reader = None;
                }
            }
        }
        work::count(ROWS_PER_STEP - left);
        if left == 0 {
            self.copies.checkpoint_builder = Some(builder);
            return;
        }
        let (mut contents, next) = self.data.store.export(builder.at, builder.next_row, left);
        builder.checkpoint.contents.append(&mut contents);
        match next {
            Some(row) => {
                self.copies.checkpoint_builder = Some(CheckpointBuilder { next_row: row, ..builder })
            }
            None => {
                self.data.store.close_snapshot(builder.at);
                self.out.effects.push_back(Effect::Checkpoint(builder.checkpoint));
            }
        }
    }
}
