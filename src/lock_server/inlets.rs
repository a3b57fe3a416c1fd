//! Where the actor's inputs come from, but for calls. Chooses which comes next; handles none.

use std::collections::VecDeque;
use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant as TokioInstant, Sleep, sleep_until};

use super::checkpoints::Checkpoints;
use super::clock;
use super::handle::Stage;
use super::journal_inbox::{JournalInbox, JournalNews};
use super::start::StopError;
use crate::replica::Position;
use crate::time::Instant;

/// Most inputs of links in a batch: a message can carry hundreds of entries.
const LINK_BATCH: usize = 32;

/// What there is to do.
pub(super) enum Wake {
    /// Somebody found something for it to do.
    Called,
    Links,
    Journal,
    Deadline,
    Wanted,
    Encoded(Position, Result<Vec<u8>, StopError>),
}

/// See the top of this file. `E` is what links put into their mailbox.
pub(super) struct Inlets<E> {
    links: mpsc::Receiver<E>,
    journal: Arc<JournalInbox>,
    /// Looked at until it has changed: a drain is asked for once.
    wanted: Option<watch::Receiver<Stage>>,
    link_events: Batch<E>,
    alarm: Alarm,
}

/// Inputs taken together; the buffers are used again.
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
    /// Closed for good when nothing came.
    fn took(&mut self, count: usize) {
        self.open = count > 0;
        self.left.extend(self.taken.drain(..));
    }
}

impl<E> Inlets<E> {
    pub(super) fn new(
        links: mpsc::Receiver<E>,
        journal: Arc<JournalInbox>,
        wanted: watch::Receiver<Stage>,
    ) -> Inlets<E> {
        let (wanted, link_events) = (Some(wanted), Batch::default());
        Inlets { links, journal, wanted, link_events, alarm: Alarm::default() }
    }

    /// Waits for something to do, at most until `deadline`. In no fixed order, so that no source can keep
    /// another one waiting. Everything in here may be dropped while it waits.
    pub(super) async fn next(
        &mut self,
        deadline: Instant,
        called: impl Future<Output = ()>,
        checkpoints: &mut Checkpoints,
    ) -> Wake {
        let alarm = self.alarm.at(deadline);
        tokio::select! {
            () = called => Wake::Called,
            count = self.links.recv_many(&mut self.link_events.taken, LINK_BATCH), if self.link_events.open => {
                self.link_events.took(count);
                Wake::Links
            }
            () = self.journal.changed() => Wake::Journal,
            () = alarm => {
                self.alarm.rang();
                Wake::Deadline
            }
            () = wish(&mut self.wanted) => {
                self.wanted = None;
                Wake::Wanted
            }
            (position, state) = checkpoints.encoded() => Wake::Encoded(position, state),
        }
    }

    pub(super) fn next_link(&mut self) -> Option<E> {
        self.link_events.left.pop_front()
    }

    pub(super) fn journal_news(&mut self) -> JournalNews {
        self.journal.take()
    }

    pub(super) async fn journal_changed(&self) {
        self.journal.changed().await;
    }
}

/// Until something else is wanted than at the start.
async fn wish(wanted: &mut Option<watch::Receiver<Stage>>) {
    match wanted {
        // An error means that all handles are gone: a wish, too.
        Some(wanted) => drop(wanted.changed().await),
        None => pending().await,
    }
}

/// A timer that is set again only when the deadline is another one: the usual case is that it is not.
#[derive(Default)]
struct Alarm {
    set_to: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Alarm {
    fn at(&mut self, deadline: Instant) -> Pin<&mut Sleep> {
        if self.set_to != Some(deadline) {
            // The timer's clock stands still during suspend, ours does not: the deadline is then missed by as long,
            // unless an input comes before. The machine copes with late ticks.
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
