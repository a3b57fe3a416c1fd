//! When state goes to disk: one checkpoint at a time, encoded off the actor's thread.

use std::future::pending;
use std::panic::resume_unwind;

use tokio::task::{JoinHandle, spawn_blocking};

use super::start::StopError;
use crate::replica::{Checkpoint, Position};
use crate::wire;

/// The one checkpoint there can be.
#[derive(Default)]
pub(super) enum Checkpoints {
    #[default]
    Idle,
    /// The machine gathers it.
    Wanted,
    Encoding {
        position: Position,
        task: JoinHandle<Result<Vec<u8>, StopError>>,
    },
    /// The journal has it.
    Writing,
}

impl Checkpoints {
    pub(super) fn are_idle(&self) -> bool {
        matches!(self, Checkpoints::Idle)
    }

    pub(super) fn wanted(&mut self) {
        *self = Checkpoints::Wanted;
    }

    pub(super) fn start(&mut self, checkpoint: Box<Checkpoint>) {
        let position = checkpoint.position;
        let task = spawn_blocking(move || wire::encode_checkpoint(&checkpoint).map_err(StopError::Encode));
        *self = Checkpoints::Encoding { position, task };
    }

    /// The encoded checkpoint, once. Waits for ever if there is none. May be dropped while it waits.
    pub(super) async fn encoded(&mut self) -> (Position, Result<Vec<u8>, StopError>) {
        let Checkpoints::Encoding { position, task } = self else { return pending().await };
        let position = *position;
        let state = match task.await {
            Ok(state) => state,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // Only the end of the runtime cancels it, and that is the end of the actor.
                Err(_) => return pending().await,
            },
        };
        *self = Checkpoints::Writing;
        (position, state)
    }

    /// The journal has kept it.
    pub(super) fn done(&mut self) {
        if matches!(self, Checkpoints::Writing) {
            *self = Checkpoints::Idle;
        }
    }
}
