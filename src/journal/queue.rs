//! What the actor and the journal's two threads share: batches that gather, in order, and a checkpoint.
//!
//! The lock is held for a copy of one record or a swap of buffers, never over a call to the disk. The queue
//! has no bound of its own: it holds what was appended and is not durable, which is
//! [`Figures::backlog_bytes`], and the actor stops taking input by that number.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::histogram::Histogram;
use crate::room::Room;

use super::checkpoint::Checkpoint;
use super::error::JournalError;
use super::format::{FRAME_HEADER, MAX_BODY, RECORD_HEADER, put_record};
use super::writer::LogSize;

/// Records that one write and one sync make durable. The header of the frame is filled in by the writer.
#[derive(Debug)]
pub(super) struct Batch {
    /// A frame: room for its header, then the records.
    pub bytes: Vec<u8>,
    /// Positions of the first and the last record.
    pub first: u64,
    pub last: u64,
}

/// What the writer thread does next.
#[derive(Debug)]
pub(super) enum Work {
    Write(Batch),
    /// A checkpoint of all before this was asked for.
    Rotate,
    /// The checkpoint at this position is durable.
    Truncate {
        position: u64,
        /// Of its file.
        bytes: u64,
    },
    /// There was no room for the checkpoint.
    CheckpointSkipped,
    CheckpointFailed(JournalError),
    Close,
}

/// Counters and gauges of a journal, for the operator.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Figures {
    /// Appended and not yet durable.
    pub backlog_bytes: u64,
    /// Position of the last durable record.
    pub durable: u64,
    pub log: LogSize,
    /// Bytes of records since the last checkpoint: what a restart would replay.
    pub since_checkpoint: u64,
    pub last_checkpoint: Option<LastCheckpoint>,
    pub room: Room,
    /// A batch found no room and is tried again.
    pub waits_for_room: bool,
    /// Free on its disk when last looked, which is every second. `None` if it does not say.
    pub free_bytes: Option<u64>,
    /// Batches made durable since the start; each is one write and one sync.
    pub batches: u64,
    /// Bytes of those.
    pub written_bytes: u64,
    /// Time they took.
    pub write_time: Duration,
    /// Checkpoints made since the start.
    pub checkpoints: u64,
    /// Checkpoints that there was no room for.
    pub checkpoints_skipped: u64,
}

/// The newest checkpoint on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastCheckpoint {
    /// Of the last record that it covers.
    pub position: u64,
    /// Of its file.
    pub bytes: u64,
    /// When it was made; `None`: before this start.
    pub made: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Running,
    /// No new checkpoint is begun.
    FinishingCheckpoint,
    /// What is queued is written, then the writer ends.
    Closing,
    /// A write or sync failed: nothing is written or reported durable any more.
    Failed,
}

struct State {
    ready: VecDeque<Work>,
    gathering: Batch,
    /// A buffer to use again.
    spare: Vec<u8>,
    checkpoint: Option<Checkpoint>,
    /// Bytes of the records that only the checkpoint asked for covers.
    covering: u64,
    phase: Phase,
    figures: Figures,
    sync_times: Histogram,
}

pub(super) struct Queue {
    state: Mutex<State>,
    /// The writer thread waits for this.
    work: Condvar,
    /// The checkpoint thread waits for this: something became durable, a checkpoint came, the phase changed.
    progress: Condvar,
}

impl Batch {
    pub fn new(mut bytes: Vec<u8>, first: u64) -> Batch {
        bytes.clear();
        bytes.resize(FRAME_HEADER, 0);
        Batch { bytes, first, last: first - 1 }
    }

    pub fn is_empty(&self) -> bool {
        self.last < self.first
    }

    pub fn push(&mut self, record: &[u8]) {
        put_record(&mut self.bytes, record);
        self.last += 1;
    }

    fn has_room(&self, record: &[u8]) -> bool {
        self.bytes.len() - FRAME_HEADER + RECORD_HEADER + record.len() <= MAX_BODY
    }
}

impl State {
    /// Closes the batch that gathers, if there is one.
    fn cut(&mut self) {
        if !self.gathering.is_empty() {
            let batch = self.take_gathering();
            self.ready.push_back(Work::Write(batch));
        }
    }

    fn take_gathering(&mut self) -> Batch {
        let empty = Batch::new(std::mem::take(&mut self.spare), self.gathering.last + 1);
        std::mem::replace(&mut self.gathering, empty)
    }
}

impl Queue {
    /// `next`: the position of the next record. `figures`: of what was found.
    pub fn new(next: u64, figures: Figures) -> Queue {
        let figures = Figures { durable: next - 1, ..figures };
        let state = State {
            ready: VecDeque::new(),
            gathering: Batch::new(Vec::new(), next),
            spare: Vec::new(),
            checkpoint: None,
            covering: 0,
            phase: Phase::Running,
            figures,
            sync_times: Histogram::default(),
        };
        Queue { state: Mutex::new(state), work: Condvar::new(), progress: Condvar::new() }
    }

    /// No code that holds the lock can leave the state half changed, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn append(&self, position: u64, record: &[u8]) {
        let mut state = self.lock();
        if state.phase == Phase::Failed {
            return;
        }
        assert_eq!(position, state.gathering.last + 1, "positions come without gaps");
        if !state.gathering.has_room(record) {
            state.cut();
        }
        state.gathering.push(record);
        state.figures.backlog_bytes += record_bytes(record);
        state.figures.since_checkpoint += record_bytes(record);
        drop(state);
        self.work.notify_one();
    }

    /// Replaces a checkpoint that is not begun.
    pub fn checkpoint(&self, checkpoint: Checkpoint) {
        let mut state = self.lock();
        if state.phase == Phase::Failed {
            return;
        }
        let appended = state.gathering.last;
        assert!(checkpoint.position <= appended, "a checkpoint at {} of {appended}", checkpoint.position);
        state.cut();
        state.ready.push_back(Work::Rotate);
        state.checkpoint = Some(checkpoint);
        state.covering += std::mem::take(&mut state.figures.since_checkpoint);
        drop(state);
        self.work.notify_one();
        self.progress.notify_all();
    }

    pub fn figures(&self) -> Figures {
        self.lock().figures
    }

    /// How long batches took to become durable, a write and a sync each. Larger than [`Figures`], which are asked for at
    /// every step.
    pub fn sync_times(&self) -> Histogram {
        self.lock().sync_times
    }

    /// Blocks the writer thread until there is something to do, or for that long: then `None`.
    pub fn next_work(&self, at_most: Duration) -> Option<Work> {
        let state = self.lock();
        let idle = |state: &mut State| {
            state.ready.is_empty() && state.gathering.is_empty() && state.phase != Phase::Closing
        };
        let waited = self.work.wait_timeout_while(state, at_most, idle);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if let Some(work) = state.ready.pop_front() {
            return Some(work);
        }
        if !state.gathering.is_empty() {
            return Some(Work::Write(state.take_gathering()));
        }
        (state.phase == Phase::Closing).then_some(Work::Close)
    }

    /// While a batch finds no room: as [`Queue::next_work`], but only what needs none. What is after that batch in the queue
    /// may go before it, as it speaks of what is durable.
    pub fn next_work_without_room(&self, at_most: Duration) -> Option<Work> {
        let needs_none = |work: &Work| !matches!(work, Work::Write(_) | Work::Rotate);
        let idle = |state: &mut State| !state.ready.iter().any(needs_none) && state.phase != Phase::Closing;
        let waited = self.work.wait_timeout_while(self.lock(), at_most, idle);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match state.ready.iter().position(needs_none) {
            Some(index) => state.ready.remove(index),
            None => (state.phase == Phase::Closing).then_some(Work::Close),
        }
    }

    /// How much is free on the disk.
    pub fn note_room(&self, room: Room, free_bytes: Option<u64>) {
        let mut state = self.lock();
        state.figures.room = room;
        state.figures.free_bytes = free_bytes;
    }

    pub fn note_waiting_for_room(&self) {
        self.lock().figures.waits_for_room = true;
    }

    /// `batch` is durable.
    pub fn written(&self, batch: Batch, took: Duration, log: LogSize) {
        let mut state = self.lock();
        let figures = &mut state.figures;
        figures.durable = batch.last;
        figures.waits_for_room = false;
        figures.backlog_bytes -= (batch.bytes.len() - FRAME_HEADER) as u64;
        figures.batches += 1;
        figures.written_bytes += batch.bytes.len() as u64;
        figures.write_time += took;
        figures.log = log;
        state.sync_times.record(took);
        state.spare = batch.bytes;
        drop(state);
        self.progress.notify_all();
    }

    /// What a checkpoint covers is deleted.
    pub fn truncated(&self, checkpoint: LastCheckpoint, log: LogSize) {
        let mut state = self.lock();
        state.figures.log = log;
        state.figures.checkpoints += 1;
        state.figures.last_checkpoint = Some(checkpoint);
        state.covering = 0;
    }

    /// There was no room for a checkpoint: the one before it stays the last.
    pub fn skipped(&self) {
        let mut state = self.lock();
        state.figures.checkpoints_skipped += 1;
        state.figures.since_checkpoint += std::mem::take(&mut state.covering);
    }

    /// Blocks the checkpoint thread until there is a checkpoint of durable records; `None`: no more.
    pub fn next_checkpoint(&self) -> Option<Checkpoint> {
        let mut state = self.lock();
        while state.phase == Phase::Running {
            let durable = state.figures.durable;
            if let Some(checkpoint) = state.checkpoint.take_if(|checkpoint| checkpoint.position <= durable) {
                return Some(checkpoint);
            }
            state = self.progress.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// The checkpoint thread is done with one.
    pub fn push(&self, work: Work) {
        self.lock().ready.push_back(work);
        self.work.notify_one();
    }

    pub fn finish_checkpoint(&self) {
        self.advance(Phase::FinishingCheckpoint);
    }

    pub fn close(&self) {
        self.advance(Phase::Closing);
    }

    fn advance(&self, phase: Phase) {
        let mut state = self.lock();
        if state.phase != Phase::Failed {
            state.phase = phase;
        }
        drop(state);
        self.work.notify_all();
        self.progress.notify_all();
    }

    /// Nothing more is written.
    pub fn fail(&self) {
        let mut state = self.lock();
        state.phase = Phase::Failed;
        state.ready.clear();
        state.checkpoint = None;
        drop(state);
        self.progress.notify_all();
    }

    pub fn failed(&self) -> bool {
        self.lock().phase == Phase::Failed
    }
}

/// Bytes that a record takes in a batch.
pub(super) fn record_bytes(record: &[u8]) -> u64 {
    (RECORD_HEADER + record.len()) as u64
}
