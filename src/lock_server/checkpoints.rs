//! Decides when a checkpoint is written: one at a time, encoded on another thread.

use std::future::pending;
use std::panic::resume_unwind;
use std::time::Duration;

use tokio::task::{JoinHandle, spawn_blocking};

use super::journal_inbox::CheckpointEnd;
use super::start::StopError;
use crate::base::capacity::DiskSpace;
use crate::base::time::Instant;
use crate::journal::Figures;
use crate::replica::{Checkpoint, Position};

/// The pause after a checkpoint for which there was no room.
const AFTER_SKIPPED: Duration = Duration::from_secs(60);

/// The state of the one checkpoint that can be in progress.
pub(super) enum Checkpoints {
    /// The next checkpoint may start from then on.
    Idle {
        since: Instant,
    },
    /// The machine gathers the state.
    Wanted,
    Encoding {
        position: Position,
        task: JoinHandle<Result<Vec<u8>, StopError>>,
    },
    /// The journal writes it.
    Writing,
}

impl Default for Checkpoints {
    fn default() -> Checkpoints {
        Checkpoints::Idle { since: Instant::ZERO }
    }
}

impl Checkpoints {
    /// Returns true if a checkpoint shall be made: when the log has grown enough, or when the disk is nearly
    /// full and a checkpoint would free more bytes than it takes.
    pub(super) fn are_due(&self, figures: &Figures, after: u64, now: Instant) -> bool {
        let last = figures.last_checkpoint.map_or(0, |checkpoint| checkpoint.bytes);
        let fits = figures.free_bytes.is_none_or(|free| free > last);
        let room_is_short = figures.disk_space != DiskSpace::Enough && figures.log.reclaimable > last && fits;
        let is_idle = matches!(self, Checkpoints::Idle { since } if *since <= now);
        is_idle && (figures.since_checkpoint >= after || room_is_short)
    }

    pub(super) fn wanted(&mut self) {
        *self = Checkpoints::Wanted;
    }

    pub(super) fn start(&mut self, checkpoint: Box<Checkpoint>) {
        let position = checkpoint.position;
        let task = spawn_blocking(move || checkpoint.encode().map_err(StopError::Encode));
        *self = Checkpoints::Encoding { position, task };
    }

    /// Waits for the encoded checkpoint and returns it once. Pending for ever if there is none. Cancel safe.
    pub(super) async fn encoded(&mut self) -> (Position, Result<Vec<u8>, StopError>) {
        let Checkpoints::Encoding { position, task } = self else { return pending().await };
        let position = *position;
        let state = match task.await {
            Ok(state) => state,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // Only the end of the runtime cancels the task, and that is also the end of the actor.
                Err(_) => return pending().await,
            },
        };
        *self = Checkpoints::Writing;
        (position, state)
    }

    /// Notes that the journal has written or skipped the checkpoint.
    pub(super) fn done(&mut self, end: CheckpointEnd, now: Instant) {
        if matches!(self, Checkpoints::Writing) {
            let since = match end {
                CheckpointEnd::Kept => now,
                CheckpointEnd::Skipped => now + AFTER_SKIPPED,
            };
            *self = Checkpoints::Idle { since };
        }
    }
}
