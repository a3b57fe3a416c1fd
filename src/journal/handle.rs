//! The handle of the actor: appends without blocking; reports later which records are durable.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crate::base::capacity::DiskSpace;
use crate::base::histogram::Histogram;
use geolock_api::names::{ClusterId, DcId};

use super::checkpoint::Checkpoint;
use super::data_dir;
use super::disk::{Disk, RealDisk};
use super::error::{Identity, JournalError};
use super::queue::{Figures, LastCheckpoint, Queue};
use super::records::Records;
use super::recovery::recover;
use super::threads::{WriterThread, run_checkpoints};

/// Bounds of [`JournalOptions::segment_bytes`].
pub const MIN_SEGMENT_BYTES: u64 = 1 << 20;
pub const MAX_SEGMENT_BYTES: u64 = 1 << 30;

/// Options of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalOptions {
    /// The data directory; created if need be, readable by its owner only. One server at a time.
    pub dir: PathBuf,
    /// The owner of the data. A directory of another cluster or datacenter is refused.
    pub cluster: ClusterId,
    pub dc: DcId,
    /// A segment of the log is full at this size, in bytes. Default 64 MiB, [`MIN_SEGMENT_BYTES`] to
    /// [`MAX_SEGMENT_BYTES`]. Disk space is released in whole segments; recovery reads one segment at a time
    /// into memory.
    pub segment_bytes: u64,
    /// Bytes to keep free on the disk. Default 64 MiB: the bytes that may wait for the disk before the server
    /// accepts no more input (`LockServerOptions::max_journal_backlog`). With less free, the server accepts
    /// no commits, so that records accepted before still find room; with less than half of it, it accepts
    /// nothing from other datacenters either. 0 to 64 GiB; with 0 it continues until a write fails.
    pub min_free_bytes: u64,
}

impl JournalOptions {
    pub fn new(dir: PathBuf, cluster: ClusterId, dc: DcId) -> JournalOptions {
        JournalOptions { dir, cluster, dc, segment_bytes: 64 << 20, min_free_bytes: 64 << 20 }
    }
}

/// An event of a journal for its sink, in the order of positions.
#[derive(Debug)]
pub enum JournalEvent {
    /// All records up to this position are durable.
    Durable(u64),
    /// The checkpoint at `position` is durable, and the log files that it covers are deleted.
    CheckpointDone { position: u64, bytes_freed: u64 },
    /// There was no room for the latest checkpoint; the log stays as it is.
    CheckpointSkipped,
    /// The disk space has changed; at first it is [`DiskSpace::Enough`]. While it is [`DiskSpace::Full`],
    /// appended records may stay in memory: append little.
    DiskSpace(DiskSpace),
    /// Reported once and last: nothing more is written. Stop the process. A restart finds every record that
    /// was reported durable.
    Failed(JournalError),
}

/// The content of a data directory.
#[derive(Debug)]
pub struct Recovered {
    /// The newest checkpoint, with its position.
    pub checkpoint: Option<(u64, Vec<u8>)>,
    /// The records after it, in order and without gaps: all that were ever reported durable, perhaps some
    /// more. They are durable now. They are read from disk as they are iterated: finish before the next
    /// checkpoint.
    pub records: Records,
    /// The directory is marked as a copy of one that may have continued elsewhere. The mark is removed when
    /// the first batch is durable: the first appended record has to note it.
    pub restored: bool,
    /// The directory contains the file `keep-history`. It is removed when the next record is durable.
    pub resolved: bool,
}

/// An open journal: the only owner of its data directory. Dropping it closes it.
pub struct Journal {
    queue: Arc<Queue>,
    /// `None` once it is closed.
    threads: Option<Threads>,
}

/// The directory of a journal, with its options.
pub(super) struct Place<D> {
    pub disk: D,
    pub identity: Identity,
    pub segment_bytes: u64,
    pub min_free_bytes: u64,
}

struct Threads {
    writer: JoinHandle<()>,
    checkpoints: JoinHandle<()>,
    /// Held until both threads have ended.
    lock: Option<File>,
}

impl Journal {
    /// Locks the directory, recovers its content, and starts two threads. `sink` is called on one of them and
    /// must not block: the next batch waits for it.
    ///
    /// # Errors
    /// An error leaves the directory as it was, and says how to resolve it.
    pub fn open(
        options: JournalOptions,
        sink: impl Fn(JournalEvent) + Send + 'static,
    ) -> Result<(Journal, Recovered), JournalError> {
        assert!(options.segment_bytes <= MAX_SEGMENT_BYTES, "the configuration bounds segments");
        let lock = data_dir::own(&options.dir)?;
        let identity = Identity { cluster: options.cluster, dc: options.dc };
        let disk = RealDisk::new(options.dir);
        let JournalOptions { segment_bytes, min_free_bytes, .. } = options;
        Journal::open_on(Place { disk, identity, segment_bytes, min_free_bytes }, Some(lock), sink)
    }

    pub(super) fn open_on<D: Disk>(
        place: Place<D>,
        lock: Option<File>,
        sink: impl Fn(JournalEvent) + Send + 'static,
    ) -> Result<(Journal, Recovered), JournalError> {
        let Place { disk, identity, segment_bytes, min_free_bytes } = place;
        let recovery = recover(&disk, identity, segment_bytes)?;
        let (restored, resolved) = (data_dir::is_restored(&disk)?, data_dir::is_resolved(&disk)?);
        let writer = recovery.writer;
        let figures = Figures {
            log: writer.size(),
            since_checkpoint: recovery.since_checkpoint,
            last_checkpoint: recovery.checkpoint.as_ref().map(|checkpoint| LastCheckpoint {
                position: checkpoint.position,
                bytes: checkpoint.bytes(),
                made: None,
            }),
            ..Figures::default()
        };
        let queue = Arc::new(Queue::new(writer.next, figures));
        let failed = |source| JournalError::Io { doing: "start a thread for", path: disk.path(""), source };
        let checkpoints = {
            let (queue, disk) = (Arc::clone(&queue), disk.clone());
            let run = move || run_checkpoints(&disk, identity, &queue);
            thread::Builder::new().name("checkpoints".into()).spawn(run).map_err(failed)?
        };
        let writer = {
            let queue = Arc::clone(&queue);
            let disk_space = DiskSpace::default();
            let run = move || {
                WriterThread { writer, queue: &queue, sink, min_free_bytes, disk_space, restored, resolved }
                    .run()
            };
            thread::Builder::new().name("journal".into()).spawn(run)
        };
        let writer = match writer {
            Ok(writer) => writer,
            Err(source) => {
                queue.close();
                join(checkpoints);
                return Err(failed(source));
            }
        };
        let checkpoint = recovery.checkpoint.map(|checkpoint| (checkpoint.position, checkpoint.body));
        let threads = Some(Threads { writer, checkpoints, lock });
        Ok((
            Journal { queue, threads },
            Recovered { checkpoint, records: recovery.records, restored, resolved },
        ))
    }

    /// Queues a record; never waits for the disk. It is reported durable later, perhaps together with others.
    /// Does nothing after a failure.
    ///
    /// # Panics
    /// If the position does not follow the last one (or, at first, the last recovered one or 0), or if the
    /// record is longer than [`crate::base::wire::MAX_FRAME`] bytes, which the codec excludes.
    pub fn append(&mut self, position: u64, record: &[u8]) {
        self.queue.append(position, record);
    }

    /// Writes a checkpoint beside the log: the state after all records up to `position`, which are all
    /// appended. Answered by [`JournalEvent::CheckpointDone`] or [`JournalEvent::CheckpointSkipped`], unless
    /// a later checkpoint is requested before this one is begun.
    pub fn checkpoint(&mut self, position: u64, body: Vec<u8>) {
        self.queue.checkpoint(Checkpoint { position, body });
    }

    /// Returns counters and gauges. Records that are appended and not durable yet are all in memory, and
    /// nothing else bounds them: accept no input from clients while [`Figures::backlog_bytes`] is large.
    pub fn figures(&self) -> Figures {
        self.queue.figures()
    }

    /// Returns how long batches took to become durable since the start: a write and a sync each.
    pub fn sync_times(&self) -> Histogram {
        self.queue.sync_times()
    }

    /// Makes all appended records durable and ends the threads; blocks until then. A checkpoint that is being
    /// written is finished, one that is not begun is dropped.
    ///
    /// # Errors
    /// If the journal had failed, or has no room.
    pub fn close(mut self) -> Result<(), JournalError> {
        self.end();
        if self.queue.failed() { Err(JournalError::Stopped) } else { Ok(()) }
    }

    fn end(&mut self) {
        let Some(threads) = self.threads.take() else { return };
        self.queue.finish_checkpoint();
        join(threads.checkpoints);
        self.queue.close();
        join(threads.writer);
        drop(threads.lock);
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.end();
    }
}

/// Propagates a panic of the thread, unless this thread is already panicking.
fn join(thread: JoinHandle<()>) {
    if let Err(panic) = thread.join()
        && !thread::panicking()
    {
        std::panic::resume_unwind(panic);
    }
}
