//! Copies of the state: the checkpoint that is being built, and state transfers.

use super::checkpoint_builder::CheckpointBuilder;
use super::transfer::Transfers;

/// The copies of the state that are being made or received.
#[derive(Default)]
pub(super) struct Copies {
    pub checkpoint_builder: Option<CheckpointBuilder>,
    pub transfers: Transfers,
}
