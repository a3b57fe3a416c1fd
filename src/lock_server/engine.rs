//! All that a step needs: the machine, the mailbox of clients, and the outlets of effects.
//!
//! Calls are handled in batches. One reading of the clocks, one check of the journal's backlog and one
//! wake-up of each reader serve a whole batch; that makes a step cheap under load. A single call is a batch
//! of one and waits for no other.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::clock;
use super::combiner::{Backlog, Combined};
use super::effects::Outlets;
use super::fencing::Fencing;
use super::handle::{Input, Stage};
use super::journal_inbox::{CheckpointEnd, JournalEvents};
use super::mailbox::{DiskPace, Mailbox};
use super::options::LockServerOptions;
use super::outbox::Output;
use super::overload::{LoadChange, LoadSample, Overload};
use super::ports::{LinkInput, Links, Machine, Store};
use super::probe::Probes;
use super::sessions::OWN;
use super::start::StopError;
use crate::access::LogLimit;
use crate::base::capacity::{DiskSpace, Load};
use crate::base::time::{Instant, Now};
use crate::base::wire;
use crate::replica::call::{Call, CallId, ClientId, Status};
use crate::replica::{Event, Message};
use crate::telemetry::{Board, Snapshot};

/// How often the server publishes its status.
const SNAPSHOT_INTERVAL: Duration = Duration::from_millis(100);
/// The same interval during a drain: the server stops as soon as a status shows that no lock is held.
const DRAINING_INTERVAL: Duration = Duration::from_millis(10);

/// The machine with its inputs and outputs. The combiner's lock protects it.
pub(super) struct Engine<M, S, L: Links> {
    pub machine: M,
    pub mailbox: Mailbox,
    pub outlets: Outlets<S, L>,
    pub publisher: StatusPublisher,
    pub overload: Overload,
    pub probes: Probes,
    pub options: LockServerOptions,
    pub now: Now,
    /// Sessions closed because their clients do not read, and the limit on log lines about them.
    pub cut_off: u64,
    pub cut_off_logged: LogLimit,
    /// The last value passed to [`Links::take_bulk`].
    pub takes_bulk: bool,
    /// When the drain ends at the latest.
    pub drained_by: Option<Instant>,
    /// When the actor wakes up by itself.
    pub sleeps_until: Instant,
}

/// The parts of the server's state that are visible from outside.
pub(super) struct StatusPublisher {
    pub stage: watch::Sender<Stage>,
    pub board: Arc<Board>,
    /// When the next status is due.
    pub next: Instant,
    /// If a majority backs this member, as far as it was logged.
    fencing: Fencing,
}

impl StatusPublisher {
    pub(super) fn new(stage: watch::Sender<Stage>, board: Arc<Board>, next: Instant) -> StatusPublisher {
        StatusPublisher { stage, board, next, fencing: Fencing::default() }
    }
}

impl<M: Machine, S: Store, L: Links> Combined for Engine<M, S, L> {
    type Error = StopError;

    fn run_pending(&mut self) -> Result<Backlog, StopError> {
        let disk = self.disk_pace();
        let mut batch = self.mailbox.take(disk);
        if !batch.inputs.is_empty() {
            self.now = clock::now();
            for input in batch.inputs.drain(..) {
                self.on_input(input)?;
            }
            self.outlets.sessions.wake();
        }
        Ok(self.mailbox.put_back(batch))
    }

    fn is_due_sooner(&self) -> bool {
        self.machine.next_deadline() < self.sleeps_until
    }
}

impl<M: Machine, S: Store, L: Links> Engine<M, S, L> {
    fn on_input(&mut self, input: Input) -> Result<(), StopError> {
        match input {
            Input::Open { session, feed } => {
                self.outlets.sessions.open(session, feed);
                if *self.publisher.stage.borrow() != Stage::Running {
                    let timeout = self.drain_left();
                    self.outlets.sessions.tell(session, Output::Draining { timeout });
                }
                Ok(())
            }
            // A session that was closed by the server may still have calls in the mailbox.
            Input::Call { session, .. } if !self.outlets.sessions.is_open(session) => Ok(()),
            Input::Call { session, tag, client, call, .. } => {
                self.event(Event::Client { call: CallId { session, tag }, client, request: call })
            }
            Input::Close { session, .. } if !self.outlets.sessions.close(session) => Ok(()),
            Input::Close { session, .. } => self.event(Event::SessionClosed { session }),
            Input::Unary { client, call, reply, .. } => {
                let id = self.outlets.sessions.add_unary(reply);
                self.event(Event::Client { call: id, client, request: call })
            }
            Input::AccessRules(digests) => self.event(Event::AccessRules { digests }),
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
                self.event(Event::LinkUp { peer, version })
            }
            LinkInput::Down { peer } => {
                self.outlets.closing.remove(peer);
                self.event(Event::LinkDown { peer })
            }
            // Messages of a peer that broke the protocol are ignored while its link closes.
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

    /// Handles an event of the journal. Returns the end of a checkpoint, if it reports one.
    pub(super) fn on_journal(&mut self, events: JournalEvents) -> Result<Option<CheckpointEnd>, StopError> {
        if let Some(error) = events.failed {
            return Err(StopError::Journal(error));
        }
        if let Some(room) = events.room {
            self.event(Event::Disk { room })?;
        }
        if let Some(position) = events.durable {
            self.outlets.durable = position;
            self.event(Event::Durable { position })?;
        }
        Ok(events.checkpoint)
    }

    pub(super) fn on_deadline(&mut self) -> Result<(), StopError> {
        if self.machine.next_deadline() <= self.now.mono {
            self.event(Event::Tick)?;
        }
        Ok(())
    }

    /// Publishes the status and samples the load, if that is due. Called after every step: under constant
    /// load the runtime polls timers late, by up to seconds. The machine needs no such call; it fires its own
    /// timers with every event.
    pub(super) fn publish_if_due(&mut self) -> Result<(), StopError> {
        if self.publisher.next <= self.now.mono {
            let draining = self.drained_by.is_some();
            let interval = if draining { DRAINING_INTERVAL } else { SNAPSHOT_INTERVAL };
            self.publisher.next = self.now.mono + interval;
            self.outlets.expired.log(self.now.mono);
            self.sample_load()?;
            // The answer goes to `publish_status`.
            let (call, client) = (CallId { session: OWN, tag: 0 }, ClientId::UNKNOWN);
            self.event(Event::Client { call, client, request: Call::Status })?;
        }
        Ok(())
    }

    /// Informs the machine and the log when an overload begins or ends.
    fn sample_load(&mut self) -> Result<(), StopError> {
        let LoadSample { load, change } = self.overload.sample(self.now.mono);
        match change {
            Some(LoadChange::Begins { behind }) => tracing::warn!(
                ?behind,
                "overloaded: new work of clients is refused while calls wait for longer than limits.max_queue_delay"
            ),
            Some(LoadChange::Over) => tracing::info!("no longer overloaded"),
            None => {}
        }
        if self.overload.wants_probe() {
            self.overload.probed(self.now.mono, self.probes.send());
        }
        load.map_or(Ok(()), |load| self.event(Event::Load { load }))
    }

    /// Starts a drain.
    pub(super) fn on_drain_requested(&mut self) -> Result<(), StopError> {
        let timeout = self.options.drain_timeout;
        tracing::info!(?timeout, "draining");
        self.drained_by = Some(self.now.mono + timeout);
        self.publisher.next = self.now.mono;
        self.publisher.stage.send_replace(Stage::Draining);
        self.event(Event::Drain)?;
        self.outlets.sessions.tell_all(|| Output::Draining { timeout });
        Ok(())
    }

    /// Passes an event to the machine and performs its effects.
    pub(super) fn event(&mut self, event: Event) -> Result<(), StopError> {
        self.machine.handle(self.now, event);
        self.perform()?;
        while let Some(session) = self.outlets.sessions.next_cut_off() {
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

    /// Publishes the status if there is a new one. Breaks when the drain is over: no lock is held, or the
    /// timeout has passed.
    pub(super) fn publish_status(&mut self) -> ControlFlow<()> {
        let Some(status) = self.outlets.own_status.take() else { return ControlFlow::Continue(()) };
        let held = status.counts.held;
        self.publisher.fencing.log(status.backed_for_ms);
        self.publish_members();
        self.publish_snapshot(*status);
        match self.drained_by {
            Some(_) if held == 0 => ControlFlow::Break(()),
            Some(drained_by) if drained_by <= self.now.mono => {
                tracing::warn!(held, "the drain timeout is over: stopping with locks held");
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn publish_snapshot(&self, status: Status) {
        self.publisher.board.publish(Snapshot {
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
        self.machine.next_deadline().min(self.publisher.next)
    }

    /// Accepts messages that would be written from peers only while the disk keeps up.
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
        // On a full disk the machine accepts nothing that would be written, so clients that only read are
        // still served.
        if figures.backlog_bytes <= self.options.max_journal_backlog || figures.disk_space == DiskSpace::Full
        {
            DiskPace::KeepsUp
        } else if self.overload.load() == Load::TooMuch {
            DiskPace::BehindForLong
        } else {
            DiskPace::Behind
        }
    }
}
