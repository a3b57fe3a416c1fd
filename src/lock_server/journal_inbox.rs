//! Events from the journal to the actor. This is a cell, not a queue, so the journal's threads never block
//! and nothing accumulates. Only the latest durable position and the latest disk space count; a failure ends
//! everything; and there is one checkpoint at a time.

use std::mem;
use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::base::capacity::DiskSpace;
use crate::journal::{JournalError, JournalEvent};
use crate::replica::Position;

/// All events of the journal since the last read.
#[derive(Debug, Default)]
pub(super) struct JournalEvents {
    /// The highest position that became durable.
    pub durable: Option<Position>,
    pub checkpoint: Option<CheckpointEnd>,
    pub room: Option<DiskSpace>,
    pub failed: Option<JournalError>,
}

/// The end of a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CheckpointEnd {
    Kept,
    /// There was no room for it.
    Skipped,
}

#[derive(Debug, Default)]
pub struct JournalInbox {
    events: Mutex<JournalEvents>,
    changed: Notify,
}

impl JournalInbox {
    /// Records an event. Called by the journal's threads.
    pub fn put(&self, event: JournalEvent) {
        let mut events = self.lock();
        match event {
            JournalEvent::Durable(position) => events.durable = events.durable.max(Some(Position(position))),
            JournalEvent::CheckpointDone { .. } => events.checkpoint = Some(CheckpointEnd::Kept),
            JournalEvent::CheckpointSkipped => events.checkpoint = Some(CheckpointEnd::Skipped),
            JournalEvent::DiskSpace(room) => events.room = Some(room),
            JournalEvent::Failed(error) => events.failed = Some(error),
        }
        drop(events);
        self.changed.notify_one();
    }

    /// Waits until there is an event. Cancel safe.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(super) fn take(&self) -> JournalEvents {
        mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, JournalEvents> {
        self.events.lock().expect("nothing panics while it holds the news")
    }
}
