//! Everything that leaves the machine: records, effects and counters, and the positions that they wait for
//! (`docs/algorithm.md#43-output-commit`).

use std::collections::VecDeque;

use super::call::Counts;
use super::effect::Effect;
use super::output_commit::OutputCommit;
use geolock_api::names::Position;

/// The outputs of a datacenter.
#[derive(Default)]
pub(super) struct Outputs {
    pub effects: VecDeque<Effect>,
    pub output_commit: OutputCommit,
    /// The position of the last record that was emitted to the journal.
    pub position: Position,
    /// The journal's last announced durable position; steps process it in portions.
    pub durable_to: Position,
    /// Position of the last end of a lease that, since the restart, never said which locks it held. Any grant
    /// may conflict with it, so every grant waits for it.
    pub unaccounted_end: Position,
    /// Position of the last record that this disk had lost and regained, mostly own entries. Any lock may
    /// have been used under it, so every grant waits for it (`docs/algorithm.md#95-regained-entries`).
    pub regained: Position,
    /// Entries may have become sendable.
    pub pump: bool,
    pub counts: Counts,
}
