//! What the actor and the journal's two threads share: batches that gather, in order, and a checkpoint.
//!
//! The lock is held for a copy of one record or a swap of buffers, never over a call to the disk. The queue
//! has no bound of its own: it holds what was appended and is not durable, which is
//! [`super::Journal::backlog_bytes`], and the actor stops taking input by that number.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::checkpoint::Checkpoint;
use super::error::JournalError;
use super::format::{FRAME_HEADER, MAX_BODY, RECORD_HEADER, put_record};

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
    },
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
    /// Files of the log.
    pub segments: u64,
    /// Batches made durable since the start; each is one write and one sync.
    pub batches: u64,
    /// Bytes of those.
    pub written_bytes: u64,
    /// Time they took.
    pub write_time: Duration,
    /// Checkpoints made since the start.
    pub checkpoints: u64,
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
    phase: Phase,
    figures: Figures,
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
    /// `next`: the position of the next record.
    pub fn new(next: u64, segments: u64) -> Queue {
        let figures = Figures { durable: next - 1, segments, ..Figures::default() };
        let state = State {
            ready: VecDeque::new(),
            gathering: Batch::new(Vec::new(), next),
            spare: Vec::new(),
            checkpoint: None,
            phase: Phase::Running,
            figures,
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
        drop(state);
        self.work.notify_one();
        self.progress.notify_all();
    }

    pub fn figures(&self) -> Figures {
        self.lock().figures
    }

    /// Blocks the writer thread until there is something to do.
    pub fn next_work(&self) -> Work {
        let mut state = self.lock();
        loop {
            if let Some(work) = state.ready.pop_front() {
                return work;
            }
            if !state.gathering.is_empty() {
                return Work::Write(state.take_gathering());
            }
            if state.phase == Phase::Closing {
                return Work::Close;
            }
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// `batch` is durable.
    pub fn written(&self, batch: Batch, took: Duration, segments: u64) {
        let mut state = self.lock();
        let figures = &mut state.figures;
        figures.durable = batch.last;
        figures.backlog_bytes -= (batch.bytes.len() - FRAME_HEADER) as u64;
        figures.batches += 1;
        figures.written_bytes += batch.bytes.len() as u64;
        figures.write_time += took;
        figures.segments = segments;
        state.spare = batch.bytes;
        drop(state);
        self.progress.notify_all();
    }

    /// What a checkpoint covers is deleted.
    pub fn truncated(&self, segments: u64) {
        let mut state = self.lock();
        state.figures.segments = segments;
        state.figures.checkpoints += 1;
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
