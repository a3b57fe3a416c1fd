//! Copies of the state: the checkpoint that is being built, and state transfers.

use super::transfer::Transfers;
use crate::replica::record::checkpoint_builder::CheckpointBuilder;

/// The copies of the state that are being made or received.
#[derive(Default)]
pub(in crate::replica) struct Copies {
    pub checkpoint_builder: Option<CheckpointBuilder>,
    pub transfers: Transfers,
}

impl Copies {
    /// Returns the number of readers of the locks: checkpoints and state transfers in progress.
    pub fn readers(&self) -> usize {
        let builder = self.checkpoint_builder.as_ref().filter(|builder| builder.reader.is_some());
        builder.into_iter().count() + self.transfers.readers()
    }
}
