//! The actor's inputs apart from calls. Chooses the next one; handles none.

use std::collections::VecDeque;
use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant as TokioInstant, Sleep, sleep_until};

use super::checkpoints::Checkpoints;
use super::clock;
use super::handle::Stage;
use super::journal_inbox::{JournalEvents, JournalInbox};
use super::members::MembersInput;
use super::start::StopError;
use crate::base::time::Instant;
use crate::replica::Position;

/// Most inputs of links in a batch: a message can carry hundreds of entries.
const LINK_BATCH: usize = 32;

/// The reason for a wake-up of the actor.
pub(super) enum Wake {
    /// Another thread found work for the actor.
    Notified,
    Links,
    Journal,
    Deadline,
    Members(MembersInput),
    DrainRequested,
    Encoded(Position, Result<Vec<u8>, StopError>),
}

/// The inputs of the actor. `E` is the type of the events of links.
pub(super) struct Inputs<E> {
    links: mpsc::Receiver<E>,
    journal: Arc<JournalInbox>,
    members: mpsc::Receiver<MembersInput>,
    /// Notified by other threads that found work for the actor.
    woken: Arc<Notify>,
    /// Watched until it changes: a drain is requested once.
    wanted: Option<watch::Receiver<Stage>>,
    link_events: Batch<E>,
    alarm: Alarm,
}

/// Inputs taken together; the buffers are reused.
struct Batch<T> {
    taken: Vec<T>,
    left: VecDeque<T>,
    open: bool,
}

impl<T> Default for Batch<T> {
    fn default() -> Batch<T> {
        Batch { taken: Vec::new(), left: VecDeque::new(), open: true }
    }
}

impl<T> Batch<T> {
    /// A receive of no events means that the channel is closed for good.
    fn took(&mut self, count: usize) {
        self.open = count > 0;
        self.left.extend(self.taken.drain(..));
    }
}

impl<E> Inputs<E> {
    pub(super) fn new(
        links: mpsc::Receiver<E>,
        journal: Arc<JournalInbox>,
        members: mpsc::Receiver<MembersInput>,
        woken: Arc<Notify>,
        wanted: watch::Receiver<Stage>,
    ) -> Inputs<E> {
        let (wanted, link_events) = (Some(wanted), Batch::default());
        Inputs { links, journal, members, woken, wanted, link_events, alarm: Alarm::default() }
    }

    /// Waits for the next input, at most until `deadline`. The sources are polled in random order, so that
    /// none can starve another. Cancel safe.
    pub(super) async fn next(&mut self, deadline: Instant, checkpoints: &mut Checkpoints) -> Wake {
        let alarm = self.alarm.at(deadline);
        tokio::select! {
            () = self.woken.notified() => Wake::Notified,
            count = self.links.recv_many(&mut self.link_events.taken, LINK_BATCH), if self.link_events.open => {
                self.link_events.took(count);
                Wake::Links
            }
            () = self.journal.changed() => Wake::Journal,
            Some(input) = self.members.recv() => Wake::Members(input),
            () = alarm => {
                self.alarm.rang();
                Wake::Deadline
            }
            () = wish(&mut self.wanted) => {
                self.wanted = None;
                Wake::DrainRequested
            }
            (position, state) = checkpoints.encoded() => Wake::Encoded(position, state),
        }
    }

    pub(super) fn next_link(&mut self) -> Option<E> {
        self.link_events.left.pop_front()
    }

    pub(super) fn journal_events(&mut self) -> JournalEvents {
        self.journal.take()
    }

    pub(super) async fn journal_changed(&self) {
        self.journal.changed().await;
    }
}

/// Waits until another stage than at the start is requested.
async fn wish(wanted: &mut Option<watch::Receiver<Stage>>) {
    match wanted {
        // An error means that all handles are dropped: that is a request to stop, too.
        Some(wanted) => drop(wanted.changed().await),
        None => pending().await,
    }
}

/// A timer that is reset only when the deadline changes, which is rare.
#[derive(Default)]
struct Alarm {
    set_to: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Alarm {
    fn at(&mut self, deadline: Instant) -> Pin<&mut Sleep> {
        if self.set_to != Some(deadline) {
            // The timer's clock stops during suspend, the monotonic clock here does not. After a suspend the
            // timer therefore fires late by its length, unless an input arrives first. The machine tolerates
            // late ticks.
            let left = deadline.saturating_since(clock::now().mono);
            let at = TokioInstant::now() + left;
            match &mut self.sleep {
                Some(sleep) => sleep.as_mut().reset(at),
                none => *none = Some(Box::pin(sleep_until(at))),
            }
            self.set_to = Some(deadline);
        }
        self.sleep.as_mut().expect("it was just set").as_mut()
    }

    fn rang(&mut self) {
        self.set_to = None;
    }
}
