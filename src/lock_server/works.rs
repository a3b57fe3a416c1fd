//! What a step is made with: the machine, the mailbox of clients, and where effects go.
//!
//! Calls are taken many at a time: one reading of the clocks, one look at the journal's backlog and one waking of each
//! reader serve a whole batch, which is what makes a step cost little under load. Alone, a call is a batch of one and
//! waits for nobody.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::callers::OWN;
use super::clock;
use super::effects::Outlets;
use super::handle::{Input, Stage};
use super::journal_inbox::{CheckpointEnd, JournalNews};
use super::mailbox::{DiskPace, Mailbox};
use super::options::LockServerOptions;
use super::outbox::Output;
use super::overload::{Look, News, Overload};
use super::ports::{LinkInput, Links, Machine, Store};
use super::probe::Probes;
use super::start::StopError;
use crate::access::LogLimit;
use crate::replica::call::{Call, CallId, Status};
use crate::replica::{Event, Message};
use crate::room::{Load, Room};
use crate::telemetry::{Board, Snapshot};
use crate::time::{Instant, Now};
use crate::wire;

/// How often the actor shows a picture of itself.
const SNAPSHOT_INTERVAL: Duration = Duration::from_millis(100);
/// The same while it drains: it stops as soon as it sees that nothing is held.
const DRAINING_INTERVAL: Duration = Duration::from_millis(10);

/// See the top of this file.
pub(super) struct Works<M, S, L: Links> {
    pub machine: M,
    pub mailbox: Mailbox,
    pub outlets: Outlets<S, L>,
    pub showing: Showing,
    pub overload: Overload,
    pub probes: Probes,
    pub options: LockServerOptions,
    pub now: Now,
    /// Sessions that were closed because their clients do not read, and lines about them.
    pub cut_off: u64,
    pub cut_off_logged: LogLimit,
    /// What links were told.
    pub takes_bulk: bool,
    /// When draining has to be over.
    pub drained_by: Option<Instant>,
    /// When the actor looks by itself.
    pub sleeps_until: Instant,
    /// Why it cannot go on, found by somebody else than the actor.
    pub failed: Option<StopError>,
}

/// What others can see of the actor.
pub(super) struct Showing {
    pub stage: watch::Sender<Stage>,
    pub board: Arc<Board>,
    /// When the next picture is due.
    pub next: Instant,
}

/// Whether the actor goes on after a step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Go {
    On,
    Stop,
}

/// Whether the mailbox may have more.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    Nothing,
    Perhaps,
    /// It is not looked at any more.
    Untouched,
}

impl<M: Machine, S: Store, L: Links> Works<M, S, L> {
    /// Works off a batch of what clients have put in.
    pub(super) fn work_off(&mut self) -> Result<Left, StopError> {
        if self.failed.is_some() {
            return Ok(Left::Untouched);
        }
        let disk = self.disk_pace();
        let mut batch = self.mailbox.take(disk);
        if !batch.inputs.is_empty() {
            self.now = clock::now();
            for input in batch.inputs.drain(..) {
                self.on_client(input)?;
            }
            self.outlets.callers.wake();
        }
        Ok(self.mailbox.put_back(batch))
    }

    /// Whether there is something to do before the actor looks by itself.
    pub(super) fn is_due_sooner(&self) -> bool {
        self.failed.is_some() || self.machine.next_deadline().is_some_and(|due| due < self.sleeps_until)
    }

    fn on_client(&mut self, input: Input) -> Result<(), StopError> {
        match input {
            Input::Open { session, feed } => {
                self.outlets.callers.open(session, feed);
                if *self.showing.stage.borrow() != Stage::Running {
                    let timeout = self.drain_left();
                    self.outlets.callers.tell(session, Output::Draining { timeout });
                }
                Ok(())
            }
            // A session that was cut off may have calls in the mailbox still.
            Input::Call { session, .. } if !self.outlets.callers.is_open(session) => Ok(()),
            Input::Call { session, tag, call, .. } => {
                self.event(Event::Client { call: CallId { session, tag }, request: call })
            }
            Input::Close { session, .. } if !self.outlets.callers.close(session) => Ok(()),
            Input::Close { session, .. } => self.event(Event::SessionClosed { session }),
            Input::Unary { call, reply, .. } => {
                let id = self.outlets.callers.add_unary(reply);
                self.event(Event::Client { call: id, request: call })
            }
            Input::Probe => {
                self.overload.came_out(self.now.mono);
                Ok(())
            }
        }
    }

    pub(super) fn on_link(&mut self, event: L::Event) -> Result<(), StopError> {
        match self.outlets.links.read(event) {
            LinkInput::Up { peer, version } => {
                self.outlets.note_version(peer, version);
                self.outlets.closing.remove(peer);
                self.event(Event::LinkUp { peer })
            }
            LinkInput::Down { peer } => {
                self.outlets.closing.remove(peer);
                self.event(Event::LinkDown { peer })
            }
            // Whoever broke the protocol is not listened to while its link closes.
            LinkInput::Received { peer, .. } if self.outlets.closing.contains(peer) => Ok(()),
            LinkInput::Received { peer, message } => match wire::decode::<Message>("message", &message) {
                Ok(message) => self.event(Event::Received { peer, message }),
                Err(error) => {
                    self.outlets.close_link(peer, &error);
                    Ok(())
                }
            },
            LinkInput::Flushed { peer, messages, batches } => {
                self.event(Event::Flushed { peer, messages, batches })
            }
        }
    }

    /// What the journal said; whether it is done with a checkpoint.
    pub(super) fn on_journal(&mut self, news: JournalNews) -> Result<Option<CheckpointEnd>, StopError> {
        if let Some(error) = news.failed {
            return Err(StopError::Journal(error));
        }
        if let Some(room) = news.room {
            self.event(Event::Disk { room })?;
        }
        if let Some(position) = news.durable {
            self.outlets.durable = position;
            self.event(Event::Durable { position })?;
        }
        Ok(news.checkpoint)
    }

    pub(super) fn on_deadline(&mut self) -> Result<(), StopError> {
        if self.machine.next_deadline().is_some_and(|deadline| deadline <= self.now.mono) {
            self.event(Event::Tick)?;
        }
        Ok(())
    }

    /// Looks at itself. After every step, because timers fire only when their runtime gets a turn, which may be seconds
    /// later while there is always something to do. The machine fires what is due with every event.
    pub(super) fn look_if_due(&mut self) -> Result<(), StopError> {
        if self.showing.next <= self.now.mono {
            let draining = self.drained_by.is_some();
            let interval = if draining { DRAINING_INTERVAL } else { SNAPSHOT_INTERVAL };
            self.showing.next = self.now.mono + interval;
            self.outlets.expired.log(self.now.mono);
            self.look_at_load()?;
            // The answer goes to `show`.
            self.event(Event::Client { call: CallId { session: OWN, tag: 0 }, request: Call::Status })?;
        }
        Ok(())
    }

    /// Tells the machine and the operator when there is more to do than can be done, and when that is over.
    fn look_at_load(&mut self) -> Result<(), StopError> {
        let Look { load, news } = self.overload.look(self.now.mono);
        match news {
            Some(News::Begins { behind }) => tracing::warn!(
                ?behind,
                "overloaded: what clients begin anew is refused while calls wait for longer than limits.shed_after"
            ),
            Some(News::Over) => tracing::info!("no longer overloaded"),
            None => {}
        }
        if self.overload.wants_probe() {
            self.overload.probed(self.now.mono, self.probes.send());
        }
        load.map_or(Ok(()), |load| self.event(Event::Load { load }))
    }

    /// Somebody wants the server to stop.
    pub(super) fn on_wanted(&mut self) -> Result<(), StopError> {
        let timeout = self.options.drain_timeout;
        tracing::info!(?timeout, "draining");
        self.drained_by = Some(self.now.mono + timeout);
        self.showing.next = self.now.mono;
        self.showing.stage.send_replace(Stage::Draining);
        self.event(Event::Drain)?;
        self.outlets.callers.tell_all(|| Output::Draining { timeout });
        Ok(())
    }

    /// Hands an event to the machine and does what it wants done.
    pub(super) fn event(&mut self, event: Event) -> Result<(), StopError> {
        self.machine.handle(self.now, event);
        self.perform()?;
        while let Some(session) = self.outlets.callers.next_cut_off() {
            self.cut_off += 1;
            if self.cut_off_logged.allows(std::time::Instant::now()) {
                let so_far = self.cut_off;
                tracing::warn!(
                    session = session.0,
                    so_far,
                    "a client does not read its answers: session closed"
                );
            }
            self.machine.handle(self.now, Event::SessionClosed { session });
            self.perform()?;
        }
        Ok(())
    }

    fn perform(&mut self) -> Result<(), StopError> {
        while let Some(effect) = self.machine.poll_effect() {
            self.outlets.perform(effect)?;
        }
        Ok(())
    }

    /// Shows a picture of itself if there is a new one. A drain is over when that shows nothing held.
    pub(super) fn show(&mut self) -> Go {
        let Some(status) = self.outlets.own_status.take() else { return Go::On };
        let held = status.counts.held;
        self.show_snapshot(*status);
        match self.drained_by {
            Some(_) if held == 0 => Go::Stop,
            Some(drained_by) if drained_by <= self.now.mono => {
                tracing::warn!(held, "the drain timeout is over: stopping with locks held");
                Go::Stop
            }
            _ => Go::On,
        }
    }

    fn show_snapshot(&self, status: Status) {
        self.showing.board.publish(Snapshot {
            status,
            journal: self.outlets.store.figures(),
            sync_times: self.outlets.store.sync_times(),
            mailbox_delays: *self.overload.delays(),
            mailbox_bytes: self.mailbox.bytes() as u64,
            links: self.outlets.links.figures(),
            links_failed: self.outlets.links.have_failed(),
        });
    }

    fn drain_left(&self) -> Duration {
        self.drained_by.map_or(self.options.drain_timeout, |by| by.saturating_since(self.now.mono))
    }

    pub(super) fn sleep_until(&self) -> Instant {
        self.machine.next_deadline().map_or(self.showing.next, |deadline| deadline.min(self.showing.next))
    }

    /// Receives from other datacenters what would be written only while the disk keeps up.
    pub(super) fn bound_links(&mut self) {
        let takes_bulk = self.disk_pace() == DiskPace::KeepsUp;
        if takes_bulk != self.takes_bulk {
            self.takes_bulk = takes_bulk;
            self.outlets.links.take_bulk(takes_bulk);
        }
    }

    fn disk_pace(&self) -> DiskPace {
        if self.outlets.appended == self.outlets.durable {
            return DiskPace::KeepsUp;
        }
        let figures = self.outlets.store.figures();
        // On a full disk the machine takes on nothing that would be written, and who only reads is served on.
        if figures.backlog_bytes <= self.options.max_journal_backlog || figures.room == Room::Full {
            DiskPace::KeepsUp
        } else if self.overload.load() == Load::TooMuch {
            DiskPace::BehindForLong
        } else {
            DiskPace::Behind
        }
    }
}
