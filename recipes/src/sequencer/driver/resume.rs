//! Compares memory with the database and with the ledger, beside the work.
//!
//! The view of the ledger is read while blocks go on, so it has seldom the height of the last block. One that
//! is ahead waits for the blocks in between: only they tell what became of each intent. One that is behind is
//! read again, with the next block.

use std::cmp::Ordering;
use std::sync::Arc;

use super::super::application::{Block, Domain, Ledger, NodeStore};
use super::super::{SequencerError, Warning};
use super::{Driver, DriverState};
use crate::sequencer_state::{Event, LedgerView, Restored};

impl<D: Domain, L: Ledger, S: NodeStore> Driver<D, L, S> {
    pub(super) async fn on_block(&mut self, Block { height, outcomes }: Block) -> Result<(), SequencerError> {
        let own = outcomes.iter().map(|it| &it.transaction).filter(|it| it.signer == *self.keys.me());
        let decided = own.map(|transaction| transaction.nonce).max().unwrap_or_default();
        if let Some(warning) = Warning::if_behind(self.machine.last_nonce(), decided) {
            self.warn(warning);
        }
        self.handle(Event::Block { height, outcomes });
        if self.state.is_view_wanted {
            self.ask_view().await?;
        }
        self.resume_if_reached().await
    }

    /// Reads the view of the ledger, for all intents that memory or the database has.
    pub(super) async fn ask_view(&mut self) -> Result<(), SequencerError> {
        if !self.state.views.is_empty() {
            return Ok(());
        }
        let restored = self.load().await?;
        let undecided = self.machine.undecided().cloned();
        self.state.viewed = undecided.chain(restored.intents.into_iter().map(|intent| intent.id)).collect();
        (self.state.view, self.state.is_view_wanted) = (None, false);
        let (ledger, intents) = (Arc::clone(&self.ledger), self.state.viewed.iter().cloned().collect());
        self.state.views.spawn(async move { ledger.view(intents).await.map_err(|error| error.to_string()) });
        Ok(())
    }

    pub(super) async fn on_view(&mut self, view: Result<LedgerView, String>) -> Result<(), SequencerError> {
        match view {
            Ok(view) => {
                self.state.view = Some(view);
                self.resume_if_reached().await
            }
            Err(why) => {
                self.state.is_view_wanted = true;
                self.warn(Warning::Ledger(why));
                Ok(())
            }
        }
    }

    /// Hands the view to the machine, if that has seen just the blocks that are in it.
    async fn resume_if_reached(&mut self) -> Result<(), SequencerError> {
        let Some(view) = self.state.view.take() else { return Ok(()) };
        match view.height.cmp(&self.machine.height()) {
            Ordering::Greater => self.state.view = Some(view),
            Ordering::Less => self.state.is_view_wanted = true,
            Ordering::Equal => {
                let mut restored = self.load().await?;
                let DriverState { viewed, .. } = &self.state;
                restored.intents.retain(|it| self.machine.is_undecided(&it.id) || viewed.contains(&it.id));
                self.handle(Event::Resumed { restored, view });
            }
        }
        Ok(())
    }

    /// Reads the database. What is not written yet is written before.
    async fn load(&mut self) -> Result<Restored, SequencerError> {
        self.commit().await?;
        let restored = self.store.load().await.map_err(SequencerError::store)?;
        restored.check(self.keys.me(), self.keys.contract())?;
        Ok(restored)
    }
}
