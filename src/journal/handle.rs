//! What the actor holds: append without waiting, hear later what is durable.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crate::histogram::Histogram;
use crate::names::{ClusterId, DcId};
use crate::room::Room;

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
    /// Whose data it is. A directory of another cluster or datacenter is refused.
    pub cluster: ClusterId,
    pub dc: DcId,
    /// A segment of the log is full at that size. Default 64 MiB, [`MIN_SEGMENT_BYTES`] to
    /// [`MAX_SEGMENT_BYTES`]. Disk space is given back in whole segments; one segment at a time is read into memory
    /// at recovery.
    pub segment_bytes: u64,
    /// How much shall be free on its disk. Default 64 MiB, which is what may wait for the disk before no input is taken
    /// (`LockServerOptions::max_journal_backlog`): with less free the server takes no commits, so that what it had taken
    /// before still finds room; with less than half nothing from other datacenters either. 0 to 64 GiB; with 0 it goes on
    /// until a write fails.
    pub reserve: u64,
}

impl JournalOptions {
    pub fn new(dir: PathBuf, cluster: ClusterId, dc: DcId) -> JournalOptions {
        JournalOptions { dir, cluster, dc, segment_bytes: 64 << 20, reserve: 64 << 20 }
    }
}

/// What a journal tells its sink, in this order of positions.
#[derive(Debug)]
pub enum JournalEvent {
    /// All records up to this position are durable.
    Durable(u64),
    /// The checkpoint at `position` is durable, and the log files that it covers are deleted.
    CheckpointDone { position: u64, bytes_freed: u64 },
    /// There was no room for the checkpoint asked for last; the log stays as it is.
    CheckpointSkipped,
    /// How much room there is now; at first it is [`Room::Enough`]. While it is [`Room::Full`] what is appended may stay in
    /// memory: append little.
    Room(Room),
    /// Told once, and nothing after it: no more is written. Stop the process. A restart finds every record
    /// that was reported durable.
    Failed(JournalError),
}

/// What a data directory held.
#[derive(Debug)]
pub struct Recovered {
    /// The newest checkpoint, with its position.
    pub checkpoint: Option<(u64, Vec<u8>)>,
    /// The records after it, in order and without gaps: all that were ever reported durable, perhaps some
    /// more. They are durable now. They are read as they are asked for: before the next checkpoint.
    pub records: Records,
    /// It is marked as a copy of a directory that may have gone on elsewhere. The mark goes when the first batch is durable:
    /// what is appended first has to say so.
    pub restored: bool,
    /// Somebody has put the file `keep-history` into the directory. It is removed when the next record is durable.
    pub resolved: bool,
}

/// An open journal: the only owner of its data directory. Dropping it closes it.
pub struct Journal {
    queue: Arc<Queue>,
    /// Taken by closing.
    threads: Option<Threads>,
}

/// What a journal writes where.
pub(super) struct Place<D> {
    pub disk: D,
    pub identity: Identity,
    pub segment_bytes: u64,
    pub reserve: u64,
}

struct Threads {
    writer: JoinHandle<()>,
    checkpoints: JoinHandle<()>,
    /// Held until both have ended.
    lock: Option<File>,
}

impl Journal {
    /// Takes the directory, recovers it, and starts two threads. `sink` is called on one of them and must not
    /// block: the next batch waits for it.
    ///
    /// Errors leave the directory as it was; each says what to do.
    pub fn open(
        options: JournalOptions,
        sink: impl Fn(JournalEvent) + Send + 'static,
    ) -> Result<(Journal, Recovered), JournalError> {
        assert!(options.segment_bytes <= MAX_SEGMENT_BYTES, "the configuration bounds segments");
        let lock = data_dir::own(&options.dir)?;
        let identity = Identity { cluster: options.cluster, dc: options.dc };
        let disk = RealDisk::new(options.dir);
        let JournalOptions { segment_bytes, reserve, .. } = options;
        Journal::open_on(Place { disk, identity, segment_bytes, reserve }, Some(lock), sink)
    }

    pub(super) fn open_on<D: Disk>(
        place: Place<D>,
        lock: Option<File>,
        sink: impl Fn(JournalEvent) + Send + 'static,
    ) -> Result<(Journal, Recovered), JournalError> {
        let Place { disk, identity, segment_bytes, reserve } = place;
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
            let room = Room::default();
            let run =
                move || WriterThread { writer, queue: &queue, sink, reserve, room, restored, resolved }.run();
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

    /// Queues a record; never waits for the disk. Told durable later, perhaps together with others. After a
    /// failure it does nothing.
    ///
    /// Positions come without gaps, after the last recovered one, or 1. A record is at most
    /// [`crate::wire::MAX_FRAME`] bytes, as the codec already holds. Panics otherwise.
    pub fn append(&mut self, position: u64, record: &[u8]) {
        self.queue.append(position, record);
    }

    /// Writes a checkpoint beside the log: all that the records up to `position`, all appended, amount to.
    /// Answered by [`JournalEvent::CheckpointDone`] or [`JournalEvent::CheckpointSkipped`], unless a later checkpoint comes
    /// before this one is begun.
    pub fn checkpoint(&mut self, position: u64, body: Vec<u8>) {
        self.queue.checkpoint(Checkpoint { position, body });
    }

    /// What is appended and not durable yet is all in memory, and nothing else bounds it: take no input from clients
    /// while [`Figures::backlog_bytes`] is large.
    pub fn figures(&self) -> Figures {
        self.queue.figures()
    }

    /// How long batches took to become durable since the start: a write and a sync each.
    pub fn sync_times(&self) -> Histogram {
        self.queue.sync_times()
    }

    /// Makes everything appended durable and ends the threads; blocks until then. A checkpoint that is being
    /// written is finished, one that is not begun is dropped. An error if the journal had failed, or has no room.
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

/// A panic of a thread goes on here, unless this one is already in one.
fn join(thread: JoinHandle<()>) {
    if let Err(panic) = thread.join()
        && !thread::panicking()
    {
        std::panic::resume_unwind(panic);
    }
}
