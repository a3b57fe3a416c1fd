//! What the journal tells the actor: a cell instead of a queue, so that the journal's threads never wait and
//! nothing piles up. Only the latest durable position counts, and the latest word about the room; a failure ends
//! everything, and there is one checkpoint at a time.

use std::mem;
use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::journal::{JournalError, JournalEvent};
use crate::replica::Position;
use crate::room::Room;

/// All that the journal said since the actor last looked.
#[derive(Debug, Default)]
pub(super) struct JournalNews {
    /// The highest position that became durable.
    pub durable: Option<Position>,
    pub checkpoint: Option<CheckpointEnd>,
    pub room: Option<Room>,
    pub failed: Option<JournalError>,
}

/// What became of the checkpoint that was being written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CheckpointEnd {
    Kept,
    /// There was no room for it.
    Skipped,
}

#[derive(Debug, Default)]
pub struct JournalInbox {
    news: Mutex<JournalNews>,
    changed: Notify,
}

impl JournalInbox {
    /// Called by the journal's threads.
    pub fn put(&self, event: JournalEvent) {
        let mut news = self.lock();
        match event {
            JournalEvent::Durable(position) => news.durable = news.durable.max(Some(Position(position))),
            JournalEvent::CheckpointDone { .. } => news.checkpoint = Some(CheckpointEnd::Kept),
            JournalEvent::CheckpointSkipped => news.checkpoint = Some(CheckpointEnd::Skipped),
            JournalEvent::Room(room) => news.room = Some(room),
            JournalEvent::Failed(error) => news.failed = Some(error),
        }
        drop(news);
        self.changed.notify_one();
    }

    /// Until there is something new. May be dropped while it waits without losing anything.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(super) fn take(&self) -> JournalNews {
        mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, JournalNews> {
        self.news.lock().expect("nothing panics while it holds the news")
    }
}
