//! A checkpoint, made bit by bit: keys are read at a snapshot of their own, some with every step, so that no client waits
//! while millions of them are copied.

use std::sync::Arc;

use super::Replica;
use super::effect::Effect;
use super::record::Checkpoint;
use crate::keys::Key;
use crate::names::Position;
use crate::store_state::Content;

/// Keys that one step copies, at most.
const KEYS_PER_STEP: usize = 1024;

/// A checkpoint under way.
pub(super) struct Export {
    checkpoint: Box<Checkpoint>,
    at: Position,
    next_row: usize,
}

impl Replica {
    /// Begins a checkpoint, unless one is under way.
    pub(super) fn on_checkpoint_wanted(&mut self) {
        if self.transfers.is_taking() {
            self.transfers.postpone_checkpoint();
        } else if self.export.is_none() {
            let applied = Arc::new(self.log.applied().clone());
            self.store.open_snapshot_at(self.position, &applied);
            let checkpoint = Box::new(self.checkpoint_without_contents());
            self.export = Some(Export { checkpoint, at: self.position, next_row: 0 });
        }
    }

    /// Goes on with it.
    pub(super) fn export_some(&mut self) {
        if self.export.is_none() {
            return;
        }
        let Some(mut export) = self.export.take() else { return };
        let (mut contents, next) = self.store.export(export.at, export.next_row, KEYS_PER_STEP);
        export.checkpoint.contents.append(&mut contents);
        match next {
            Some(row) => self.export = Some(Export { next_row: row, ..export }),
            None => {
                self.store.close_snapshot(export.at);
                self.effects.push_back(Effect::Checkpoint(export.checkpoint));
            }
        }
    }

    /// All that the records persisted so far amount to, at once. To be kept once they are durable.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint { contents: self.contents(), ..self.checkpoint_without_contents() }
    }

    /// Every key that has something, by no order, as the last applied entry left it.
    pub fn contents(&self) -> Vec<(Key, Content)> {
        self.store.contents()
    }
}
