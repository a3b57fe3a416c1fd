//! The messages that wait to be sent on one lane of one link.
//!
//! Bounded in number and bytes. A message counts until QUIC has taken it, so the batch of the writer is
//! within the bound, too. A sender never blocks: it gets an error when the queue is full.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use bytes::{Bytes, BytesMut};
use tokio::sync::Notify;

use super::config::QueueBound;
use super::frame::header;

/// A writer passes about this much to QUIC at a time: enough to make the cost of a write negligible, and
/// little enough to report room early while a long queue drains.
const BATCH_BYTES: usize = 256 << 10;
/// Messages of at least this size are passed on as they are; smaller ones are copied together.
const COPY_BELOW: usize = 4 << 10;

/// The reason why a message was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unqueued {
    Full,
    Finished,
}

pub(super) struct LaneQueue {
    bound: QueueBound,
    queued: Mutex<Queued>,
    changed: Notify,
}

#[derive(Default)]
struct Queued {
    messages: VecDeque<Bytes>,
    /// Messages that wait, or that the writer has taken.
    held_messages: usize,
    held_bytes: usize,
    finished: bool,
}

/// Messages on their way from a queue into a stream.
pub(super) struct Batch {
    /// Frames, ready to be written.
    pub chunks: Vec<Bytes>,
    pub messages: usize,
    /// Bytes of the messages, without their headers.
    pub bytes: usize,
}

impl LaneQueue {
    pub(super) fn new(bound: QueueBound) -> LaneQueue {
        LaneQueue { bound, queued: Mutex::default(), changed: Notify::new() }
    }

    pub(super) fn push(&self, message: Bytes) -> Result<(), Unqueued> {
        let mut queued = self.queued();
        if queued.finished {
            return Err(Unqueued::Finished);
        }
        let bytes = queued.held_bytes + message.len();
        if queued.held_messages >= self.bound.messages || bytes > self.bound.bytes {
            return Err(Unqueued::Full);
        }
        queued.held_messages += 1;
        queued.held_bytes = bytes;
        queued.messages.push_back(message);
        drop(queued);
        self.changed.notify_one();
        Ok(())
    }

    /// Closes the queue: no more messages are accepted; those that wait may still be sent.
    pub(super) fn finish(&self) {
        self.queued().finished = true;
        self.changed.notify_one();
    }

    /// Waits for the next messages to write; `None` when the queue is finished and empty. For one writer.
    pub(super) async fn take(&self) -> Option<Batch> {
        loop {
            {
                let mut queued = self.queued();
                if !queued.messages.is_empty() {
                    return Some(batch(&mut queued.messages));
                }
                if queued.finished {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }

    /// Notes that `batch` was written.
    pub(super) fn release(&self, batch: &Batch) {
        let mut queued = self.queued();
        queued.held_messages -= batch.messages;
        queued.held_bytes -= batch.bytes;
    }

    fn queued(&self) -> MutexGuard<'_, Queued> {
        self.queued.lock().expect("nothing panics while it holds a queue")
    }
}

fn batch(messages: &mut VecDeque<Bytes>) -> Batch {
    let mut batch = Batch { chunks: Vec::new(), messages: 0, bytes: 0 };
    let mut small = BytesMut::new();
    while batch.bytes < BATCH_BYTES {
        let Some(message) = messages.pop_front() else { break };
        batch.messages += 1;
        batch.bytes += message.len();
        small.extend_from_slice(&header(message.len()));
        if message.len() < COPY_BELOW {
            small.extend_from_slice(&message);
        } else {
            batch.chunks.push(small.split().freeze());
            batch.chunks.push(message);
        }
    }
    if !small.is_empty() {
        batch.chunks.push(small.freeze());
    }
    batch
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(messages: usize, bytes: usize) -> LaneQueue {
        LaneQueue::new(QueueBound { messages, bytes })
    }

    fn message(len: usize) -> Bytes {
        Bytes::from(vec![7; len])
    }

    #[tokio::test]
    async fn both_bounds_hold_until_the_batch_is_released() {
        let by_count = queue(2, 1000);
        by_count.push(message(1)).unwrap();
        by_count.push(message(1)).unwrap();
        assert_eq!(by_count.push(message(1)), Err(Unqueued::Full));
        let batch = by_count.take().await.unwrap();
        assert_eq!((batch.messages, batch.bytes), (2, 2));
        assert_eq!(by_count.push(message(1)), Err(Unqueued::Full), "the writer still holds them");
        by_count.release(&batch);
        by_count.push(message(1)).unwrap();

        let by_bytes = queue(100, 10);
        by_bytes.push(message(10)).unwrap();
        assert_eq!(by_bytes.push(message(1)), Err(Unqueued::Full));
    }

    #[tokio::test]
    async fn a_batch_is_cut_by_bytes_and_keeps_the_order() {
        let queue = queue(1000, usize::MAX);
        for len in [10, COPY_BELOW, 20, BATCH_BYTES, 30] {
            queue.push(message(len)).unwrap();
        }
        let first = queue.take().await.unwrap();
        assert_eq!(first.messages, 4);
        let lens: Vec<_> = first.chunks.iter().map(Bytes::len).collect();
        assert_eq!(lens, [4 + 10 + 4, COPY_BELOW, 4 + 20 + 4, BATCH_BYTES]);
        assert_eq!(queue.take().await.unwrap().messages, 1);
    }

    #[tokio::test]
    async fn finished_means_what_waits_and_no_more() {
        let queue = queue(10, 10);
        queue.push(message(1)).unwrap();
        queue.finish();
        assert_eq!(queue.push(message(1)), Err(Unqueued::Finished));
        assert_eq!(queue.take().await.unwrap().messages, 1);
        assert!(queue.take().await.is_none());
    }
}
