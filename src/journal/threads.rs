//! The two threads. Only the writer thread touches the log and calls the sink, so events are in order and
//! nothing follows a failure. Checkpoints have their own thread: one may take seconds, and the log must not
//! wait for it.
//!
//! **A full disk** is not a failure (`docs/algorithm/recovery.md#7-full-disk-overload`). Before the disk is
//! full, when less than the reserve is free, the sink is told ([`DiskSpace::Low`], [`DiskSpace::Full`]) so
//! that fewer records arrive. A batch that finds no room is kept and retried; meanwhile, room that
//! checkpoints free is released at once.

use std::time::{Duration, Instant};

use crate::base::capacity::DiskSpace;

use super::data_dir::{RESOLVED, RESTORED, forget};
use super::disk::{Disk, no_room};
use super::error::{Identity, JournalError};
use super::handle::JournalEvent;
use super::queue::{Batch, LastCheckpoint, Queue, Work};
use super::writer::{Tried, Writer};

/// How often the free space is checked although nothing is written, and how often a batch that found no room
/// is retried.
const LOOK: Duration = Duration::from_secs(1);

/// The writer thread.
pub(super) struct WriterThread<'a, D: Disk, S> {
    pub writer: Writer<D>,
    pub queue: &'a Queue,
    pub sink: S,
    /// Bytes to keep free.
    pub min_free_bytes: u64,
    /// The disk space last reported to the sink.
    pub disk_space: DiskSpace,
    /// The directory is marked as a copy.
    pub restored: bool,
    /// The directory is marked as the history to keep.
    pub resolved: bool,
}

impl<D: Disk, S: Fn(JournalEvent)> WriterThread<'_, D, S> {
    /// Runs until the queue is closed or something fails. A failure is reported once and ends the thread.
    pub fn run(mut self) {
        if let Err(error) = self.work() {
            self.queue.fail();
            (self.sink)(JournalEvent::Failed(error));
        }
    }

    fn work(&mut self) -> Result<(), JournalError> {
        loop {
            let free = self.free();
            self.note_disk_space(
                self.disk_space.when_free(free.unwrap_or(u64::MAX), self.min_free_bytes),
                free,
            );
            match self.queue.next_work(LOOK) {
                Some(Work::Close) => return Ok(()),
                Some(work) => self.perform(work)?,
                None => {}
            }
        }
    }

    fn perform(&mut self, work: Work) -> Result<(), JournalError> {
        match work {
            Work::Write(batch) => self.write(batch)?,
            Work::Rotate => self.writer.rotate_for_checkpoint()?,
            Work::Truncate { position, bytes } => {
                let bytes_freed = self.writer.truncate(position)?;
                let checkpoint = LastCheckpoint { position, bytes, made: Some(Instant::now()) };
                self.queue.truncated(checkpoint, self.writer.size());
                (self.sink)(JournalEvent::CheckpointDone { position, bytes_freed });
            }
            Work::CheckpointSkipped => {
                self.queue.skipped();
                (self.sink)(JournalEvent::CheckpointSkipped);
            }
            Work::CheckpointFailed(error) => return Err(error),
            Work::Close => {}
        }
        Ok(())
    }

    /// Returns when the batch is durable, however long there is no room for it.
    fn write(&mut self, mut batch: Batch) -> Result<(), JournalError> {
        let mut start = Instant::now();
        while self.writer.write(&mut batch)? == Tried::NoRoom {
            self.wait_for_room(batch.bytes.len() as u64)?;
            start = Instant::now();
        }
        if std::mem::take(&mut self.restored) {
            forget(&self.writer.disk, RESTORED)?;
        }
        if std::mem::take(&mut self.resolved) {
            forget(&self.writer.disk, RESOLVED)?;
        }
        let position = batch.last;
        self.queue.written(batch, start.elapsed(), self.writer.size());
        (self.sink)(JournalEvent::Durable(position));
        Ok(())
    }

    /// Waits until there may be room for that many bytes. Does not wait while the journal closes: the sink
    /// could not be told any more that the batch is durable.
    fn wait_for_room(&mut self, bytes: u64) -> Result<(), JournalError> {
        self.queue.note_waiting_for_disk_space();
        if self.writer.disk.is_out_of_inodes() {
            tracing::error!(
                "the file system of the data directory has no inode left (df -i): remove files from it"
            );
        }
        loop {
            let free = self.free();
            self.note_disk_space(DiskSpace::Full, free);
            match self.queue.next_work_without_room(LOOK) {
                Some(Work::Close) => return Err(no_room(&self.writer.disk, "")),
                Some(work) => self.perform(work)?,
                None => {}
            }
            if self.free().is_none_or(|free| free >= bytes) {
                return Ok(());
            }
        }
    }

    /// Returns the free bytes; `None` if the disk does not report them: then only writes show that it is
    /// full.
    fn free(&self) -> Option<u64> {
        self.writer.disk.free().ok().filter(|free| *free < u64::MAX)
    }

    fn note_disk_space(&mut self, space: DiskSpace, free: Option<u64>) {
        self.queue.note_disk_space(space, free);
        if space != self.disk_space {
            self.disk_space = space;
            (self.sink)(JournalEvent::DiskSpace(space));
        }
    }
}

/// Runs until no new checkpoint is to be begun, or one fails.
pub(super) fn run_checkpoints<D: Disk>(disk: &D, identity: Identity, queue: &Queue) {
    while let Some(checkpoint) = queue.next_checkpoint() {
        let work = match checkpoint.write(disk, identity) {
            Ok(Tried::Done) => Work::Truncate { position: checkpoint.position, bytes: checkpoint.bytes() },
            Ok(Tried::NoRoom) => Work::CheckpointSkipped,
            Err(error) => return queue.push(Work::CheckpointFailed(error)),
        };
        queue.push(work);
    }
}
