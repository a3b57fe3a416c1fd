//! State shared by the actor and the journal's two threads: batches in order, and a checkpoint.
//!
//! The lock is held for a copy of one record or a swap of buffers, never during a call to the disk. The queue
//! has no bound of its own: it holds the records that are appended and not durable, counted by
//! [`Figures::backlog_bytes`], and the actor accepts no input while that number is large.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::base::capacity::DiskSpace;
use crate::base::histogram::Histogram;

use super::checkpoint::Checkpoint;
use super::error::JournalError;
use super::format::{FRAME_HEADER, MAX_BODY, RECORD_HEADER, put_record};
use super::writer::LogSize;

/// Records that one write and one sync make durable. The writer fills in the header of the frame.
#[derive(Debug)]
pub(super) struct Batch {
    /// A frame: space for its header, then the records.
    pub bytes: Vec<u8>,
    /// Positions of the first and the last record.
    pub first: u64,
    pub last: u64,
}

/// The next job of the writer thread.
#[derive(Debug)]
pub(super) enum Work {
    Write(Batch),
    /// A checkpoint of all records before this was requested.
    Rotate,
    /// The checkpoint at this position is durable.
    Truncate {
        position: u64,
        /// Size of its file.
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
    /// Bytes that are appended and not yet durable.
    pub backlog_bytes: u64,
    /// Position of the last durable record.
    pub durable: u64,
    pub log: LogSize,
    /// Bytes of records since the last checkpoint, which a restart would replay.
    pub since_checkpoint: u64,
    pub last_checkpoint: Option<LastCheckpoint>,
    pub disk_space: DiskSpace,
    /// A batch found no room and is retried.
    pub waiting_for_disk_space: bool,
    /// Bytes free on the disk at the last check, which is made every second. `None` if the disk does not
    /// report it.
    pub free_bytes: Option<u64>,
    /// Batches made durable since the start; each is one write and one sync.
    pub batches: u64,
    /// Bytes of those batches.
    pub written_bytes: u64,
    /// Time that they took.
    pub write_time: Duration,
    /// Checkpoints written since the start.
    pub checkpoints: u64,
    /// Checkpoints for which there was no room.
    pub checkpoints_skipped: u64,
}

/// The newest checkpoint on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastCheckpoint {
    /// Position of the last record that it covers.
    pub position: u64,
    /// Size of its file.
    pub bytes: u64,
    /// When it was written; `None` if before this start.
    pub made: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Running,
    /// No new checkpoint is begun.
    FinishingCheckpoint,
    /// Queued records are written, then the writer ends.
    Closing,
    /// A write or sync failed: nothing is written or reported durable any more.
    Failed,
}

struct State {
    ready: VecDeque<Work>,
    gathering: Batch,
    /// A buffer for reuse.
    spare: Vec<u8>,
    checkpoint: Option<Checkpoint>,
    /// Bytes of the records that are covered by the requested checkpoint only.
    covering: u64,
    phase: Phase,
    figures: Figures,
    sync_times: Histogram,
}

pub(super) struct Queue {
    state: Mutex<State>,
    /// The writer thread waits on this.
    work: Condvar,
    /// The checkpoint thread waits on this: a record became durable, a checkpoint was requested, or the phase
    /// changed.
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
    /// Closes the batch in progress, if it has records.
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
    /// `next`: the position of the next record. `figures`: those of the recovered log.
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

    /// No code that holds the lock can leave the state inconsistent, so a poisoned lock is used all the same.
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

    /// Requests a checkpoint. Replaces one that is not begun.
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

    /// Returns how long batches took to become durable, a write and a sync each. It is apart from [`Figures`]
    /// because it is larger, and those are read at every step.
    pub fn sync_times(&self) -> Histogram {
        self.lock().sync_times
    }

    /// Blocks the writer thread until there is a job, at most for `at_most`: then `None`.
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

    /// As [`Queue::next_work`] while a batch finds no room: returns only jobs that need no room. They may
    /// overtake that batch in the queue, because they are about durable records.
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

    /// Notes how much is free on the disk.
    pub fn note_disk_space(&self, space: DiskSpace, free_bytes: Option<u64>) {
        let mut state = self.lock();
        state.figures.disk_space = space;
        state.figures.free_bytes = free_bytes;
    }

    pub fn note_waiting_for_disk_space(&self) {
        self.lock().figures.waiting_for_disk_space = true;
    }

    /// Notes that `batch` is durable.
    pub fn written(&self, batch: Batch, took: Duration, log: LogSize) {
        let mut state = self.lock();
        let figures = &mut state.figures;
        figures.durable = batch.last;
        figures.waiting_for_disk_space = false;
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

    /// Notes that the records covered by a checkpoint are deleted.
    pub fn truncated(&self, checkpoint: LastCheckpoint, log: LogSize) {
        let mut state = self.lock();
        state.figures.log = log;
        state.figures.checkpoints += 1;
        state.figures.last_checkpoint = Some(checkpoint);
        state.covering = 0;
    }

    /// Notes that there was no room for a checkpoint: the one before it stays the last.
    pub fn skipped(&self) {
        let mut state = self.lock();
        state.figures.checkpoints_skipped += 1;
        state.figures.since_checkpoint += std::mem::take(&mut state.covering);
    }

    /// Blocks the checkpoint thread until there is a checkpoint of durable records; `None` if there will be
    /// no more.
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

    /// Adds the checkpoint thread's result as a job of the writer thread.
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

    /// Stops everything: nothing more is written.
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

/// Returns how many bytes a record takes in a batch.
pub(super) fn record_bytes(record: &[u8]) -> u64 {
    (RECORD_HEADER + record.len()) as u64
}
