//! The two threads. The writer alone touches the log and speaks to the sink, so that events come in order
//! and nothing follows a failure. Checkpoints have a thread of their own: one may take seconds, and the log
//! must not wait for it.

use std::time::Instant;

use super::disk::Disk;
use super::error::{Identity, JournalError};
use super::handle::JournalEvent;
use super::queue::{Queue, Work};
use super::writer::Writer;

/// Runs until the queue is closed, or something fails: then it says so once and ends.
pub(super) fn run_writer<D: Disk>(mut writer: Writer<D>, queue: &Queue, sink: impl Fn(JournalEvent)) {
    loop {
        let event = match queue.next_work() {
            Work::Close => return,
            work => perform(&mut writer, queue, work),
        };
        match event {
            Ok(Some(event)) => sink(event),
            Ok(None) => {}
            Err(error) => {
                queue.fail();
                sink(JournalEvent::Failed(error));
                return;
            }
        }
    }
}

fn perform<D: Disk>(
    writer: &mut Writer<D>,
    queue: &Queue,
    work: Work,
) -> Result<Option<JournalEvent>, JournalError> {
    match work {
        Work::Write(mut batch) => {
            let start = Instant::now();
            writer.write(&mut batch)?;
            let position = batch.last;
            queue.written(batch, start.elapsed(), writer.segments());
            Ok(Some(JournalEvent::Durable(position)))
        }
        Work::Rotate => writer.rotate_for_checkpoint().map(|()| None),
        Work::Truncate { position } => {
            let bytes_freed = writer.truncate(position)?;
            queue.truncated(writer.segments());
            Ok(Some(JournalEvent::CheckpointDone { position, bytes_freed }))
        }
        Work::CheckpointFailed(error) => Err(error),
        Work::Close => Ok(None),
    }
}

/// Runs until no new checkpoint is to be begun, or one fails.
pub(super) fn run_checkpoints<D: Disk>(disk: &D, identity: Identity, queue: &Queue) {
    while let Some(checkpoint) = queue.next_checkpoint() {
        match checkpoint.write(disk, identity) {
            Ok(()) => queue.push(Work::Truncate { position: checkpoint.position }),
            Err(error) => {
                queue.push(Work::CheckpointFailed(error));
                return;
            }
        }
    }
}
